use super::*;
use crate::counters::LinkStats;

fn link(name: &str, rx_dropped: u64) -> Link {
    Link { name: name.into(), stats: LinkStats { rx_dropped, ..LinkStats::default() }, ..Link::default() }
}

fn qdisc(ifindex: u32, drops: u64) -> (QdiscKey, Qdisc) {
    let key = QdiscKey { ifindex, class: false, handle: 0, parent: u32::MAX };
    (key, Qdisc { kind: "fq".into(), drops, ..Qdisc::default() })
}

fn nic(packets: u64) -> NicLosses {
    let loss = NicLoss {
        name: "rx_missed".into(),
        queue: None,
        class: LossClass::Missed,
        counted: Counted::Beyond,
        tx: false,
        packets,
    };
    NicLosses { driver: "igb".into(), losses: vec![loss], ..NicLosses::default() }
}

fn rule(family: &str, packets: u64) -> (RuleKey, Rule) {
    let chain = ChainKey { family: family.into(), table: "filter".into(), chain: "INPUT".into() };
    (RuleKey { chain, handle: 1 }, Rule { packets: Some(packets), verdict: Verdict::Drop, ..Rule::default() })
}

/// A machine that has run for long: everything counts `n`.
fn counting(n: u64) -> StackCounters {
    let sockets =
        "  sl\n   1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7 2 0 ";
    let root = Root::from_files([("proc/net/udp".to_owned(), format!("{sockets}{n}\n"))].into());
    StackCounters {
        protocols: Protocols::parse(&format!("Ip: InReceives\nIp: {n}\n"), "", ""),
        conntrack: Some(Conntrack { drop: n, ..Conntrack::default() }),
        rules: Some(Rules { rules: [rule("inet", n), rule("iptables", n)].into(), ..Rules::default() }),
        qdiscs: [qdisc(2, n)].into(),
        links: [(2, link("eth0", n))].into(),
        nics: [(2, nic(n))].into(),
        sockets: sockets::read_files(&root),
        ..StackCounters::default()
    }
}

/// A figure of each source, in the order of the fields; none where a source has none.
fn figures(c: &StackCounters) -> [Option<u64>; 8] {
    let rule = |family: &str| c.rules.as_ref()?.rules.iter().find(|(k, _)| k.chain.family == family)?.1.packets;
    [
        c.protocols.all.get("Ip.InReceives").copied(),
        c.conntrack.map(|c| c.drop),
        rule("inet"),
        rule("iptables"),
        c.qdiscs.values().next().map(|q| q.drops),
        c.links.values().next().map(|l| l.stats.rx_dropped),
        c.nics.values().next().map(|n| n.losses[0].packets),
        c.sockets.values().next().map(|s| s.drops),
    ]
}

#[test]
fn what_was_read_before_counts_in_between() {
    let since = counting(1003).since(&counting(1000));
    assert_eq!(figures(&since), [Some(3); 8]);
    assert!(since.unread.is_empty(), "{:?}", since.unread);
}

#[test]
fn what_was_not_read_before_says_nothing_of_the_time_between() {
    let (some, none) = (Some(3), None);
    type Forget = fn(&mut StackCounters);
    let cases: [(Source, Forget, [Option<u64>; 8]); 7] = [
        (Source::Protocols, |c| c.protocols = Protocols::default(), [none, some, some, some, some, some, some, some]),
        (Source::Conntrack, |c| c.conntrack = None, [some, none, some, some, some, some, some, some]),
        (Source::Rules, |c| c.rules = None, [some, some, none, none, some, some, some, some]),
        (
            Source::OldRules("iptables"),
            |c| _ = c.rules.as_mut().map(|r| r.rules.retain(|k, _| k.chain.family != "iptables")),
            [some, some, some, none, some, some, some, some],
        ),
        (Source::Qdiscs, |c| c.qdiscs.clear(), [some, some, some, some, Some(0), some, some, some]),
        (
            Source::Links,
            |c| {
                c.links.clear();
                c.nics.clear();
            },
            [some, some, some, some, some, Some(0), Some(0), some],
        ),
        (Source::Sockets(SocketKind::Udp), |c| c.sockets.clear(), [some, some, some, some, some, some, some, Some(0)]),
    ];
    for (source, forget, want) in cases {
        let mut earlier = counting(1000);
        forget(&mut earlier);
        earlier.missed.insert(source);
        let since = counting(1003).since(&earlier);
        assert_eq!(figures(&since), want, "{source:?}");
        assert_eq!(since.unread.len(), 1, "{:?}", since.unread);
        assert!(since.unread[0].starts_with(&source.to_string()), "{:?}", since.unread);
    }
}

#[test]
fn an_interface_that_moved_in_brings_nothing_with_it() {
    let mut earlier = counting(1000);
    earlier.links.clear();
    earlier.nics.clear();
    earlier.qdiscs.clear();
    let since = counting(1003).since(&earlier);
    assert_eq!(figures(&since)[4..7], [Some(0); 3]);
    assert_eq!(since.unread, ["eth0 is new: its counters are taken from now on"]);
    let mut earlier = counting(1000);
    earlier.nics.clear();
    let since = counting(1003).since(&earlier);
    assert_eq!(figures(&since)[5..7], [Some(3), Some(0)]);
    assert!(since.unread[0].starts_with("eth0: its driver's counters"), "{:?}", since.unread);
}

#[test]
fn what_is_new_counts_from_zero() {
    let mut earlier = counting(1000);
    earlier.sockets.clear();
    earlier.qdiscs.clear();
    earlier.rules = None;
    earlier.conntrack = None;
    let since = counting(1003).since(&earlier);
    assert_eq!(
        figures(&since),
        [Some(3), Some(1003), Some(1003), Some(1003), Some(1003), Some(3), Some(3), Some(1003)]
    );
}
