//! The process on the other machine: it answers, or receives.

use std::{
    io::{self, BufRead, Write},
    net::TcpListener,
    thread,
};

use model::run::Machine;

use super::{
    super::{bulk, end::pin, ping},
    orders::{Answer, Order},
    single::{self, Kind, Single},
};
use crate::{
    MessagesError,
    remote::{Facts, Orders, Reply},
};

/// State of the worker process.
struct WorkerState<W> {
    ours: Facts,
    end: Option<Single>,
    /// Error since the end was opened.
    failed: Option<MessagesError>,
    orders: Orders<Order, W>,
}

/// Carries out the orders on `input`, and answers on `output`, until the input ends.
pub fn answer(
    interface: &str,
    machine: Machine,
    cpu: u32,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> Result<(), MessagesError> {
    let ours = Facts::read(interface, machine, cpu)?;
    pin(cpu)?;
    let orders = Orders::open(input, output, &ours)?;
    let mut state = WorkerState { ours, end: None, failed: None, orders };
    while let Some(order) = state.orders.next() {
        let reply = match state.carry_out(order) {
            Ok(None) => continue,
            Ok(Some(answer)) => Reply::Answer(answer),
            Err(error) => Reply::Failed(error.to_string()),
        };
        state.orders.reply(&reply)?;
    }
    Ok(())
}

impl<W: Write> WorkerState<W> {
    /// Carries out an order; none: it has no answer.
    fn carry_out(&mut self, order: Order) -> Result<Option<Answer>, MessagesError> {
        match order {
            Order::Open { transport, receive, stream, mac } => {
                self.open(Kind { transport, receive, stream }, &mac).map(Some)
            }
            Order::Echo { bytes, count } => {
                self.work(|end| ping::echo(end.end(), bytes, count));
                Ok(None)
            }
            Order::Take { bytes } => {
                self.work(|end| match end {
                    Single::Bytes(stream) => bulk::take_all(&mut **stream, bytes),
                    Single::Messages(_) => Err(MessagesError::words("bytes for an end of messages")),
                });
                Ok(None)
            }
            Order::Drain => self.drain().map(Some),
            Order::Close => {
                self.end = None;
                self.failed.take().map_or(Ok(Some(Answer::Done)), Err)
            }
        }
    }

    fn open(&mut self, kind: Kind, mac: &str) -> Result<Answer, MessagesError> {
        (self.end, self.failed) = (None, None);
        let theirs = mac.parse().map_err(|_| MessagesError::words("an address that is none"))?;
        let (waiting, port) = match single::wait_for(kind, &self.ours, theirs)? {
            Ok(waiting) => waiting,
            Err(why) => return Ok(Answer::Skipped(why)),
        };
        self.orders.reply(&Reply::Answer(Answer::Waits { port }))?;
        match waiting.connect(kind)? {
            Ok(end) => {
                self.end = Some(end);
                Ok(Answer::Open)
            }
            Err(why) => Ok(Answer::Skipped(why)),
        }
    }

    /// Works with the end, and then serves the other end until the next order.
    fn work(&mut self, work: impl FnOnce(&mut Single) -> Result<(), MessagesError>) {
        let Some(end) = self.end.as_mut() else {
            self.failed = Some(MessagesError::words("work before an end"));
            return;
        };
        let mut done = work(end);
        while done.is_ok() && !self.orders.has_next() {
            done = end.end().serve();
            thread::yield_now();
        }
        self.failed = done.err();
    }

    /// Reads what a connection of its own brings, in a thread that ends with it.
    fn drain(&self) -> Result<Answer, MessagesError> {
        let failed = MessagesError::system;
        let (address, _) = self.ours.address.ok_or_else(|| MessagesError::words("TCP without an address"))?;
        let listener = TcpListener::bind((address, 0)).map_err(failed("listen"))?;
        let port = listener.local_addr().map_err(failed("read an address"))?.port();
        thread::spawn(move || {
            let stream = single::accept(&listener);
            stream.map(|mut stream| io::copy(&mut stream, &mut io::sink()))
        });
        Ok(Answer::Waits { port })
    }
}
