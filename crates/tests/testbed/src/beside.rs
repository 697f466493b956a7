//! A value that lives beside a test, in a thread of its own.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use crate::{Ends, Space};

type Question<T> = Box<dyn FnOnce(&T) + Send>;

/// Asks the value.
pub struct Beside<'a, T, E> {
    questions: mpsc::Sender<Question<T>>,
    events: &'a Mutex<Vec<E>>,
}

impl<T, E: Clone> Beside<'_, T, E> {
    /// Has its thread answer.
    pub fn ask<A: Send + 'static>(&self, question: impl FnOnce(&T) -> A + Send + 'static) -> A {
        let (answer, answered) = mpsc::channel();
        self.send(move |value| answer.send(question(value)).expect("the test waits"));
        answered.recv().expect("an answer")
    }

    /// Has its thread stand still until what this gives is dropped.
    pub fn hold(&self) -> mpsc::Sender<()> {
        let (go_on, waits) = mpsc::channel();
        self.send(move |_| _ = waits.recv());
        go_on
    }

    fn send(&self, question: impl FnOnce(&T) + Send + 'static) {
        self.questions.send(Box::new(question)).expect("its thread runs");
    }

    /// Events so far.
    pub fn events(&self) -> Vec<E> {
        self.events.lock().expect("its thread runs").clone()
    }
}

/// Does `work` while what `start` makes lives in `space`; `poll`, again and again, gives its events.
pub fn beside<T: 'static, E: Send, R>(
    space: &Space,
    start: impl FnOnce() -> T + Send,
    mut poll: impl FnMut(&mut T) -> Vec<E> + Send,
    work: impl FnOnce(&Beside<'_, T, E>) -> R,
) -> R {
    let (stop, events) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let (started, is_started) = mpsc::channel();
        let (questions, received) = mpsc::channel::<Question<T>>();
        let (stop, events) = (&stop, &events);
        scope.spawn(move || {
            space.run(move || {
                let mut value = start();
                started.send(()).expect("the test waits");
                while !stop.load(Ordering::Relaxed) {
                    let happened = poll(&mut value);
                    events.lock().expect("the test goes on").extend(happened);
                    received.try_iter().for_each(|question| question(&value));
                }
            });
        });
        let _ends = Ends(stop);
        is_started.recv().expect("it has started");
        work(&Beside { questions, events })
    })
}
