//! The steps of a run, round by round.

use model::{
    CpuSet,
    link_bench::{Crowd, Incast, IncastRound, LinkBench, PingRound, Pings, Receive, Transfer},
    route_compare::Skipped,
    run::Machine,
    sources,
};
use rig::{
    cores,
    experiment::{self, Control, End, Experiment, Facts, Planned},
    repeat::{median, middle},
};

use super::{
    MessagesError,
    bed::Bed,
    between::Machines,
    bulk::{beside, transfer},
    crowd::{Costs, crowd},
    end::pair,
    incast::incast,
    ping::pings,
    plan::{Plan, Step, Transport, Workload},
    xdp,
};

/// Result of a step in one round.
#[derive(Debug, Clone)]
pub(super) enum Measured {
    Pings(PingRound),
    Transfer(f64),
    Incast(IncastRound),
    Crowd(Costs),
}

/// Both ends of a run.
pub(super) enum Site {
    /// Two namespaces of this machine; none stand yet, or those of the last step.
    Lab(Option<Box<Bed>>),
    /// This machine and another one.
    Machines(Box<Machines>),
}

/// The steps of each round, and what they found.
struct Rounds<'a> {
    plan: &'a Plan,
    site: Site,
    figures: Vec<Vec<Measured>>,
    skipped: Vec<Skipped>,
}

/// Does what was planned in a lab; nothing if it was stopped.
pub fn carry_out(plan: &Plan, machine: Machine, control: &mut Control<'_>) -> Result<Option<LinkBench>, MessagesError> {
    carry_out_at(Site::Lab(None), plan, machine, control)
}

/// [`carry_out`] at a site.
pub(super) fn carry_out_at(
    site: Site,
    plan: &Plan,
    machine: Machine,
    control: &mut Control<'_>,
) -> Result<Option<LinkBench>, MessagesError> {
    let watched = match &site {
        Site::Lab(_) => CpuSet::from_iter(plan.cpus),
        Site::Machines(_) => CpuSet::single(plan.cpus[0]),
    };
    let rounds = Rounds { plan, site, figures: vec![Vec::new(); plan.steps.len()], skipped: Vec::new() };
    experiment::carry_out(rounds, machine, &watched, control)
}

impl Experiment for Rounds<'_> {
    type Step = usize;
    type Found = Option<LinkBench>;
    type Error = MessagesError;

    fn plan(&self) -> Vec<Planned<usize>> {
        (0..self.plan.options.rounds).flat_map(|_| (0..self.plan.steps.len()).map(Planned::new)).collect()
    }

    fn name(&self, &at: &usize) -> Option<String> {
        Some(self.plan.steps[at].to_string())
    }

    /// A bed serves as long as its conditions are asked for.
    fn build(&mut self, &at: &usize, _: &mut Control<'_>) -> Result<(), MessagesError> {
        let step = &self.plan.steps[at];
        if let (Site::Lab(bed), Workload::Pings { .. } | Workload::Transfer) = (&mut self.site, step.workload) {
            let queues = if step.transport == Transport::Xdp { xdp::QUEUE_COUNT } else { 1 };
            if !bed.as_ref().is_some_and(|bed| (bed.conditions, bed.queues) == (step.conditions, queues)) {
                // The last one goes before the next one is made.
                *bed = None;
                *bed = Some(Box::new(Bed::new(step.conditions, queues)?));
            }
        }
        Ok(())
    }

    fn round(&mut self, &at: &usize, _: &mut Control<'_>) -> Result<(), MessagesError> {
        let step = &self.plan.steps[at];
        let measured = match &mut self.site {
            Site::Lab(bed) => measure(bed, self.plan, step)?,
            Site::Machines(machines) => machines.measure(self.plan, step)?,
        };
        match measured {
            Ok(one) => self.figures[at].push(one),
            Err(why) => {
                let workload = match step.workload {
                    Workload::Pings { receive, .. } => format!("{} {}", step.transport, receive.word()),
                    _ => format!("transfer over {}", step.transport),
                };
                let left = Skipped { what: workload, reason: why };
                if !self.skipped.contains(&left) {
                    self.skipped.push(left);
                }
            }
        }
        Ok(())
    }

    fn conclude(self, facts: Facts, end: End<MessagesError>) -> Result<Option<LinkBench>, MessagesError> {
        let Self { plan, site, figures, skipped } = self;
        if !end.is_whole()? {
            return Ok(None);
        }
        let [a, b] = plan.cpus;
        let (other, answers, notes) = match &site {
            Site::Lab(_) => (None, cores::role(&[b], "the end that answers or receives"), notes(plan)),
            Site::Machines(machines) => (Some(machines.other()), machines.answers(), machines.notes(plan)),
        };
        let mut run = LinkBench {
            timestamp: facts.timestamp,
            machine: facts.machine,
            disturbed: facts.disturbed,
            peer_machine: other,
            load_average: facts.load_average,
            cores: vec![cores::role(&[a], "the end that asks or sends"), answers],
            rounds: plan.options.rounds,
            pings: Vec::new(),
            transfers: Vec::new(),
            incasts: Vec::new(),
            crowds: Vec::new(),
            skipped,
            notes,
            sources: sources::cluster_figures(),
        };
        add_rows(&mut run, plan, &figures);
        beside_tcp(&mut run.pings, &mut run.transfers);
        Ok(Some(run))
    }
}

