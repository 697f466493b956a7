//! A router that runs beside a test, in a thread of its own.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use model::route::{RouteEvent, RouteMode, RouteTotals};
use route::{RouteSettings, Router, rules::RouteRules};
use testbed::{Ends, Space, wait};

type Question = Box<dyn FnOnce(&mut Router) + Send>;

/// Asks a router that runs.
pub(crate) struct Control<'a> {
    questions: mpsc::Sender<Question>,
    events: &'a Mutex<Vec<RouteEvent>>,
}

impl Control<'_> {
    /// Has the router's thread answer.
    pub(crate) fn ask<T: Send + 'static>(&self, question: impl FnOnce(&mut Router) -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::channel();
        let question = move |router: &mut Router| answer.send(question(router)).unwrap();
        self.questions.send(Box::new(question)).unwrap();
        answered.recv().unwrap()
    }

    /// Counters of all ports.
    pub(crate) fn totals(&self) -> RouteTotals {
        self.ask(|router| totals(router))
    }

    /// Has the router's thread stand still until what this gives is dropped.
    pub(crate) fn hold(&self) -> mpsc::Sender<()> {
        let (go_on, waits) = mpsc::channel();
        self.questions.send(Box::new(move |_| _ = waits.recv())).unwrap();
        go_on
    }

    /// Waits until the fast path forwards, if changes came faster than they were read.
    pub(crate) fn wait_for(&self, mode: RouteMode) {
        wait("the mode is the one wanted", || self.ask(|router| router.mode()) == mode);
    }

    /// Events so far.
    pub(crate) fn events(&self) -> Vec<RouteEvent> {
        self.events.lock().unwrap().clone()
    }
}

/// Counters of all ports.
pub(crate) fn totals(router: &Router) -> RouteTotals {
    let mut sum = RouteTotals::default();
    router.counts().unwrap().iter().for_each(|(_, counts)| sum += *counts);
    sum
}

/// Does `work` while a router runs in `space`, in this mode.
pub(crate) fn beside<T>(
    space: &Space,
    settings: RouteSettings,
    mode: RouteMode,
    work: impl FnOnce(&Control<'_>) -> T,
) -> T {
    beside_with(space, settings, None, mode, work)
}

/// Likewise, with rules.
pub(crate) fn beside_with<T>(
    space: &Space,
    settings: RouteSettings,
    rules: Option<RouteRules>,
    mode: RouteMode,
    work: impl FnOnce(&Control<'_>) -> T,
) -> T {
    let (stop, events) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let (started, is_started) = mpsc::channel();
        let (questions, received) = mpsc::channel::<Question>();
        let (stop, events) = (&stop, &events);
        scope.spawn(move || {
            space.run(move || {
                let mut router = Router::start_with(RouteSettings { mode, ..settings }, rules).unwrap().0;
                assert_eq!(router.obstacles(), []);
                router.set_mode(mode).unwrap();
                started.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let happened = router.poll_within(Duration::from_millis(5)).unwrap();
                    events.lock().unwrap().extend(happened);
                    received.try_iter().for_each(|question| question(&mut router));
                }
            });
        });
        let _ends = Ends(stop);
        is_started.recv().unwrap();
        work(&Control { questions, events })
    })
}
