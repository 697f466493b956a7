//! The arithmetic on made-up intervals: each loss once, at its station, and the books close.

use bpf::drops::{DropFlow, DropKind};
use host::{counters::LinkStats, stack::Protocols};
use ledger::{
    Head,
    input::{Detail, Drop, Interface, Interval, QdiscDone, Routed, RuleLoss, SocketLoss, Trace, XdpDone, XdpFailure},
    report,
};
use model::stations::{LedgerReport, LossKind, StationLoss};

/// An interval with these counters (`Group.Name` and a number).
fn interval(interfaces: Vec<Interface>, counters: &[(&str, u64)], drops: Vec<Drop>) -> Interval {
    let mut protocols = Protocols::default();
    protocols.all.insert("Ip.OutTransmits".into(), 0);
    protocols.all.extend(counters.iter().map(|&(name, n)| (name.to_owned(), n)));
    let trace = Trace { drops: Some(drops), ..Trace::default() };
    Interval { seconds: 1.0, interfaces, protocols, trace, ..Interval::default() }
}

fn interface(index: u32, rx: u64, tx: u64) -> Interface {
    let stats = LinkStats { rx_packets: rx, tx_packets: tx, ..LinkStats::default() };
    Interface { index, name: format!("eth{index}"), chosen: true, stats, ..Interface::default() }
}

fn drop(reason: &str, function: &str, ifindex: u32, packets: u64) -> Drop {
    Drop {
        reason: reason.into(),
        function: Some(function.into()),
        ifindex,
        protocol: 0x0800,
        packets,
        ..Drop::default()
    }
}

fn closed(interval: &Interval) -> LedgerReport {
    let report = report(interval, Head::default());
    assert_eq!(report.unexplained, 0, "{report:#?}");
    assert_eq!((report.receive.unexplained, report.transmit.unexplained), (0, 0), "{report:#?}");
    assert_eq!(report.offered, report.delivered + report.waiting + report.lost, "{report:#?}");
    let stations: u64 = report.stations.iter().map(|s| s.lost).sum();
    assert_eq!(stations, report.lost, "{report:#?}");
    report
}

fn loss<'a>(report: &'a LedgerReport, station: &str) -> &'a StationLoss {
    let found = report.stations.iter().find(|s| s.name == station && !s.losses.is_empty());
    &found.unwrap_or_else(|| panic!("no losses at {station}: {report:#?}")).losses[0]
}

#[test]
fn one_loss_in_two_counters_is_one_loss() {
    // InErrors holds RcvbufErrors.
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 100), ("Udp.InErrors", 30), ("Udp.RcvbufErrors", 30)];
    let mut interval = interval(vec![interface(2, 100, 0)], &counters, vec![]);
    let full = Drop { socket: 7, ..drop("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 2, 30) };
    interval.trace.drops = Some(vec![full]);
    interval.sockets = vec![SocketLoss { cookie: 7, process: Some("named[812]".into()), ..SocketLoss::default() }];
    let report = closed(&interval);
    assert_eq!((report.lost, report.delivered), (30, 70));
    let loss = loss(&report, "udp");
    assert!(loss.agrees && loss.causes[0].process.as_deref() == Some("named[812]"), "{loss:?}");
}

#[test]
fn without_the_trace_full_udp_buffers_are_charged_to_udp_sockets_alone() {
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 100), ("Udp.InErrors", 30), ("Udp.RcvbufErrors", 30)];
    let mut interval = interval(vec![interface(2, 100, 0)], &counters, vec![]);
    interval.trace.drops = None;
    let of = |what: &str, packets| SocketLoss { what: what.to_owned(), packets, ..SocketLoss::default() };
    interval.sockets = vec![of("UDP [::]:514", 30), of("TCP 192.0.2.2:80", 40), of("raw 0.0.0.0", 50)];
    let report = closed(&interval);
    let causes: Vec<_> = loss(&report, "udp").causes.iter().map(|c| (c.reason.as_str(), c.packets)).collect();
    assert_eq!(causes, [("UDP [::]:514", 30)]);
}

