//! The nodes of a carrier, each in a thread of its own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::Scope,
    time::{Duration, Instant},
};

use super::{
    MessagesError,
    mesh::{Halt, Mesh},
    node::{Task, Took, work},
    plan::{Plan, Transport, Trial},
};

/// Delay between the orders of a turn and its start on all nodes.
const START_DELAY: Duration = Duration::from_millis(2);

/// Seconds of a step of a turn: all of it, and what is no wait for computing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) seconds: f64,
    pub(super) exchange_s: f64,
}

/// The nodes of a carrier, each in a thread that waits for turns. The threads end when it is dropped.
pub(super) struct Cluster {
    pub(super) transport: Transport,
    tasks: Vec<Sender<Task>>,
    took: Receiver<Result<Took, MessagesError>>,
}

impl Cluster {
    pub(super) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        transport: Transport,
        nodes: Vec<Box<dyn Mesh>>,
        halt: Halt<'env>,
    ) -> Self {
        let (done, took) = channel();
        let mut tasks = Vec::new();
        for (me, mut mesh) in (0_u32..).zip(nodes) {
            let (task, given) = channel::<Task>();
            let done = done.clone();
            scope.spawn(move || {
                while let Ok(task) = given.recv() {
                    // A panic that nobody heard of would leave the others, and who waits for all, without an end.
                    let worked = catch_unwind(AssertUnwindSafe(|| work(&mut *mesh, me, &task, halt)))
                        .unwrap_or(Err(MessagesError::Panicked("a node")));
                    if worked.is_err() {
                        halt.failed.store(true, Ordering::Relaxed);
                    }
                    // Who gave the turn may be gone.
                    let _ = done.send(worked);
                }
            });
            tasks.push(task);
        }
        Self { transport, tasks, took }
    }

    /// Does a turn.
    ///
    /// # Errors
    /// The first that a node had by itself; [`MessagesError::Stopped`] if the user ended all.
    pub(super) fn trial(&self, plan: &Plan, trial: Trial) -> Result<Step, MessagesError> {
        let start = Instant::now() + START_DELAY;
        let task = Task {
            trial,
            steps: plan.options.steps,
            bytes: plan.options.bytes,
            computing: plan.computing(trial.nodes),
            start,
            quiet: Arc::new(AtomicU32::new(0)),
        };
        for node in &self.tasks[..trial.nodes as usize] {
            node.send(task.clone()).map_err(|_| MessagesError::Panicked("a node"))?;
        }
        let (mut all, mut failed) = (Vec::new(), None);
        for _ in 0..trial.nodes {
            match self.took.recv().map_err(|_| MessagesError::Panicked("a node"))? {
                Ok(took) => all.push(took),
                // Those that a failure of another one stopped say less than this.
                Err(error) if matches!(failed, None | Some(MessagesError::Stopped)) => failed = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let steps = f64::from(plan.options.steps);
        let last = all.iter().map(|took| took.end).max().unwrap_or(start);
        let computed: f64 = all.iter().map(|took| took.computed.as_secs_f64()).sum();
        let seconds = last.duration_since(start).as_secs_f64() / steps;
        Ok(Step { seconds, exchange_s: (seconds - computed / f64::from(trial.nodes) / steps).max(0.0) })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread};

    use model::speedup::Exchange;

    use super::*;
    use crate::speedup::SpeedupOptions;

    /// A node without a carrier: it does to a step what its test wants.
    struct Made(Exchanged);

    type Exchanged = fn(&[usize], Halt<'_>, &mut dyn FnMut(&[u8])) -> Result<(), MessagesError>;

    impl Mesh for Made {
        fn pause(&mut self, until: Instant) -> Result<(), MessagesError> {
            thread::sleep(until.saturating_duration_since(Instant::now()));
            Ok(())
        }

        fn exchange(
            &mut self,
            peers: &[usize],
            _: &[u8],
            halt: Halt<'_>,
            on: &mut dyn FnMut(&[u8]),
        ) -> Result<(), MessagesError> {
            self.0(peers, halt, on)
        }

        fn settle(&mut self, _: &AtomicU32, _: u32, _: Halt<'_>) -> Result<(), MessagesError> {
            Ok(())
        }
    }

    /// Waits for what never comes.
    fn waits(_: &[usize], halt: Halt<'_>, _: &mut dyn FnMut(&[u8])) -> Result<(), MessagesError> {
        let began = Instant::now();
        loop {
            halt.look(began, "made up")?;
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A turn of three nodes of which the last is this one.
    fn trial(last: Made, stop: bool) -> Result<Step, MessagesError> {
        let options = SpeedupOptions {
            nodes: vec![1, 2, 3],
            step: Duration::from_millis(1),
            serial_share: 0.0,
            exchanges: vec![Exchange::AllReduce],
            carriers: vec![Transport::Link],
            bytes: 4,
            rounds: 1,
            steps: 2,
        };
        let plan = Plan::new(options)?;
        let (stop, failed) = (AtomicBool::new(stop), AtomicBool::new(false));
        let nodes: Vec<Box<dyn Mesh>> = vec![Box::new(Made(waits)), Box::new(Made(waits)), Box::new(last)];
        thread::scope(|scope| {
            let cluster = Cluster::start(scope, Transport::Link, nodes, Halt { stop: &stop, failed: &failed });
            cluster.trial(&plan, Trial { transport: Transport::Link, exchange: Exchange::AllReduce, nodes: 3 })
        })
    }

    #[test]
    fn the_failure_of_one_node_ends_all_and_is_the_one_that_is_reported() {
        let began = Instant::now();
        let found = trial(Made(|_, _, _| Err(MessagesError::Closed("made up"))), false);
        assert!(matches!(found, Err(MessagesError::Closed("made up"))), "{found:?}");
        let found = trial(Made(|_, _, _| panic!("made up")), false);
        assert!(matches!(found, Err(MessagesError::Panicked("a node"))), "{found:?}");
        let found = trial(
            Made(|peers, _, on| {
                peers.iter().for_each(|_| on(&[9, 9, 9, 9]));
                Ok(())
            }),
            false,
        );
        assert!(matches!(found, Err(MessagesError::Sum { by: "link", node: 3, step: 0 })), "{found:?}");
        assert!(began.elapsed() < crate::speedup::mesh::MESSAGE_TIMEOUT, "nobody waits for a node that is gone");
    }

    #[test]
    fn nodes_end_when_the_user_wants_no_more() {
        let found = trial(Made(waits), true);
        assert!(matches!(found, Err(MessagesError::Stopped)), "{found:?}");
    }
}
