//! `spread` and `doctor` judge alike where the packet work belongs: after a plan that was carried out the doctor has nothing to say
//! of it, after the doctor's fix there is nothing to plan, and neither changes what it has made itself.

#[path = "placement/machine.rs"]
mod machine;

use doctor::{Diagnosis, Evidence, Selection, diagnose, fix_plan};
use host::{Host, Root, knob::Change, root::Tree};
use machine::{Card, Machine, carry_out, unpack};
use model::{CpuSet, doctor::Role};
use proptest::prelude::*;
use spread::{Options, plan};

/// The checks that are about places.
const PLACES: [&str; 4] = ["queue-irqs", "far-node", "rps", "xps"];

fn root(tree: &Tree) -> Root {
    Root::from_tree(tree.clone())
}

/// What spread would change; nothing where it has nothing to place at all.
fn planned(tree: &Tree) -> Vec<Change> {
    plan(&Host::read(&root(tree)).unwrap(), &Options::default()).map_or_else(|_| Vec::new(), |p| p.plan.changes)
}

fn examined(tree: &Tree) -> (Diagnosis, Selection) {
    let only = Selection::parse(&PLACES.map(str::to_owned)).unwrap();
    let evidence = Evidence::gather(&root(tree), Some(Role::Server)).unwrap();
    (diagnose(&evidence, &only), only)
}

fn findings(tree: &Tree) -> Vec<String> {
    let found = examined(tree).0.report.findings.into_iter().filter(|f| f.verdict.is_finding());
    found.map(|f| format!("{} {:?}: {:?} {}", f.check, f.object, f.evidence, f.reason)).collect()
}

/// Both ways round on one machine.
fn they_agree(tree: &Tree) -> Result<(), String> {
    let changes = planned(tree);
    let mut spread = tree.clone();
    carry_out(&mut spread, &changes);
    let again = planned(&spread);
    if !again.is_empty() {
        return Err(format!("spread changes what it made: {again:?}\nfirst: {changes:?}"));
    }
    let complaints = findings(&spread);
    if !complaints.is_empty() {
        return Err(format!("the doctor finds fault with the plan: {complaints:#?}"));
    }
    let (examined, all) = examined(tree);
    let fixes = fix_plan(&examined, &all);
    let mut fixed = tree.clone();
    carry_out(&mut fixed, &fixes.changes);
    let left = findings(&fixed);
    if !left.is_empty() {
        return Err(format!("the doctor finds fault with its fix: {left:#?}\nfixes: {:?}", fixes.changes));
    }
    let undone = planned(&fixed);
    if !undone.is_empty() {
        return Err(format!("spread changes the fix: {undone:?}\nfixes: {:?}", fixes.changes));
    }
    if changes.is_empty() != fixes.changes.is_empty() {
        return Err(format!("one has something to change, the other not: {changes:?} {:?}", fixes.changes));
    }
    Ok(())
}

#[test]
fn on_every_saved_machine() {
    for tar in testbed::fixtures() {
        they_agree(&unpack(&tar)).unwrap_or_else(|e| panic!("{}: {e}", tar.display()));
    }
}

/// The names of the interrupts of a driver with so many queues.
fn vectors(habit: u32, nic: u32, queues: u32) -> (&'static str, Vec<String>) {
    let many = |count: u32, name: &dyn Fn(u32) -> String| -> Vec<String> { (0..count).map(name).collect() };
    match habit {
        0 => ("ixgbe", [many(queues, &|q| format!("eth{nic}-TxRx-{q}")), vec![format!("eth{nic}")]].concat()),
        1 => {
            let both = [
                many(queues + 2, &|q| format!("virtio{nic}-input.{q}")),
                many(queues + 2, &|q| format!("virtio{nic}-output.{q}")),
            ];
            ("virtio_net", [vec![format!("virtio{nic}-config")], both.concat()].concat())
        }
        2 => ("atlantic", vec![format!("eth{nic}"); queues as usize + 1]),
        3 => (
            "mlx5_core",
            [vec!["mlx5_async0@pci".to_owned()], many(queues + 3, &|q| format!("mlx5_comp{q}@pci"))].concat(),
        ),
        4 => ("bnxt_en", vec!["enp129s0f0np0-Tx".to_owned(); queues as usize]),
        5 => ("novel", many(queues / 2 + 1, &|q| format!("frob-{}", char::from(b'a' + q as u8 % 26)))),
        6 => ("sfc", many(queues, &|q| format!("eth{nic}-{q}"))),
        7 => ("hv_netvsc", Vec::new()),
        8 => (
            "igb",
            [many(queues, &|q| format!("eth{nic}-rx-{q}")), many(queues, &|q| format!("eth{nic}-tx-{q}"))].concat(),
        ),
        _ => ("ixgbe", vec![String::new(); queues as usize]),
    }
}

prop_compose! {
    /// A set of the machine's CPUs, perhaps empty.
    fn some_cpus(count: u32)(cpus in prop::collection::btree_set(0..count, 0..=count.min(6) as usize)) -> CpuSet {
        cpus.into_iter().collect()
    }
}