#[test]
fn a_full_accept_queue_is_named_with_its_listener() {
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 100), ("TcpExt.ListenOverflows", 9)];
    let mut interval = interval(vec![interface(2, 100, 0)], &counters, vec![]);
    let what = "TCP 192.0.2.2:80, 2 wait, at most 1 may".to_owned();
    interval.full_listeners = vec![SocketLoss { what, process: Some("httpd[9]".into()), ..SocketLoss::default() }];
    let of = |interval: &Interval| loss(&report(interval, Head::default()), "tcp").advice.clone().unwrap_or_default();
    let names = |advice: &str| {
        advice.starts_with("The program behind TCP 192.0.2.2:80 accepts too slowly") && !advice.contains("not known")
    };
    assert!(names(&of(&interval)), "the kernel freed the requests without a word: {}", of(&interval));
    interval.trace.drops = Some(vec![drop("TCP_LISTEN_OVERFLOW", "tcp_conn_request", 2, 9)]);
    assert!(names(&of(&interval)), "no packet was looked at: {}", of(&interval));
    interval.trace.drops = None;
    assert!(names(&of(&interval)), "no trace: {}", of(&interval));
}

#[test]
fn counter_and_trace_that_differ_are_both_shown() {
    let counters = [("Ip.InReceives", 10_000), ("Ip.InDelivers", 10_000), ("Udp.NoPorts", 9_000)];
    let drops = vec![drop("NO_SOCKET", "__udp4_lib_rcv", 2, 4_000)];
    let report = closed(&interval(vec![interface(2, 10_000, 0)], &counters, drops));
    let loss = loss(&report, "udp");
    assert_eq!((loss.packets, loss.traced, loss.agrees), (9_000, Some(4_000), false));
}

#[test]
fn a_router_with_rules_and_a_full_queue() {
    let counters = [
        ("Ip.InReceives", 1_000),
        ("Ip.InHdrErrors", 50),
        ("Ip.ForwDatagrams", 950),
        ("Ip.OutRequests", 50), // ICMP for the expired ones
        ("Ip.OutTransmits", 990),
    ];
    let mut out = interface(3, 0, 640);
    out.qdisc = Some(QdiscDone { kind: "tbf".into(), drops: 280, waited: 0, waits: 20 });
    let drops = vec![
        drop("IP_INHDR", "ip_forward", 2, 50),
        drop("NETFILTER_DROP", "nft_do_chain", 2, 10),
        drop("QDISC_DROP", "__dev_queue_xmit", 3, 280),
    ];
    let mut interval = interval(vec![interface(2, 1_000, 50), out], &counters, drops);
    let report = closed(&interval);
    assert_eq!(loss(&report, "qdisc").packets, 280);
    assert_eq!(loss(&report, "netfilter").packets, 10);
    assert!(loss(&report, "netfilter").traced_only);
    let ttl = loss(&report, "ip");
    assert_eq!((ttl.packets, ttl.place.as_str()), (50, "TTL or hop limit expired"));
    // The same with a counter in the rule: the number is the rule's, and nothing is counted twice.
    let rule = RuleLoss { hook: "forward".into(), family: "ip".into(), packets: 10, ..RuleLoss::default() };
    interval.netfilter.rules = vec![rule];
    let report = closed(&interval);
    assert_eq!(loss(&report, "netfilter").packets, 10);
    assert!(!loss(&report, "netfilter").traced_only);
}

