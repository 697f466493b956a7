//! Does the turns, round by round: in each every number of nodes, exchange and carrier has its turn. Then fits the model.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use model::{
    run::Machine,
    speedup::{Exchange, Fitting, LinkSpeedup, Point, Series, Times, between, fitted},
};
use rig::{
    others::Watch,
    progress::{self, Progress},
    repeat::{median, sorted},
};

use super::{
    SpeedupError,
    between::Machines,
    cluster::{Cluster, Step},
    mesh::{Halt, Mesh},
    native,
    plan::{By, Plan, Turn},
    tcp,
};
use crate::{apart::Reach, bridged::Bridged};

/// Does what was planned; nothing if it was stopped.
///
/// # Errors
/// The lab, or a carrier that should work here.
pub fn carry_out(
    plan: &Plan,
    machine: Machine,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Option<LinkSpeedup>, SpeedupError> {
    let (when, load_average) = (rig::machine::now(), rig::machine::load_average());
    let others = Watch::start(0..machine.cpus);
    match measure(plan, stop, progress) {
        Err(SpeedupError::Stopped) => Ok(None),
        Err(other) => Err(other),
        Ok(measured) => {
            let notes = notes(plan, &lab(machine.cpus));
            found(plan, (when, machine, load_average, others.warning()), Vec::new(), notes, &measured).map(Some)
        }
    }
}

/// The same on machines: this one at `interface`, and the others. Each is reached as `all` says, in their order, this one first.
///
/// # Errors
/// A machine, or a carrier that should work there.
pub fn carry_out_between(
    plan: &Plan,
    interface: &str,
    all: Vec<Reach>,
    machine: Machine,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Option<LinkSpeedup>, SpeedupError> {
    if all.len() < plan.most() as usize {
        return Err(SpeedupError::Machines(all.len() as u32, plan.most()));
    }
    let (when, load_average) = (rig::machine::now(), rig::machine::load_average());
    let others = Watch::start(0..machine.cpus);
    let mut machines = Machines::start(interface, machine.clone(), all, plan)?;
    let turn = |turn| if stop.load(Ordering::Relaxed) { Err(SpeedupError::Stopped) } else { machines.turn(plan, turn) };
    let measured = match rounds(plan, progress, turn) {
        Err(SpeedupError::Stopped) => return Ok(None),
        other => other?,
    };
    let nodes = machines.machines();
    let notes = notes(plan, &apart(&nodes));
    found(plan, (when, machine, load_average, others.warning()), nodes, notes, &measured).map(Some)
}

/// What the steps of each turn, round by round, say.
fn found(
    plan: &Plan,
    (when, machine, load_average, disturbed): (String, Machine, f64, Option<String>),
    nodes: Vec<Machine>,
    notes: Vec<String>,
    measured: &[Vec<Step>],
) -> Result<LinkSpeedup, SpeedupError> {
    let mut series = Vec::new();
    for &exchange in &plan.asked.exchanges {
        for &by in &plan.asked.carriers {
            series.push(series_of(plan, by, exchange, measured)?);
        }
    }
    beside_tcp(&mut series);
    Ok(LinkSpeedup {
        when,
        machine,
        disturbed,
        nodes,
        load_average,
        rounds: plan.asked.rounds,
        steps: plan.asked.steps,
        step_s: plan.asked.step.as_secs_f64(),
        serial_share: plan.asked.serial_share,
        bytes: plan.asked.bytes,
        series,
        notes,
    })
}

/// The steps of each turn, round by round.
fn measure(plan: &Plan, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Vec<Vec<Step>>, SpeedupError> {
    let failed = AtomicBool::new(false);
    let halt = Halt { stop, failed: &failed };
    let mut beds = Vec::new();
    for &by in &plan.asked.carriers {
        beds.push((by, Bridged::new(&format!("speedup{}", by.key()), plan.most())?));
    }
    thread::scope(|scope| {
        let mut clusters = Vec::new();
        for (by, bed) in &beds {
            let nodes: Vec<Box<dyn Mesh>> = match by {
                By::Link => boxed(native::nodes(bed, plan.asked.bytes)?),
                By::Tcp => boxed(tcp::nodes(bed, plan.asked.bytes)?),
            };
            clusters.push(Cluster::start(scope, *by, nodes, halt));
        }
        rounds(plan, progress, |turn| do_turn(&clusters, plan, turn, stop))
    })
}

/// Does the turns of each round; the steps of each turn, round by round.
fn rounds(
    plan: &Plan,
    progress: &mut dyn Progress,
    mut turn: impl FnMut(Turn) -> Result<Step, SpeedupError>,
) -> Result<Vec<Vec<Step>>, SpeedupError> {
    let mut measured = vec![Vec::new(); plan.turns.len()];
    let of = plan.turns.len() * plan.asked.rounds as usize;
    // What is first in a series meets caches and memory that nobody used yet.
    for &one in &plan.turns {
        turn(one)?;
    }
    let began = Instant::now();
    for round in 0..plan.asked.rounds as usize {
        for (at, &one) in plan.turns.iter().enumerate() {
            let done = round * plan.turns.len() + at;
            if at == 0 {
                let left_s = (done > 0).then(|| began.elapsed().as_secs_f64() * (of - done) as f64 / done as f64);
                let name = format!("round {} of {}", round + 1, plan.asked.rounds);
                progress.begin(&progress::Step { name, number: done + 1, of, left_s });
            }
            measured[at].push(turn(one)?);
        }
    }
    Ok(measured)
}

fn boxed(nodes: Vec<impl Mesh + 'static>) -> Vec<Box<dyn Mesh>> {
    nodes.into_iter().map(|node| Box::new(node) as Box<dyn Mesh>).collect()
}

fn do_turn(clusters: &[Cluster], plan: &Plan, turn: Turn, stop: &AtomicBool) -> Result<Step, SpeedupError> {
    match clusters.iter().find(|cluster| cluster.by == turn.by) {
        Some(cluster) if !stop.load(Ordering::Relaxed) => cluster.turn(plan, turn),
        _ => Err(SpeedupError::Stopped),
    }
}

fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    median(&sorted(values)).unwrap_or(0.0)
}

/// The points of a carrier and an exchange, and the model of them.
fn series_of(plan: &Plan, by: By, exchange: Exchange, measured: &[Vec<Step>]) -> Result<Series, SpeedupError> {
    let rows = plan.turns.iter().zip(measured).filter(|(turn, _)| turn.by == by && turn.exchange == exchange);
    let rows: Vec<(u32, &Vec<Step>)> = rows.map(|(turn, steps)| (turn.nodes, steps)).collect();
    let nodes: Vec<u32> = rows.iter().map(|row| row.0).collect();
    let rounds: Vec<Vec<f64>> = (0..plan.asked.rounds as usize)
        .map(|round| rows.iter().map(|(_, steps)| steps[round].seconds).collect())
        .collect();
    let times = fitted(&nodes, &rounds)?;
    let point = |&(nodes, steps): &(u32, &Vec<Step>)| {
        let seconds = middle(steps.iter().map(|step| step.seconds));
        let fitted_s = times.seconds(nodes);
        Point {
            nodes,
            rounds_s: steps.iter().map(|step| step.seconds).collect(),
            seconds,
            exchange_rounds_s: steps.iter().map(|step| step.exchange_s).collect(),
            exchange_s: middle(steps.iter().map(|step| step.exchange_s)),
            exchange_over_tcp: None,
            speedup: times.alone_s() / seconds,
            fitted_s,
            residual: (seconds - fitted_s) / fitted_s,
        }
    };
    let points = rows.iter().map(point).collect();
    Ok(Series { by: by.key().into(), exchange, points, fitting: fitting(times, &nodes, &rounds)? })
}

fn fitting(times: Times, nodes: &[u32], rounds: &[Vec<f64>]) -> Result<Fitting, SpeedupError> {
    let (law, misfit) = match times.law() {
        Ok(law) => (Some(law), None),
        Err(misfit) => (None, Some(misfit.to_string())),
    };
    Ok(Fitting {
        divided_s: times.divided_s,
        serial_s: times.serial_s,
        square_s: times.square_s,
        best_nodes: law.and_then(|law| law.best_nodes()),
        greatest: law.and_then(|law| law.greatest()),
        law,
        misfit,
        estimate: between(nodes, rounds)?,
    })
}

/// Lays each exchange beside TCP's of the same round.
fn beside_tcp(series: &mut [Series]) {
    let tcp: Vec<Series> = series.iter().filter(|row| row.by == By::Tcp.key()).cloned().collect();
    for row in series.iter_mut().filter(|row| row.by != By::Tcp.key()) {
        let Some(tcp) = tcp.iter().find(|tcp| tcp.exchange == row.exchange) else { continue };
        for (ours, theirs) in row.points.iter_mut().zip(&tcp.points).filter(|(ours, _)| ours.nodes > 1) {
            let both = ours.exchange_rounds_s.iter().zip(&theirs.exchange_rounds_s);
            let ratios = both.filter(|(_, tcp)| **tcp > 0.0).map(|(link, tcp)| link / tcp);
            ours.exchange_over_tcp = median(&sorted(ratios));
        }
    }
}

/// What the nodes of a lab are.
fn lab(cpus: u32) -> [String; 2] {
    [
        format!(
            "Nodes are network namespaces of this machine on one bridge, and share its {cpus} CPUs: computing is emulated by waiting, and what an exchange costs is cost of these \
             CPUs. Nodes on hardware of their own have other figures"
        ),
        "Each node is a thread that sleeps while it waits, for its computing and for the others: there can be more nodes than CPUs".into(),
    ]
}

/// What nodes on machines of their own are.
fn apart(nodes: &[Machine]) -> [String; 2] {
    let names = |(at, node): (usize, &Machine)| {
        format!("{} {} ({}, {} CPUs)", at + 1, node.hostname, node.cpu_model, node.cpus)
    };
    let all: Vec<String> = nodes.iter().enumerate().map(names).collect();
    [
        format!("Nodes are machines: {}. Computing is emulated by waiting", all.join("; ")),
        "Each node is a process that sleeps while it waits. A turn begins with a message of each to each, so the clocks of the machines need not agree".into(),
    ]
}

fn notes(plan: &Plan, nodes: &[String]) -> Vec<String> {
    let mut notes = nodes.to_vec();
    notes.extend([
        format!("A turn is {} steps; its time is that from the start of all nodes to the end of the last, over the steps", plan.asked.steps),
        "All-reduce: each node sends its values to each other one, N (N - 1) messages in all, and adds up those of all. Nearest neighbours: the nodes are a ring, and each sends to both sides. \
         Sums are checked in each step"
            .into(),
        "The model is T(N) = p/N + s + q N\u{b2} by least squares over the medians of the rounds, a = s/(p + s), n = q/(p + s); intervals are the 95 % percentiles of a bootstrap over the rounds".into(),
        "Speed-up is (p + s) of the fit over the time of a step: by the formula one node has 1/(1 + n)".into(),
    ]);
    if plan.asked.carriers.contains(&By::Link) {
        notes.push(
            "link: shared rings filled by XDP (native), MTU 1500; while a node computes, its engine receives, as the kernel does for TCP".into(),
        );
    }
    notes
}