fn card(cpus: u32, nodes: u32, nic: u32) -> impl Strategy<Value = Card> {
    let affinity = prop_oneof![
        2 => Just(((0..cpus).collect::<CpuSet>(), CpuSet::single(0))),
        3 => (0..cpus).prop_map(|cpu| (CpuSet::single(cpu), CpuSet::single(cpu))),
        1 => (some_cpus(cpus), 0..cpus).prop_map(|(set, cpu)| (set.union(&CpuSet::single(cpu)), CpuSet::single(cpu))),
    ];
    let queues = (0u32..10, 1u32..12, prop::option::weighted(0.2, 1u32..4));
    let shape = (queues, prop::option::of(0..nodes), prop::bool::weighted(0.9));
    let steering = (
        prop::option::weighted(0.8, prop::collection::vec(some_cpus(cpus), 1..4)),
        prop::collection::vec(some_cpus(cpus), 0..3),
        prop::option::weighted(0.2, Just((0..cpus).collect::<CpuSet>())),
    );
    let irqs =
        (prop::collection::vec(affinity, 1..8), prop::collection::vec(0u32..12, 0..2), prop::bool::weighted(0.15));
    (shape, irqs, steering).prop_map(
        move |(((habit, queues, other), node, up), (affinities, managed, keeps), (xps, rps, threads))| {
            let (driver, vectors) = vectors(habit, nic, queues);
            let managed = if keeps { managed } else { Vec::new() };
            Card {
                driver,
                up,
                node,
                rx: queues,
                tx: other.unwrap_or(queues),
                vectors,
                affinities,
                managed,
                xps,
                rps,
                threads,
            }
        },
    )
}

fn machine() -> impl Strategy<Value = Machine> {
    let shape = (1u32..5, 1u32..6, 1u32..3);
    shape.prop_flat_map(|(nodes, cores, threads)| {
        let count = nodes * cores * threads;
        let cards = (0..3u32).map(|nic| card(count, nodes, nic)).collect::<Vec<_>>();
        let distances = prop::collection::vec(prop::sample::select(vec![12u32, 21, 32]), (nodes * nodes) as usize);
        (cards, 1usize..4, some_cpus(count), some_cpus(count), prop::bool::weighted(0.3), distances, any::<bool>())
            .prop_map(move |(mut cards, keep, offline, isolated, odd, distances, littles)| {
                cards.truncate(keep);
                let node = |cpu: u32| cpu / (cores * threads);
                let capacity = |cpu: u32| if littles && cpu / threads % 2 == 1 { 400 } else { 1024 };
                let distance =
                    |a: u32, b: u32| if a == b { 10 } else { distances[(a.min(b) * nodes + a.max(b)) as usize] };
                Machine {
                    cpus: (0..count).map(|cpu| (node(cpu), capacity(cpu))).collect(),
                    threads,
                    offline: if odd { offline.difference(&CpuSet::single(0)) } else { CpuSet::new() },
                    isolated: if odd { isolated } else { CpuSet::new() },
                    distances: (0..nodes).map(|a| (0..nodes).map(|b| distance(a, b)).collect()).collect(),
                    cards,
                }
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn on_machines_of_any_kind(machine in machine()) {
        let tree = machine.tree();
        they_agree(&tree).map_err(TestCaseError::fail)?;
    }

    /// Nothing goes to a CPU that is offline or isolated, queues are as even as they can be, and ports as wide.
    #[test]
    fn plans_are_even_and_wide(machine in machine()) {
        let root = Root::from_tree(machine.tree());
        let host = Host::read(&root).unwrap();
        let Ok(planned) = plan(&host, &Options::default()) else { return Ok(()) };
        let usable = host::placement::usable(&host);
        for change in planned.plan.changes.iter().filter(|c| matches!(c.knob, host::knob::Knob::IrqAffinity { .. })) {
            let cpus = change.knob.cpus(&change.new).unwrap();
            prop_assert!(cpus.len() == 1 && cpus.difference(&usable).is_empty(), "{:?}", change);
        }
        // On one node, where no place is given, each port is as wide as it can be.
        let free = machine.distances.len() == 1 && machine.cards.iter().all(|card| card.managed.is_empty());
        for nic in planned.nics.iter().filter(|_| free) {
            prop_assert_eq!(nic.cpus.len(), usable.len().min(nic.queues as usize), "{}", nic);
        }
    }
}

/// Cores of which one thread may do packet work come twice before the two threads of a whole core: a port that has a queue for
/// each CPU still gets each CPU once.
#[test]
fn a_port_is_wide_where_cores_are_halved() {
    let card = |nic: u32, queues: u32| Card {
        driver: "ixgbe",
        up: true,
        node: None,
        rx: queues,
        tx: queues,
        vectors: vectors(0, nic, queues).1,
        affinities: vec![((0..8).collect(), CpuSet::single(0))],
        managed: Vec::new(),
        xps: None,
        rps: Vec::new(),
        threads: None,
    };
    let machine = Machine {
        cpus: vec![(0, 1024); 8],
        threads: 2,
        offline: CpuSet::single(3),
        isolated: [2, 4].into_iter().collect(),
        distances: vec![vec![10]],
        cards: vec![card(0, 1), card(1, 5)],
    };
    let planned = plan(&Host::read(&Root::from_tree(machine.tree())).unwrap(), &Options::default()).unwrap();
    let widths: Vec<usize> = planned.nics.iter().map(|nic| nic.cpus.len()).collect();
    assert_eq!(widths, [1, 5]);
}
