//! Does the turns, round by round: in each every number of nodes, exchange and carrier has its turn. Then fits the model.

use std::{sync::atomic::AtomicBool, thread};

use model::{
    run::Machine,
    speedup::{Exchange, Fitting, LinkSpeedup, Point, Series, Times, between, fitted},
};
use rig::{
    experiment::{self, Control, End, Experiment, Facts, Planned},
    repeat::{median, middle},
};

use super::{
    MessagesError,
    between::Machines,
    cluster::{Cluster, Step},
    mesh::{Halt, Mesh},
    native,
    plan::{Plan, Transport, Trial},
    tcp,
};
use crate::{bridged::Bridged, remote::Reach};

enum Nodes {
    /// Namespaces of this machine, with the threads of each carrier.
    Here(Vec<Cluster>),
    Apart(Machines),
}

/// The trials of each round, and their times.
struct Rounds<'a> {
    plan: &'a Plan,
    nodes: Nodes,
    is_warm: bool,
    measured: Vec<Vec<Step>>,
}

/// Does what was planned; nothing if it was stopped.
pub fn carry_out(
    plan: &Plan,
    machine: Machine,
    control: &mut Control<'_>,
) -> Result<Option<LinkSpeedup>, MessagesError> {
    let failed = AtomicBool::new(false);
    let halt = Halt { stop: control.stop, failed: &failed };
    let mut beds = Vec::new();
    for &transport in &plan.options.carriers {
        beds.push((transport, Bridged::new(&format!("speedup{}", transport.key()), plan.most())?));
    }
    thread::scope(|scope| {
        let mut clusters = Vec::new();
        for (transport, bed) in &beds {
            let nodes: Vec<Box<dyn Mesh>> = match transport {
                Transport::Link => boxed(native::nodes(bed, plan.options.bytes)?),
                Transport::Tcp => boxed(tcp::nodes(bed, plan.options.bytes)?),
            };
            clusters.push(Cluster::start(scope, *transport, nodes, halt));
        }
        carry_out_on(Nodes::Here(clusters), plan, machine, control)
    })
}

/// The same on machines: this one at `interface`, and the others. Each is reached as `all` says, in their order, this one first.
pub fn carry_out_between(
    plan: &Plan,
    interface: &str,
    all: Vec<Reach>,
    machine: Machine,
    control: &mut Control<'_>,
) -> Result<Option<LinkSpeedup>, MessagesError> {
    if all.len() < plan.most() as usize {
        return Err(MessagesError::Machines(all.len() as u32, plan.most()));
    }
    let machines = Machines::start(interface, machine.clone(), all, plan)?;
    carry_out_on(Nodes::Apart(machines), plan, machine, control)
}

fn carry_out_on(
    nodes: Nodes,
    plan: &Plan,
    machine: Machine,
    control: &mut Control<'_>,
) -> Result<Option<LinkSpeedup>, MessagesError> {
    let rounds = Rounds { plan, nodes, is_warm: false, measured: vec![Vec::new(); plan.trials.len()] };
    let watched = (0..machine.cpus).collect();
    experiment::carry_out(rounds, machine, &watched, control)
}

impl Rounds<'_> {
    fn trials(&mut self, control: &Control<'_>) -> Result<Vec<Step>, MessagesError> {
        let one = |&trial: &Trial| match &mut self.nodes {
            _ if control.is_stopped() => Err(MessagesError::Stopped),
            Nodes::Apart(machines) => machines.trial(self.plan, trial),
            Nodes::Here(clusters) => {
                let cluster = clusters.iter().find(|cluster| cluster.transport == trial.transport);
                cluster.ok_or(MessagesError::Stopped)?.trial(self.plan, trial)
            }
        };
        self.plan.trials.iter().map(one).collect()
    }
}