#[test]
fn drops_of_an_unknown_hook_go_where_packets_are_missing() {
    // At postrouting, behind OutTransmits.
    let counters = [("Ip.InReceives", 100), ("Ip.ForwDatagrams", 100), ("Ip.OutTransmits", 100)];
    let drops = vec![drop("NETFILTER_DROP", "nft_do_chain", 3, 40)];
    let report = closed(&interval(vec![interface(2, 100, 0), interface(3, 0, 60)], &counters, drops));
    assert_eq!((report.receive.lost, report.transmit.lost), (0, 40));
    // At the output hook of a host that forwards nothing.
    let counters = [("Ip.OutRequests", 100), ("Ip.OutTransmits", 60)];
    let drops = vec![drop("NETFILTER_DROP", "nft_do_chain", 0, 40)];
    let report = closed(&interval(vec![interface(3, 0, 60)], &counters, drops));
    assert_eq!((report.receive.lost, report.transmit.lost), (0, 40));
}

#[test]
fn segments_that_gro_joined_are_explained_as_far_as_ip_saw_them() {
    let counters = [("Ip.InReceives", 10), ("IpExt.InNoECTPkts", 100), ("Ip.InDelivers", 10), ("Tcp.InSegs", 10)];
    let books = closed(&interval(vec![interface(2, 100, 0)], &counters, vec![]));
    let joined = books.receive.delivered.iter().find(|e| e.what.contains("GRO")).map(|e| e.packets);
    assert_eq!(joined, Some(90));
    // Ten more frames than IP can account for stay unexplained.
    let books = report(&interval(vec![interface(2, 110, 0)], &counters, vec![]), Head::default());
    assert_eq!(books.unexplained, 10);
}

#[test]
fn xdp_verdicts_and_failed_redirects() {
    let mut entry = interface(2, 1_000, 0);
    entry.kind = "veth".into();
    entry.napi = true;
    entry.xdp.native = true;
    entry.stats.rx_dropped = 30; // veth counts failed redirects there
    entry.xdp.done = Some(XdpDone { dropped: 500, redirected: 400, ..XdpDone::default() });
    let counters = [("Ip.InReceives", 70), ("Ip.InDelivers", 70)];
    // What the driver drops on a verdict, the trace sees as well.
    let drops = vec![drop("NOT_SPECIFIED", "veth_xdp_rcv_skb", 2, 530)];
    let mut interval = interval(vec![entry, interface(3, 0, 360)], &counters, drops);
    let failed = XdpFailure { ifindex: 2, words: "redirect failed".into(), packets: 30, ..XdpFailure::default() };
    let refused = XdpFailure {
        ifindex: 2,
        target: 3,
        words: "refused".into(),
        after_redirect: true,
        packets: 40,
        ..XdpFailure::default()
    };
    interval.trace.xdp_losses = vec![failed, refused];
    let report = closed(&interval);
    assert_eq!(report.lost, 570);
    assert_eq!(loss(&report, "xdp").packets, 500);
    assert!(report.receive.delivered.iter().any(|e| e.handed_over && e.packets == 360), "{report:#?}");
}

/// Drops of this program's own shield are not reported as a stranger's.
#[test]
fn the_shield_is_named() {
    let mut entry = interface(2, 1000, 0);
    (entry.xdp.native, entry.xdp.name) = (true, "ek_shield".into());
    entry.xdp.done = Some(XdpDone { dropped: 500, program: Some(7), ..XdpDone::default() });
    let interval = interval(vec![entry], &[("Ip.InReceives", 500), ("Ip.InDelivers", 500)], vec![]);
    let report = report(&interval, Head::default());
    let loss = loss(&report, "xdp");
    assert_eq!((loss.packets, loss.kind), (500, LossKind::Intended));
    assert!(loss.advice.as_deref().is_some_and(|a| a.contains("`evenkeel shield status eth2`")), "{loss:?}");
}

