//! Does the steps, round by round: in each every row has its turn.

use std::sync::atomic::{AtomicBool, Ordering};

use model::{
    link_bench::{LinkBench, PingRound, Pings, Receive, Transfer},
    route_compare::LeftOut,
    run::Machine,
    sources,
};
use rig::{
    cores,
    progress::{self, Progress},
    repeat::{median, sorted},
};

use super::{
    BenchError,
    bed::Bed,
    bulk::{beside, transfer},
    end::pair,
    ping::pings,
    plan::{Plan, Step, Way, What},
};

/// The figures of a step.
enum Figures {
    Pings(Vec<PingRound>),
    Transfer(Vec<f64>),
    None,
}

/// Does what was planned; nothing if it was stopped.
///
/// # Errors
/// The lab, or a way that should work here.
pub fn carry_out(
    plan: &Plan,
    machine: Machine,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Option<LinkBench>, BenchError> {
    let (when, load_average) = (rig::machine::now(), rig::machine::load_average());
    let mut figures: Vec<Figures> = plan.steps.iter().map(|_| Figures::None).collect();
    let mut left_out: Vec<LeftOut> = Vec::new();
    let mut bed: Option<Bed> = None;
    let of = plan.steps.len() * plan.asked.rounds as usize;
    for round in 0..plan.asked.rounds as usize {
        for (i, step) in plan.steps.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let number = round * plan.steps.len() + i + 1;
            progress.begin(&progress::Step { name: step.to_string(), number, of, left_s: None });
            let bed = match bed.take().filter(|bed| bed.conditions == step.conditions) {
                Some(same) => bed.insert(same),
                None => bed.insert(Bed::new(step.conditions)?),
            };
            match (measure(bed, plan, step)?, &mut figures[i]) {
                (Ok(Measured::Pings(one)), Figures::Pings(all)) => all.push(one),
                (Ok(Measured::Pings(one)), empty) => *empty = Figures::Pings(vec![one]),
                (Ok(Measured::Transfer(one)), Figures::Transfer(all)) => all.push(one),
                (Ok(Measured::Transfer(one)), empty) => *empty = Figures::Transfer(vec![one]),
                (Err(why), _) => {
                    let What::Pings { receive, .. } = step.what else { continue };
                    let left = LeftOut { what: format!("{} {}", step.way, receive.word()), why };
                    if !left_out.contains(&left) {
                        left_out.push(left);
                    }
                }
            }
        }
    }
    let (mut all_pings, mut transfers) = (Vec::new(), Vec::new());
    for (step, figures) in plan.steps.iter().zip(figures) {
        match (figures, step.what) {
            (Figures::Pings(rounds), What::Pings { receive, bytes, beside_transfer }) => {
                all_pings.push(pings_of(step, rounds, receive, bytes, beside_transfer));
            }
            (Figures::Transfer(rounds_s), _) => transfers.push(transfer_of(step, rounds_s, plan.asked.transfer_bytes)),
            _ => {}
        }
    }
    beside_tcp(&mut all_pings, &mut transfers);
    let [a, b] = plan.cpus;
    Ok(Some(LinkBench {
        when,
        machine,
        load_average,
        cores: vec![
            cores::role(&[a], "the end that asks or sends"),
            cores::role(&[b], "the end that answers or receives"),
        ],
        rounds: plan.asked.rounds,
        pings: all_pings,
        transfers,
        left_out,
        notes: notes(plan),
        sources: sources::cluster_figures(),
    }))
}

enum Measured {
    Pings(PingRound),
    Transfer(f64),
}

/// What a step finds; or why this machine does not let it be measured.
fn measure(bed: &Bed, plan: &Plan, step: &Step) -> Result<Result<Measured, String>, BenchError> {
    let (cpus, asked) = (plan.cpus, &plan.asked);
    Ok(match step.what {
        What::Transfer => Ok(Measured::Transfer(transfer(bed, step.way, cpus, asked.transfer_bytes)?)),
        What::Pings { receive, bytes, beside_transfer } => match pair(bed, step.way, receive)? {
            Err(why) => Err(why),
            Ok(ends) => {
                let work = || pings(ends, cpus, bytes, asked.messages);
                Ok(Measured::Pings(if beside_transfer { beside(bed, cpus, work)? } else { work()? }))
            }
        },
    })
}

fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    median(&sorted(values)).unwrap_or(0.0)
}

fn pings_of(step: &Step, rounds: Vec<PingRound>, receive: Receive, bytes: u32, beside_transfer: bool) -> Pings {
    Pings {
        by: step.way.key().into(),
        receive,
        bytes,
        beside_transfer,
        conditions: step.conditions,
        p50_ns: middle(rounds.iter().map(|r| r.p50_ns as f64)),
        p99_ns: middle(rounds.iter().map(|r| r.p99_ns as f64)),
        rounds,
        over_tcp: None,
    }
}

fn transfer_of(step: &Step, rounds_s: Vec<f64>, bytes: u64) -> Transfer {
    let seconds = middle(rounds_s.iter().copied());
    Transfer { by: step.way.key().into(), bytes, conditions: step.conditions, rounds_s, seconds, over_tcp: None }
}

/// How TCP waits where a way waits like this: it has no polling of its own on a link without NAPI.
fn as_tcp(receive: Receive) -> Receive {
    if receive == Receive::Polling { Receive::Spinning } else { receive }
}

/// Lays each row beside TCP of the same round.
fn beside_tcp(pings: &mut [Pings], transfers: &mut [Transfer]) {
    let tcp: Vec<Pings> = pings.iter().filter(|p| p.by == Way::Tcp.key()).cloned().collect();
    for row in pings.iter_mut().filter(|p| p.by != Way::Tcp.key()) {
        let same = |p: &&Pings| {
            (p.bytes, p.receive, p.beside_transfer) == (row.bytes, as_tcp(row.receive), row.beside_transfer)
        };
        row.over_tcp = tcp.iter().find(same).and_then(|tcp| {
            let ratios = row.rounds.iter().zip(&tcp.rounds).map(|(a, b)| a.p50_ns as f64 / b.p50_ns as f64);
            median(&sorted(ratios))
        });
    }
    let tcp: Vec<Transfer> = transfers.iter().filter(|t| t.by == Way::Tcp.key()).cloned().collect();
    for row in transfers.iter_mut().filter(|t| t.by != Way::Tcp.key()) {
        row.over_tcp = tcp
            .iter()
            .find(|t| t.conditions == row.conditions)
            .and_then(|tcp| median(&sorted(row.rounds_s.iter().zip(&tcp.rounds_s).map(|(a, b)| b / a))));
    }
}

fn notes(plan: &Plan) -> Vec<String> {
    vec![
        format!(
            "Both ends are threads of one process in two namespaces that a veth pair joins; each has its CPU. {} messages there and back per round",
            plan.asked.messages
        ),
        "AF_PACKET is without a protocol: it neither orders nor sends again, and cuts what is longer than a frame".into(),
        "link polls in its receive call; beside it stands TCP that is asked again and again without waiting".into(),
        "Beside a transfer: TCP fills the same link meanwhile, its ends on the same two CPUs".into(),
        "A transfer ends when the other end has said that it has all. It goes over link by a stream that polls, over TCP by calls that sleep".into(),
    ]
}