/// Adds the row of each step that found something: `figures` has what each found, round by round.
fn add_rows(run: &mut LinkBench, plan: &Plan, figures: &[Vec<Measured>]) {
    for (step, figures) in plan.steps.iter().zip(figures).filter(|(_, figures)| !figures.is_empty()) {
        match step.workload {
            Workload::Pings { receive, bytes, beside_transfer } => {
                let rounds = rounds(figures, |one| if let Measured::Pings(it) = one { Some(*it) } else { None });
                run.pings.push(pings_of(step, rounds, receive, bytes, beside_transfer));
            }
            Workload::Transfer => {
                let rounds = rounds(figures, |one| if let Measured::Transfer(it) = one { Some(*it) } else { None });
                run.transfers.push(transfer_of(step, rounds, plan.options.transfer_bytes));
            }
            Workload::Incast { senders } => {
                let rounds = rounds(figures, |one| if let Measured::Incast(it) = one { Some(*it) } else { None });
                run.incasts.push(incast_of(step, senders, rounds));
            }
            Workload::Crowd { connections, nodes } => {
                let rounds = rounds(figures, |one| if let Measured::Crowd(it) = one { Some(*it) } else { None });
                run.crowds.push(crowd_of(step, connections, nodes, &rounds));
            }
        }
    }
}

fn rounds<T>(figures: &[Measured], of: impl Fn(&Measured) -> Option<T>) -> Vec<T> {
    figures.iter().filter_map(of).collect()
}

/// Measures a step; the inner error is why this machine cannot.
fn measure(bed: &mut Option<Box<Bed>>, plan: &Plan, step: &Step) -> Result<Result<Measured, String>, MessagesError> {
    let (cpus, options) = (plan.cpus, &plan.options);
    let built = || bed.as_ref().ok_or(MessagesError::Panicked("the lab"));
    let measured = match step.workload {
        Workload::Incast { senders } => Ok(Measured::Incast(incast(step.transport, senders, cpus)?)),
        Workload::Crowd { connections, nodes } => Ok(Measured::Crowd(crowd(connections, nodes)?)),
        Workload::Transfer => Ok(Measured::Transfer(transfer(built()?, step.transport, cpus, options.transfer_bytes)?)),
        Workload::Pings { receive, bytes, beside_transfer } => match pair(built()?, step.transport, receive)? {
            Err(why) => Err(why),
            Ok(ends) => {
                let work = || pings(ends, cpus, bytes, options.messages);
                Ok(Measured::Pings(if beside_transfer { beside(built()?, cpus, work)? } else { work()? }))
            }
        },
    };
    if matches!(step.transport, Transport::Xdp | Transport::Broker) {
        // Some time after it has ended the kernel keeps the queue of an AF_XDP socket, and a thread of a broker its place in the XDP hook.
        *bed = None;
    }
    Ok(measured)
}

fn pings_of(step: &Step, rounds: Vec<PingRound>, receive: Receive, bytes: u32, beside_transfer: bool) -> Pings {
    Pings {
        transport: step.transport.key().into(),
        receive,
        bytes,
        beside_transfer,
        conditions: step.conditions,
        p50_ns: middle(rounds.iter().map(|r| r.p50_ns as f64)),
        p99_ns: middle(rounds.iter().map(|r| r.p99_ns as f64)),
        rounds,
        ratio_to_tcp: None,
    }
}