#[test]
fn virtio_counts_what_xdp_dropped_among_its_drops() {
    let mut entry = interface(2, 1_000, 0);
    entry.xdp.native = true;
    // 500 by verdict, 30 redirects and 10 of XDP_TX that failed, 50 by the driver itself.
    entry.stats.rx_dropped = 590;
    entry.xdp.done = Some(XdpDone { dropped: 540, redirected: 430, tx: 10, nested: true, ..XdpDone::default() });
    let counters = [("Ip.InReceives", 10), ("Ip.InDelivers", 10)];
    let mut interval = interval(vec![entry, interface(3, 0, 400)], &counters, vec![]);
    let failed = |tracepoint: &str, packets| XdpFailure {
        ifindex: 2,
        words: tracepoint.into(),
        tracepoint: tracepoint.into(),
        packets,
        ..XdpFailure::default()
    };
    interval.trace.xdp_losses = vec![failed("xdp_redirect_err", 30), failed("xdp_exception", 10)];
    let report = closed(&interval);
    assert_eq!((report.lost, report.delivered), (590, 410));
    assert_eq!(loss(&report, "nic").packets, 50);
    assert_eq!(loss(&report, "xdp").packets, 500);
}

#[test]
fn a_backlog_counts_before_a_veth_does() {
    let mut entry = interface(2, 600, 0);
    entry.kind = "veth".into();
    entry.stats.rx_dropped = 400;
    let counters = [("Ip.InReceives", 600), ("Ip.InDelivers", 600)];
    let report = closed(&interval(vec![entry], &counters, vec![drop("CPU_BACKLOG", "enqueue_to_backlog", 2, 400)]));
    assert_eq!((report.offered, loss(&report, "softnet").packets), (1_000, 400));
    // Behind a driver with NAPI (RPS) the packets had been counted.
    let mut entry = interface(2, 1_000, 0);
    entry.stats.rx_dropped = 400;
    let report = closed(&interval(vec![entry], &counters, vec![drop("CPU_BACKLOG", "enqueue_to_backlog", 2, 400)]));
    assert_eq!((report.offered, loss(&report, "softnet").packets), (1_000, 400));
}

#[test]
fn lost_copies_stand_beside_the_books() {
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 100), ("Udp.InDatagrams", 100)];
    let mut interval = interval(vec![interface(2, 100, 0)], &counters, vec![]);
    interval.rings_known = true;
    let ring = SocketLoss { packet: true, packets: 60, process: Some("tcpdump[9]".into()), ..SocketLoss::default() };
    interval.sockets = vec![ring];
    let report = closed(&interval);
    assert_eq!((report.offered, report.delivered, report.lost, report.copies_lost), (100, 100, 0, 60));
    let copies = loss(&report, "taps");
    assert_eq!((copies.kind, copies.packets), (LossKind::Copy, 60));
    assert_eq!(copies.causes[0].process.as_deref(), Some("tcpdump[9]"));
}

#[test]
fn segments_that_did_their_work_are_no_losses_and_unread_data_is() {
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 100), ("Tcp.InSegs", 100), ("TcpExt.TCPAbortOnClose", 2)];
    let of = |reason, function, kind, packets| Drop { kind, ..drop(reason, function, 2, packets) };
    let drops = vec![
        of("QUEUE_PURGE", "sk_stream_kill_queues", DropKind::TcpFin, 30),
        of("NOT_SPECIFIED", "tcp_v4_rcv", DropKind::TcpReset, 20),
        of("NO_SOCKET", "tcp_v4_rcv", DropKind::TcpSyn, 10),
        of("QUEUE_PURGE", "sk_stream_kill_queues", DropKind::TcpData, 3),
    ];
    let report = closed(&interval(vec![interface(2, 100, 0)], &counters, drops));
    assert_eq!((report.lost, report.lost_unintended(), report.delivered), (5, 5, 95));
    let harmless: u64 = (report.stations.iter().flat_map(|s| &s.losses))
        .filter(|l| l.kind == LossKind::Harmless)
        .map(|l| l.packets)
        .sum();
    assert_eq!(harmless, 60);
}

#[test]
fn what_is_not_for_this_host_is_not_lost() {
    let counters = [("Ip6.InReceives", 70), ("Ip6.InDelivers", 50)];
    let mut entry = interface(2, 100, 0);
    entry.stats.rx_otherhost_dropped = 30;
    let other = drop("OTHERHOST", "ip_rcv_core", 2, 30);
    let group = Drop { protocol: 0x86dd, ..drop("NOT_SPECIFIED", "ip6_mc_input", 2, 20) };
    let report = closed(&interval(vec![entry], &counters, vec![other, group]));
    assert_eq!((report.offered, report.delivered, report.lost), (100, 100, 0));
    assert!(report.receive.delivered.iter().any(|e| e.what == "not for this host" && e.packets == 50), "{report:#?}");
}

