//! Does the steps with the worker process.

use std::{
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use model::{
    link_bench::{LinkBench, PingRound, Receive},
    run::{CoreRole, Machine},
};
use rig::{cores, experiment::Control};

use super::{
    super::{
        bulk,
        carry::{Measured, Site, carry_out_at},
        end::pin,
        ping,
        plan::{Plan, Step, Transport, Workload},
    },
    orders::{Answer, Order},
    single::{self, Kind, Single},
};
use crate::{
    MessagesError,
    remote::{Facts, Reach, Worker},
};

type Peer = Worker<Answer>;

/// The two machines of a run.
#[derive(Debug)]
pub struct Between {
    pub interface: String,
    pub machine: Machine,
    /// The other one, and what starts `evenkeel link bench-end` there.
    pub other: Reach,
}

/// This machine and the other one, with its process.
pub(in super::super) struct Machines {
    worker: Peer,
    ours: Facts,
    theirs: Facts,
}

/// Does what was planned between two machines; nothing if it was stopped. `plan` makes the steps for the MTU of the link, and has this end's CPU.
///
/// # Errors
/// The other machine cannot be reached, or a way that should work here.
pub fn carry_out_between(
    between: Between,
    plan: impl FnOnce(u32) -> Result<Plan, MessagesError>,
    control: &mut Control<'_>,
) -> Result<Option<LinkBench>, MessagesError> {
    let Between { interface, machine, other } = between;
    // The MTU is the interface's; the CPU is the plan's.
    let mut ours = Facts::read(&interface, machine.clone(), 0)?;
    let plan = plan(ours.mtu)?;
    ours.cpu = plan.cpus[0];
    let mut worker = Peer::start(other)?;
    let theirs = worker.facts(&ours)?;
    let site = Site::Machines(Box::new(Machines { worker, ours, theirs }));
    carry_out_at(site, &plan, machine, control)
}

impl Machines {
    /// Measures a step; the inner error is why these machines cannot.
    pub(in super::super) fn measure(
        &mut self,
        plan: &Plan,
        step: &Step,
    ) -> Result<Result<Measured, String>, MessagesError> {
        let Self { worker, ours, theirs } = self;
        measure(worker, plan, step, [ours, theirs]).map_err(|error| match error {
            MessagesError::Silent(by) => {
                let (node, interface) = (worker.node().to_owned(), ours.interface.clone());
                MessagesError::Unheard { node, by, interface }
            }
            other => other,
        })
    }

    pub(in super::super) fn other(&self) -> Machine {
        self.theirs.machine.clone()
    }

    /// The CPU of its end.
    pub(in super::super) fn answers(&self) -> CoreRole {
        let does = format!("on {}: the end that answers or receives", self.worker.node());
        cores::role(&[self.theirs.cpu], &does)
    }

    pub(in super::super) fn notes(&self, plan: &Plan) -> Vec<String> {
        notes(plan, self.worker.node(), [&self.ours, &self.theirs])
    }
}

/// Measures a step; the inner error is why these machines cannot.
fn measure(
    worker: &mut Peer,
    plan: &Plan,
    step: &Step,
    both: [&Facts; 2],
) -> Result<Result<Measured, String>, MessagesError> {
    let (receive, stream) = match step.workload {
        Workload::Pings { receive, .. } => (receive, false),
        _ => (if step.transport == Transport::Tcp { Receive::Sleeping } else { Receive::Polling }, true),
    };
    let mut end = match open(worker, Kind { transport: step.transport, receive, stream }, both)? {
        Ok(end) => end,
        Err(why) => {
            close(worker)?;
            return Ok(Err(why));
        }
    };
    let cpu = plan.cpus[0];
    let measured = match (step.workload, &mut end) {
        (Workload::Pings { bytes, beside_transfer, .. }, end) => {
            let count = plan.options.messages;
            let found = match beside_transfer {
                false => pings(worker, end, cpu, bytes, count),
                true => beside(worker, end, cpu, bytes, count, both[1]),
            };
            found.map(Measured::Pings)
        }
        (_, Single::Bytes(stream)) => {
            let bytes = plan.options.transfer_bytes;
            worker.order(&Order::Take { bytes })?;
            on_cpu(cpu, || bulk::put_all(&mut **stream, bytes)).map(Measured::Transfer)
        }
        (_, Single::Messages(_)) => Err(MessagesError::Unreliable(step.transport)),
    };
    match (close(worker), measured) {
        // Lost on the way: bare frames and datagrams are not sent again.
        (Err(why @ MessagesError::Far { .. }), _) | (Ok(()), Err(why @ MessagesError::Silent(_)))
            if matches!(step.transport, Transport::Packet | Transport::Udp) =>
        {
            Ok(Err(why.to_string()))
        }
        // Neither end heard the other.
        (_, Err(silent @ MessagesError::Silent(_))) => Err(silent),
        // Workload failed there says more than what did not come here.
        (closed, measured) => closed.and(measured).map(Ok),
    }
}

/// Closes the end there; what failed there since it was opened.
fn close(worker: &mut Peer) -> Result<(), MessagesError> {
    worker.order(&Order::Close)?;
    match worker.answer()? {
        Answer::Done => Ok(()),
        other => Err(MessagesError::words(format!("{other:?} for a close"))),
    }
}

fn open(worker: &mut Peer, kind: Kind, both: [&Facts; 2]) -> Result<Result<Single, String>, MessagesError> {
    let Kind { transport, receive, stream } = kind;
    worker.order(&Order::Open { transport, receive, stream, mac: both[0].mac.clone() })?;
    let port = match worker.answer()? {
        Answer::Waits { port } => port,
        Answer::Skipped(why) => return Ok(Err(why)),
        other => return Err(MessagesError::words(format!("{other:?} for an end"))),
    };
    let here = single::connect(kind, both, port);
    match (worker.answer(), here) {
        (Ok(Answer::Open), Ok(end)) => Ok(end),
        (Ok(Answer::Skipped(why)), Ok(_)) | (_, Ok(Err(why))) => Ok(Err(why)),
        (Ok(other), Ok(_)) => Err(MessagesError::words(format!("{other:?} for an end"))),
        (Err(error), Ok(_)) | (_, Err(error)) => Err(error),
    }
}

fn pings(worker: &mut Peer, end: &mut Single, cpu: u32, bytes: u32, count: u32) -> Result<PingRound, MessagesError> {
    let all = ping::with_warm_up(count);
    worker.order(&Order::Echo { bytes, count: all })?;
    Ok(ping::round(on_cpu(cpu, || ping::ask(end.end(), bytes, all))?, count))
}

/// The same while bytes cross the same link over TCP, as many as can.
fn beside(
    worker: &mut Peer,
    end: &mut Single,
    cpu: u32,
    bytes: u32,
    count: u32,
    theirs: &Facts,
) -> Result<PingRound, MessagesError> {
    let failed = MessagesError::system;
    worker.order(&Order::Drain)?;
    let (port, to) = match (worker.answer()?, theirs.address) {
        (Answer::Waits { port }, Some((to, _))) => (port, to),
        (other, _) => return Err(MessagesError::words(format!("{other:?} for a transfer beside"))),
    };
    let mut stream = TcpStream::connect((to, port)).map_err(failed("connect"))?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let writes = scope.spawn(move || {
            pin(cpu)?;
            bulk::put_until(&mut stream, stop)?;
            stream.shutdown(Shutdown::Write).map_err(failed("end a TCP connection"))
        });
        let measured = pings(worker, end, cpu, bytes, count);
        stop.store(true, Ordering::Relaxed);
        writes.join().map_err(|_| MessagesError::Panicked("the end that writes"))??;
        measured
    })
}

