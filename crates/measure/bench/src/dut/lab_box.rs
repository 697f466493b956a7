//! Boxes in namespaces.

use host::knob::{Knob, Live, Store};
use lab::{
    BoxKind, BoxSpec, Lab, TestBox,
    boxes::{Napi, Place, Ruleset, Target},
};
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
    run::Sharing,
};

use crate::BenchError;

use super::{Dut, DutKind, DutOptions, Identity, RING_FRAMES, TestPort};

/// Builds `kind` and says what it is.
pub(super) fn build(lab: &Lab, kind: DutKind, options: &DutOptions<'_>) -> Result<Dut, BenchError> {
    if kind.filters() && options.rules == 0 {
        return Err(BenchError::Setting("a filter has at least one rule, the one that accepts".into()));
    }
    let rules = |stateful| Ruleset { rules: options.rules, stateful, form: options.order.form() };
    let box_kind = match kind {
        DutKind::Wire => BoxKind::Wire,
        DutKind::Router => BoxKind::Router,
        DutKind::Stateful => BoxKind::Firewall(rules(true)),
        DutKind::Stateless => BoxKind::Firewall(rules(false)),
        DutKind::Bridge => BoxKind::Bridge,
        DutKind::XdpFib => BoxKind::XdpFib,
        DutKind::RouteStandard | DutKind::Route | DutKind::RouteRules | DutKind::RouteStateful | DutKind::RouteNat => {
            BoxKind::XdpRouter
        }
        DutKind::Nat => BoxKind::Firewall(rules(true)),
    };
    let cores = options.cores;
    // Apart or not: the work is done where frames come from, which is a receive ring's thread where the box has its own core.
    let threaded = options.threaded && cores.sharing() == Sharing::Apart;
    let napi = if threaded { Napi::Threads(cores.of_box.clone()) } else { Napi::Inline };
    let made = TestBox::build(lab, &BoxSpec { family: options.family, napi, ..BoxSpec::new(box_kind) })?;
    if kind.tracks().is_some() {
        consent(&made, kind, &rules(true))?;
    }
    let mut settings = made.settings()?;
    if cores.sharing() == Sharing::Apart && !threaded {
        settings.push(format!("receive rings of {RING_FRAMES} frames (CPU maps), their threads at nice -20"));
    }
    let second = cores.second().map(CpuSet::single);
    // Where the fast path forwards, it hands over itself: RPS would deal the flows a second time.
    let by_kernel = matches!(kind.fast_path(), None | Some(RouteMode::Standard));
    match &second {
        Some(second) if by_kernel => settings.extend(steer(&made, second)?),
        Some(second) => settings.push(format!("evenkeel route cpus {second}")),
        None => {}
    }
    let identity = Identity { key: kind.key().into(), name: kind.name().into(), what: what(kind, options), settings };
    let mut dut = adopt(made, identity)?;
    dut.tracks = kind.tracks();
    if let Some(mode) = kind.fast_path() {
        let rules = (kind == DutKind::RouteRules).then(|| rules(false));
        let cpus = second.filter(|_| !by_kernel).unwrap_or_default();
        dut.start_fast_path(mode, rules.as_ref(), &cpus)?;
    }
    // Without threads the receiving ends work where the box hands frames over, right behind each batch.
    let ends = (cores.sharing() == Sharing::Apart && !cores.receivers_share()).then_some(&cores.receiver);
    if let Some(ends) = ends {
        let [first, second] = dut.ports;
        let second = second.in_thread(ends[0])?;
        dut.ports = [first.in_thread(ends[1 % ends.len()])?, second];
    }
    Ok(dut)
}

/// Has `cpus` do what comes after receiving (RPS), on both ports of the box; what was set.
fn steer(made: &TestBox, cpus: &CpuSet) -> Result<Vec<String>, BenchError> {
    let Some(inside) = made.inside() else { return Ok(Vec::new()) };
    let set = || {
        [Some(&inside.entry), inside.exit.as_ref()].into_iter().flatten().try_for_each(|end| {
            let knob = Knob::RpsCpus { nic: end.name.clone(), queue: 0 };
            Live.write(&knob, &knob.cpus_value(cpus))
        })
    };
    inside.namespace.run(set)?.map_err(|e| BenchError::Machine(e.to_string()))?;
    Ok(["ENTRY", "EXIT"].map(|end| format!("{end} rx-0: rps_cpus = CPU {cpus}")).to_vec())
}

