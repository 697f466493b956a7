//! The worker's side: its orders and replies.

use std::{
    io::{BufRead, Write},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{Facts, Reply};
use crate::MessagesError;

/// Orders of the coordinator, and the output for replies.
pub(crate) struct Orders<O, W> {
    orders: Receiver<O>,
    /// An order that [`Orders::has_next`] has read.
    next: Option<O>,
    has_ended: bool,
    output: W,
}

impl<O: DeserializeOwned + Send + 'static, W: Write> Orders<O, W> {
    /// Starts to read orders from `input`, and sends the facts.
    pub(crate) fn open(input: impl BufRead + Send + 'static, output: W, facts: &Facts) -> Result<Self, MessagesError> {
        let (to, orders) = channel();
        // It ends with the process: a read that waits cannot be ended otherwise.
        thread::spawn(move || {
            for line in input.lines().map_while(Result::ok) {
                let Ok(order) = serde_json::from_str(&line) else { return };
                if to.send(order).is_err() {
                    return;
                }
            }
        });
        let mut all = Self { orders, next: None, has_ended: false, output };
        all.reply(&Reply::<()>::Facts(Box::new(facts.clone())))?;
        Ok(all)
    }

    /// The next order; none once there will be no more.
    pub(crate) fn next(&mut self) -> Option<O> {
        self.next.take().or_else(|| self.orders.recv().ok())
    }

    /// True if [`Orders::next`] returns at once.
    pub(crate) fn has_next(&mut self) -> bool {
        if self.next.is_none() && !self.has_ended {
            match self.orders.try_recv() {
                Ok(order) => self.next = Some(order),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.has_ended = true,
            }
        }
        self.next.is_some() || self.has_ended
    }

    pub(crate) fn reply<A: Serialize>(&mut self, reply: &Reply<A>) -> Result<(), MessagesError> {
        let line = serde_json::to_string(reply).map_err(|e| MessagesError::Words(e.to_string()))?;
        writeln!(self.output, "{line}").and_then(|()| self.output.flush()).map_err(MessagesError::Answer)
    }
}