/// Does `work` on a CPU.
fn on_cpu<T: Send>(cpu: u32, work: impl FnOnce() -> Result<T, MessagesError> + Send) -> Result<T, MessagesError> {
    thread::scope(|scope| {
        let done = scope.spawn(move || {
            pin(cpu)?;
            work()
        });
        done.join().map_err(|_| MessagesError::Panicked("the end that asks"))?
    })
}

fn notes(plan: &Plan, node: &str, [ours, theirs]: [&Facts; 2]) -> Vec<String> {
    let there = &theirs.machine;
    vec![
        format!(
            "Between two machines: {} of {} and {} of {} ({node}: {}, {} CPUs, Linux {}), MTU {}, all else as it was set",
            ours.interface, ours.machine.hostname, theirs.interface, there.hostname, there.cpu_model, there.cpus, there.kernel, ours.mtu
        ),
        format!("{} messages there and back per round; each end is a thread bound to its CPU", plan.options.messages),
        "AF_PACKET has no protocol: it neither orders nor retransmits, and truncates what is longer than a frame".into(),
        "link receives through a ring that XDP fills; link, sockets through packet sockets. TCP runs without Nagle's delay".into(),
        "Beside a transfer: TCP fills the same link meanwhile, its sender on the CPU of the end that asks".into(),
        "A transfer ends when the receiver confirms all of it. Over link a stream polls, over TCP calls sleep".into(),
    ]
}