#[test]
fn what_a_backup_link_refuses_is_not_lost() {
    let counters = [("Ip.InReceives", 70), ("Ip.InDelivers", 70)];
    for traced in [true, false] {
        let mut backup = interface(3, 100, 0);
        backup.stats.rx_nohandler = 30;
        let of = |ifindex, packets| drop("UNHANDLED_PROTO", "__netif_receive_skb_core", ifindex, packets);
        let unwanted = if traced { 5 } else { 0 };
        let mut interval = interval(vec![backup, interface(2, unwanted, 0)], &counters, vec![of(3, 30), of(2, 5)]);
        if !traced {
            interval.trace.drops = None;
        }
        let report = closed(&interval);
        let found = loss(&report, "ethernet");
        assert_eq!((report.lost, found.packets, found.kind), (unwanted, 30, LossKind::Harmless), "{report:#?}");
    }
}

#[test]
fn a_frame_that_its_handler_frees_is_counted_once() {
    let counters = [("Ip.InReceives", 500), ("Ip.InDelivers", 500), ("Tcp.InSegs", 500)];
    let mut interval = interval(vec![interface(2, 600, 0)], &counters, vec![]);
    interval.others = Some([(0x0004, 100)].into());
    let of = |function, packets| Drop {
        kind: DropKind::LinkLocal,
        protocol: 4,
        ..drop("NOT_SPECIFIED", function, 2, packets)
    };
    interval.trace.drops = Some(vec![of("stp_pdu_rcv", 60), of("llc_rcv", 40)]);
    let report = closed(&interval);
    assert_eq!((report.offered, report.delivered, report.lost), (600, 600, 0));
    let tcp = report.receive.delivered.iter().find(|e| e.what == "TCP").expect("an entry");
    assert_eq!(tcp.packets, 500, "they are not taken out of other protocols' packets");
}

#[test]
fn what_waits_for_a_neighbour_is_neither_delivered_nor_lost() {
    let counters = [("Ip.InReceives", 500), ("Ip.OutTransmits", 500)];
    let mut first = interval(vec![interface(2, 500, 0), interface(3, 0, 0)], &counters, vec![]);
    first.room.neighbours = 300;
    first.trace.drops = Some(vec![drop("NEIGH_QUEUEFULL", "__neigh_event_send", 3, 244)]);
    let report = closed(&first);
    assert_eq!((report.delivered, report.waiting, report.lost), (0, 256, 244));
    // They are given up in the next.
    let drops = vec![drop("NEIGH_FAILED", "arp_error_report", 3, 256)];
    let report = closed(&interval(vec![interface(2, 0, 0), interface(3, 0, 0)], &[("Ip.InReceives", 0)], drops));
    assert_eq!((report.offered, report.waiting, report.lost), (256, 0, 256));
}

#[test]
fn a_rule_is_not_given_what_another_dropped() {
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 70)];
    let mut interval =
        interval(vec![interface(2, 100, 0)], &counters, vec![drop("NETFILTER_DROP", "nf_hook_slow", 2, 30)]);
    let rule = |rule: &str, packets| RuleLoss {
        hook: "input".into(),
        family: "ip".into(),
        chain: "filter/input".into(),
        rule: rule.into(),
        packets,
        ..RuleLoss::default()
    };
    interval.netfilter.rules = vec![rule("udp dport 7 counter drop", 20), rule("udp dport 9 counter drop", 10)];
    let report = closed(&interval);
    assert_eq!((report.lost, report.intended, report.lost_unintended()), (30, 30, 0));
    let losses = &report.stations.iter().find(|s| s.name == "netfilter").expect("losses").losses;
    assert!(losses.iter().all(|l| l.traced.is_none() && l.agrees && l.kind == LossKind::Intended), "{losses:#?}");
    // Without a counter the only rule that can have done it is named.
    interval.netfilter.rules.clear();
    let of_ipv6 = RuleLoss { family: "ip6".into(), ..rule("udp dport 8 drop", 0) };
    interval.netfilter.uncounted = vec![rule("udp dport 7 drop", 0), of_ipv6];
    let report = closed(&interval);
    let advice = loss(&report, "netfilter").advice.clone().unwrap_or_default();
    assert!(advice.contains("udp dport 7 drop") && advice.contains("nft -a list chain ip filter input"), "{advice}");
}