impl Experiment for Rounds<'_> {
    type Step = u32;
    type Found = Option<LinkSpeedup>;
    type Error = MessagesError;

    fn plan(&self) -> Vec<Planned<u32>> {
        let seconds = Some(self.plan.round_s());
        (1..=self.plan.options.rounds).map(|step| Planned { step, seconds }).collect()
    }

    fn name(&self, round: &u32) -> Option<String> {
        Some(format!("round {round} of {}", self.plan.options.rounds))
    }

    fn build(&mut self, _: &u32, control: &mut Control<'_>) -> Result<(), MessagesError> {
        // What is first in a series meets caches and memory that nobody used yet.
        if !self.is_warm {
            self.trials(control)?;
        }
        self.is_warm = true;
        Ok(())
    }

    fn round(&mut self, _: &u32, control: &mut Control<'_>) -> Result<(), MessagesError> {
        let steps = self.trials(control)?;
        self.measured.iter_mut().zip(steps).for_each(|(all, step)| all.push(step));
        Ok(())
    }

    fn conclude(self, facts: Facts, end: End<MessagesError>) -> Result<Option<LinkSpeedup>, MessagesError> {
        let plan = self.plan;
        if !end.is_whole()? {
            return Ok(None);
        }
        let mut series = Vec::new();
        for &exchange in &plan.options.exchanges {
            for &transport in &plan.options.carriers {
                series.push(series_of(plan, transport, exchange, &self.measured)?);
            }
        }
        beside_tcp(&mut series);
        let nodes = match &self.nodes {
            Nodes::Here(_) => Vec::new(),
            Nodes::Apart(machines) => machines.machines(),
        };
        let about = if nodes.is_empty() { lab(facts.machine.cpus) } else { apart(&nodes) };
        Ok(Some(LinkSpeedup {
            timestamp: facts.timestamp,
            machine: facts.machine,
            disturbed: facts.disturbed,
            nodes,
            load_average: facts.load_average,
            rounds: plan.options.rounds,
            steps: plan.options.steps,
            step_s: plan.options.step.as_secs_f64(),
            serial_share: plan.options.serial_share,
            bytes: plan.options.bytes,
            series,
            notes: notes(plan, &about),
        }))
    }
}

fn boxed(nodes: Vec<impl Mesh + 'static>) -> Vec<Box<dyn Mesh>> {
    nodes.into_iter().map(|node| Box::new(node) as Box<dyn Mesh>).collect()
}

/// The points of a carrier and an exchange, and the model of them.
fn series_of(
    plan: &Plan,
    transport: Transport,
    exchange: Exchange,
    measured: &[Vec<Step>],
) -> Result<Series, MessagesError> {
    let rows = plan
        .trials
        .iter()
        .zip(measured)
        .filter(|(trial, _)| trial.transport == transport && trial.exchange == exchange);
    let rows: Vec<(u32, &Vec<Step>)> = rows.map(|(trial, steps)| (trial.nodes, steps)).collect();
    let nodes: Vec<u32> = rows.iter().map(|row| row.0).collect();
    let rounds: Vec<Vec<f64>> = (0..plan.options.rounds as usize)
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
            exchange_ratio_to_tcp: None,
            speedup: times.alone_s() / seconds,
            fitted_s,
            residual: (seconds - fitted_s) / fitted_s,
        }
    };
    let points = rows.iter().map(point).collect();
    Ok(Series { transport: transport.key().into(), exchange, points, fitting: fitting(times, &nodes, &rounds)? })
}

fn fitting(times: Times, nodes: &[u32], rounds: &[Vec<f64>]) -> Result<Fitting, MessagesError> {
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
    let tcp: Vec<Series> = series.iter().filter(|row| row.transport == Transport::Tcp.key()).cloned().collect();
    for row in series.iter_mut().filter(|row| row.transport != Transport::Tcp.key()) {
        let Some(tcp) = tcp.iter().find(|tcp| tcp.exchange == row.exchange) else { continue };
        for (ours, theirs) in row.points.iter_mut().zip(&tcp.points).filter(|(ours, _)| ours.nodes > 1) {
            let both = ours.exchange_rounds_s.iter().zip(&theirs.exchange_rounds_s);
            let ratios = both.filter(|(_, tcp)| **tcp > 0.0).map(|(link, tcp)| link / tcp);
            ours.exchange_ratio_to_tcp = median(ratios);
        }
    }
}

/// Notes on the nodes of a lab.
fn lab(cpus: u32) -> [String; 2] {
    [
        format!(
            "Nodes are network namespaces of this machine on one bridge, and share its {cpus} CPUs: computing is emulated by waiting, and what an exchange costs is cost of these \
             CPUs. Nodes on hardware of their own have other figures"
        ),
        "Each node is a thread that sleeps while it waits, for its computing and for the others: there can be more nodes than CPUs".into(),
    ]
}

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
        format!("A turn is {} steps; its time is that from the start of all nodes to the end of the last, over the steps", plan.options.steps),
        "All-reduce: each node sends its values to each other one, N (N - 1) messages in all, and adds up those of all. Nearest neighbours: the nodes are a ring, and each sends to both sides. \
         Sums are checked in each step"
            .into(),
        "The model is T(N) = p/N + s + q N\u{b2} by least squares over the medians of the rounds, a = s/(p + s), n = q/(p + s); intervals are the 95 % percentiles of a bootstrap over the rounds".into(),
        "Speed-up is (p + s) of the fit over the time of a step: by the formula one node has 1/(1 + n)".into(),
    ]);
    if plan.options.carriers.contains(&Transport::Link) {
        notes.push(
            "link: shared rings filled by XDP (native), MTU 1500; while a node computes, its engine receives, as the kernel does for TCP".into(),
        );
    }
    notes
}