/// Rules like those of the filter, translation, and the mark by which connections take the fast path.
fn consent(made: &TestBox, kind: DutKind, rules: &Ruleset) -> Result<(), BenchError> {
    if kind != DutKind::Nat {
        made.load_rules(rules)?;
    }
    if kind.tracks() == Some(true) {
        made.translate_sources()?;
    }
    let Some(inside) = made.inside().filter(|_| kind.fast_path().is_some()) else { return Ok(()) };
    let mark = || Live.write(&Knob::MarkRules, &CtMark::default().to_string());
    inside.namespace.run(mark)?.map_err(|e| BenchError::Machine(e.to_string()))
}

/// Makes ports of the ends of `made`, and lets its work go before that of others: the sender's core belongs to the sender, so that
/// whatever else runs on a machine of two cores is with the box.
pub(super) fn adopt(made: TestBox, mut identity: Identity) -> Result<Dut, BenchError> {
    let (Some(receiver), Some(back)) = (made.receiver(), made.back()) else {
        return Err(BenchError::Setting("a box that ends frames cannot be benched: it has no second port".into()));
    };
    if let Napi::Threads(_) = made.spec().napi {
        let exit = made.inside().and_then(|i| Some((&i.namespace, i.exit.as_ref()?)));
        for (namespace, end) in [Some(made.entry()), exit].into_iter().flatten() {
            namespace.prefer_napi(&end.name)?;
        }
        identity.settings.push("NAPI threads at nice -20".into());
    }
    let ports = [port(made.sender(), made.target())?, port(receiver, back)?];
    Ok(Dut {
        identity,
        family: made.spec().family,
        ports,
        fast_path: None,
        tracks: None,
        made: Some(made),
        is_here: false,
        _held: None,
    })
}

fn port(place: &Place, target: Target) -> Result<TestPort, BenchError> {
    // NAPI stays, whatever program comes or goes: a receiver is attached at once, and a thread keeps its core.
    place.namespace.set_feature(&place.end.name, "rx-gro", true)?;
    Ok(TestPort::within(place.namespace.handle(), &place.end.name, place.end.mac, target))
}

fn what(kind: DutKind, options: &DutOptions<'_>) -> String {
    let filter = |how: &str| {
        format!("The kernel routes past {} rules of nftables, of which the last alone matches{how}.", options.rules)
    };
    match kind {
        DutKind::Wire => "The two ports are joined directly: what the tester itself can do.".into(),
        DutKind::Router => "The kernel routes, without a filter.".into(),
        DutKind::Stateful => filter(" and asks for the state of the connection, so that every flow is tracked"),
        DutKind::Stateless => filter(", without a look at connections"),
        DutKind::Bridge => "The kernel bridges, with both ports' addresses known.".into(),
        DutKind::XdpFib => {
            "An XDP program forwards by the kernel's routing table, before a socket buffer is made.".into()
        }
        DutKind::RouteStandard => {
            "The programs of `evenkeel route` are on both ports, in mode standard: the kernel routes.".into()
        }
        DutKind::RouteRules => format!(
            "`evenkeel route` forwards past {} stateless rules, all on each port, of which the last alone matches.",
            options.rules
        ),
        DutKind::RouteStateful => {
            filter(" and asks for the state of the connection; `evenkeel route` forwards those that are established")
        }
        DutKind::Nat => filter(" and asks for the state of the connection, and translates sources"),
        DutKind::RouteNat => filter(
            " and asks for the state of the connection, and translates sources; `evenkeel route` does so for those that are established",
        ),
        DutKind::Route => "`evenkeel route` forwards by the kernel's routing table and remembers each next hop.".into(),
    }
}