#[test]
fn details_belong_to_the_place_of_their_drops() {
    let flow = |source: [u8; 4]| DropFlow {
        source: source.into(),
        destination: [198, 18, 0, 2].into(),
        source_port: 0,
        destination_port: 7001,
        protocol: 17,
    };
    let counters = [("Ip.InReceives", 30), ("Ip.InDelivers", 30), ("Udp.NoPorts", 30)];
    let lost = Drop { last: Some(flow([198, 18, 0, 1])), ..drop("NO_SOCKET", "__udp4_lib_rcv", 2, 30) };
    let mut interval = interval(vec![interface(2, 30, 0)], &counters, vec![lost.clone()]);
    let detail = |source, packets| Detail {
        drop: Drop { last: Some(flow(source)), packets, ..lost.clone() },
        bytes: vec![0x45, 0],
        stack: vec!["__udp4_lib_rcv".into()],
        ..Detail::default()
    };
    let other = Detail { drop: drop("IP_CSUM", "ip_rcv_core", 2, 99), ..Detail::default() };
    interval.trace.details = vec![detail([198, 18, 0, 1], 20), detail([198, 18, 0, 3], 10), other];
    let report = closed(&interval);
    let loss = loss(&report, "udp");
    assert!(loss.advice.as_ref().is_some_and(|a| a.contains("UDP 198.18.0.2:7001")), "{loss:#?}");
    let details = loss.details.as_ref().expect("details");
    assert_eq!((details.targets.len(), details.targets[0].packets), (1, 30));
    assert_eq!((details.sources[0].what.as_str(), details.sources[0].packets), ("198.18.0.1", 20));
    assert_eq!((details.stack.len(), details.sample.as_ref().map(|s| s.hex.as_str())), (1, Some("4500")));
}

#[test]
fn a_bridge_hands_on_what_it_does_not_keep() {
    let mut port = interface(2, 100, 0);
    port.bridge_port = true;
    let mut other = interface(3, 0, 70);
    other.bridge_port = true;
    let mut bridge = interface(4, 20, 0);
    (bridge.kind, bridge.stacked) = ("bridge".into(), true);
    let counters = [("Ip.InReceives", 20), ("Ip.InDelivers", 20)];
    let drops = vec![drop("BRIDGE_INGRESS_STP_STATE", "br_handle_frame", 2, 10)];
    let report = closed(&interval(vec![port, other, bridge], &counters, drops));
    assert_eq!((report.offered, report.lost), (100, 10));
    assert!(report.receive.delivered.iter().any(|e| e.what == "forwarded by a bridge" && e.packets == 70));
}

#[test]
fn without_the_trace_the_counters_still_show() {
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 90), ("Ip.InHdrErrors", 10), ("Udp.NoPorts", 5)];
    let mut interval = interval(vec![interface(2, 100, 0)], &counters, vec![]);
    interval.trace.drops = None;
    let report = closed(&interval);
    assert_eq!(report.lost, 15);
    assert!(loss(&report, "ip").place.contains("or TTL expired"), "without the trace they cannot be told apart");
}