fn transfer_of(step: &Step, rounds_s: Vec<f64>, bytes: u64) -> Transfer {
    let seconds = middle(rounds_s.iter().copied());
    Transfer {
        transport: step.transport.key().into(),
        bytes,
        conditions: step.conditions,
        rounds_s,
        seconds,
        ratio_to_tcp: None,
    }
}

fn incast_of(step: &Step, senders: u32, rounds: Vec<IncastRound>) -> Incast {
    Incast {
        transport: step.transport.key().into(),
        senders,
        bits_per_second: middle(rounds.iter().map(|r| r.bits_per_second)),
        ratio_to_one_sender: middle(rounds.iter().map(|r| r.bits_per_second / r.alone_bits_per_second)),
        min_share: rounds.iter().map(|r| r.min_share).fold(f64::INFINITY, f64::min),
        rounds,
    }
}

fn crowd_of(step: &Step, connections: u32, nodes: u32, rounds: &[Costs]) -> Crowd {
    let of = |figure: fn(&Costs) -> f64| middle(rounds.iter().map(figure));
    Crowd {
        transport: step.transport.key().into(),
        connections,
        nodes,
        endpoint_bytes: of(|costs| costs.end_bytes),
        used_endpoint_bytes: of(|costs| costs.used_end_bytes),
        idle_cpu: of(|costs| costs.idle_cpu),
        message_cpu_ns: of(|costs| costs.message_cpu_ns),
    }
}

/// The receive mode of TCP to compare with: without NAPI it cannot busy-poll.
fn as_tcp(receive: Receive) -> Receive {
    if receive == Receive::Polling { Receive::Spinning } else { receive }
}

/// Lays each row beside TCP of the same round.
fn beside_tcp(pings: &mut [Pings], transfers: &mut [Transfer]) {
    let tcp: Vec<Pings> = pings.iter().filter(|p| p.transport == Transport::Tcp.key()).cloned().collect();
    for row in pings.iter_mut().filter(|p| p.transport != Transport::Tcp.key()) {
        let same = |p: &&Pings| {
            (p.bytes, p.receive, p.beside_transfer) == (row.bytes, as_tcp(row.receive), row.beside_transfer)
        };
        row.ratio_to_tcp = tcp.iter().find(same).and_then(|tcp| {
            let ratios = row.rounds.iter().zip(&tcp.rounds).map(|(a, b)| a.p50_ns as f64 / b.p50_ns as f64);
            median(ratios)
        });
    }
    let tcp: Vec<Transfer> = transfers.iter().filter(|t| t.transport == Transport::Tcp.key()).cloned().collect();
    for row in transfers.iter_mut().filter(|t| t.transport != Transport::Tcp.key()) {
        row.ratio_to_tcp = tcp
            .iter()
            .find(|t| t.conditions == row.conditions)
            .and_then(|tcp| median(row.rounds_s.iter().zip(&tcp.rounds_s).map(|(a, b)| b / a)));
    }
}

fn notes(plan: &Plan) -> Vec<String> {
    vec![
        format!(
            "Both ends are threads of one process in two namespaces that a veth pair joins; each has its CPU. {} messages there and back per round",
            plan.options.messages
        ),
        "AF_PACKET and AF_XDP have no protocol: they neither order nor retransmit, and truncate what is longer than a frame. AF_XDP copies on a veth".into(),
        "link polls in its receive call; it is compared with TCP whose non-blocking receive is called in a loop".into(),
        "By the broker: the TCP sockets of two programs as `evenkeel link run` makes them; both brokers run on the same CPUs as the ends".into(),
        "Beside a transfer: TCP fills the same link meanwhile, its ends on the same two CPUs".into(),
        "Where frames are lost, a program in a namespace between both ends drops them at random; 0 is the same way with none dropped".into(),
        "Several nodes to one: namespaces on a bridge, 2 s; all senders on one CPU, the receiver on the other, all asleep while they have nothing to do".into(),
        "Many connections: both ends are in this process; memory is its anonymous memory. Processor time is that of its threads, without the soft interrupts of others".into(),
        "A transfer ends when the receiver confirms all of it. Over link a stream polls, over TCP calls sleep".into(),
    ]
}