#[test]
fn what_is_missing_is_reported() {
    let counters = [("Ip.InReceives", 90), ("Ip.InDelivers", 80)];
    let report = report(&interval(vec![interface(2, 100, 0)], &counters, vec![]), Head::default());
    assert_eq!((report.unexplained, report.lost), (20, 0));
    assert!(!report.is_quiet());
}

#[test]
fn what_leaves_ip_is_counted_after_postrouting_and_cutting() {
    // Linux 6.7: of 100 forwarded packets 30 die at the last hook, 70 are cut in two.
    let counters = [("Ip.InReceives", 100), ("Ip.OutTransmits", 140), ("Ip.FragCreates", 140), ("Ip.FragOKs", 70)];
    let rule = RuleLoss { hook: "postrouting".into(), family: "ip".into(), packets: 30, ..RuleLoss::default() };
    let mut interval = interval(vec![interface(2, 100, 0), interface(3, 0, 140)], &counters, vec![]);
    interval.netfilter.rules = vec![rule.clone()];
    interval.trace.drops = None;
    let report = closed(&interval);
    assert_eq!((report.lost, report.receive.lost, report.delivered), (30, 0, 140));
    assert_eq!((report.receive.unexplained, report.transmit.unexplained), (0, 0));
    // Before 6.7 forwarded packets are counted ahead of both, and as requests once more.
    let counters = [
        ("Ip.InReceives", 100),
        ("Ip.ForwDatagrams", 100),
        ("Ip.OutRequests", 100),
        ("Ip.FragCreates", 140),
        ("Ip.FragOKs", 70),
    ];
    let mut earlier = self::interval(vec![interface(2, 100, 0), interface(3, 0, 140)], &counters, vec![]);
    (earlier.netfilter.rules, earlier.trace.drops) = (vec![rule], None);
    earlier.protocols.all.remove("Ip.OutTransmits");
    let report = closed(&earlier);
    assert_eq!((report.lost, report.receive.unexplained, report.transmit.unexplained), (30, 0, 0));
}

#[test]
fn a_router_before_linux_6_7_closes() {
    // Seen on Debian 12's 6.1: 1000 packets forwarded, 4 of its own, 40 without a route.
    let counters =
        [("Ip.InReceives", 1040), ("Ip.ForwDatagrams", 1000), ("Ip.OutRequests", 1004), ("IpExt.InNoRoutes", 40)];
    let mut interval = interval(
        vec![interface(2, 1040, 4), interface(3, 0, 1000)],
        &counters,
        vec![drop("IP_INNOROUTES", "ip_error", 2, 40)],
    );
    interval.protocols.all.remove("Ip.OutTransmits");
    let report = closed(&interval);
    assert_eq!((report.lost, report.unexplained), (40, 0));
    let sent = report.transmit.offered.iter().find(|entry| entry.counter == "OutRequests").unwrap();
    assert_eq!(sent.packets, 4);
    // IPv6 counts its own packets alone there.
    let counters = [("Ip6.InReceives", 500), ("Ip6.OutForwDatagrams", 500), ("Ip6.OutRequests", 7)];
    let mut interval = self::interval(vec![interface(2, 500, 7), interface(3, 0, 500)], &counters, vec![]);
    interval.protocols.all.remove("Ip.OutTransmits");
    assert_eq!(closed(&interval).unexplained, 0);
}

#[test]
fn fragments_of_an_earlier_interval_expire() {
    let drops = vec![drop("FRAG_REASM_TIMEOUT", "ip_expire", 2, 50)];
    let report = closed(&interval(vec![interface(2, 0, 0)], &[("Ip.InReceives", 0)], drops));
    assert_eq!((report.lost, report.unexplained, report.receive.unexplained), (50, 0, 0));
}

#[test]
fn a_device_without_a_queue_drops_once() {
    let mut exit = interface(3, 0, 0);
    exit.stats.tx_dropped = 100;
    exit.qdisc = Some(QdiscDone { kind: "noqueue".into(), ..QdiscDone::default() });
    let counters = [("Ip.InReceives", 100), ("Ip.OutTransmits", 100)];
    let drops = vec![drop("QDISC_DROP", "__dev_queue_xmit", 3, 100)];
    let report = closed(&interval(vec![interface(2, 100, 0), exit], &counters, drops));
    assert_eq!((report.lost, report.offered, loss(&report, "transmit").packets), (100, 100, 100));
}

/// Frames that `evenkeel route` forwards are named by its own counters; frames that the output did not take are lost at a place of their own.
fn routed(forwarded: u64, handed: u64) -> Option<Routed> {
    Some(Routed { forwarded, handed })
}

#[test]
fn what_is_lost_between_cpus_is_lost_once_and_what_comes_back_is_not() {
    let mut entry = interface(2, 1_000, 0);
    entry.xdp.native = true;
    // Of 900 that were handed on 70 found no room, 5 no memory, 625 were forwarded, of which 10 could not be sent, and 200 went up.
    entry.xdp.done = Some(XdpDone { redirected: 900, ..XdpDone::default() });
    entry.xdp.routed = routed(625, 900);
    let mut interval =
        interval(vec![entry, interface(3, 0, 615)], &[("Ip.InReceives", 300), ("Ip.InDelivers", 300)], vec![]);
    let lost = |tracepoint: &str, before_cpu, packets| XdpFailure {
        ifindex: 2,
        words: format!("{tracepoint} {before_cpu}"),
        tracepoint: tracepoint.into(),
        after_redirect: true,
        before_cpu,
        packets,
        ..XdpFailure::default()
    };
    interval.trace.xdp_losses = vec![
        lost("xdp_cpumap_enqueue", true, 70),
        lost("xdp_cpumap_kthread", true, 5),
        lost("xdp_cpumap_kthread", false, 10),
    ];
    let report = closed(&interval);
    let forwarded = report.receive.delivered.iter().find(|e| e.what.contains("evenkeel's fast path"));
    assert_eq!((report.lost, forwarded.map(|e| e.packets)), (85, Some(615)), "{report:#?}");
    let station = report.stations.iter().find(|s| s.name == "xdp").expect("a station");
    let advised = |l: &&StationLoss| l.advice.as_deref().is_some_and(|advice| advice.contains("`evenkeel route cpus`"));
    assert_eq!((station.losses.len(), station.losses.iter().filter(advised).count()), (3, 2), "{station:#?}");
}

#[test]
fn the_fast_path_has_places_of_its_own() {
    let refused = XdpFailure {
        ifindex: 2,
        target: 3,
        words: "XDP redirect refused by the device".into(),
        tracepoint: "xdp_devmap_xmit".into(),
        after_redirect: true,
        packets: 40,
        ..XdpFailure::default()
    };
    let named = |report: &LedgerReport, what: &str| {
        let found = report.receive.delivered.iter().find(|e| e.what.contains(what));
        found.map_or(0, |e| e.packets)
    };
    let counters = [("Ip.InReceives", 100), ("Ip.InDelivers", 100)];
    // Native: the driver counts redirects, of which another program did 60. Generic: nobody counts them but the fast path itself.
    for generic in [false, true] {
        let mut entry = interface(2, 1_000, 0);
        (entry.xdp.native, entry.xdp.generic, entry.xdp.routed) =
            (!generic, generic, routed(if generic { 900 } else { 840 }, 0));
        entry.xdp.done = (!generic).then(|| XdpDone { redirected: 900, ..XdpDone::default() });
        let mut interval = interval(vec![entry, interface(3, 0, 860)], &counters, vec![]);
        interval.trace.xdp_losses = vec![refused.clone()];
        let report = closed(&interval);
        let routed = named(&report, "evenkeel's fast path");
        assert_eq!((report.lost, routed), (40, if generic { 860 } else { 800 }), "{report:#?}");
        assert_eq!(named(&report, "redirected by XDP to an interface"), if generic { 0 } else { 60 });
        let place = &loss(&report, "xdp").place;
        assert!(place.contains("fast path") && place.contains("eth3"), "{place}");
    }
}
