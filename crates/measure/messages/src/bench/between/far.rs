//! The process on the other machine: it answers, or receives.

use std::{
    io::{self, BufRead, Write},
    net::TcpListener,
    thread,
};

use model::run::Machine;
use sys::affinity::pin_current_thread;

use super::{
    super::{bulk, ping},
    single::{self, Kind, Single},
    words::{Answer, Order},
};
use crate::{
    MessagesError,
    remote::{Facts, Orders, Reply},
};

/// The end, and what became of it.
struct Far<W> {
    ours: Facts,
    end: Option<Single>,
    /// What failed since the end was opened.
    failed: Option<MessagesError>,
    orders: Orders<Order, W>,
}

/// Does what the near process says on `input`, and answers on `output`, until the input ends.
pub fn answer(
    interface: &str,
    machine: Machine,
    cpu: u32,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> Result<(), MessagesError> {
    let ours = Facts::read(interface, machine, cpu)?;
    pin_current_thread(cpu).map_err(MessagesError::system("bind a thread to its CPU"))?;
    let orders = Orders::open(input, output, &ours)?;
    let mut far = Far { ours, end: None, failed: None, orders };
    while let Some(order) = far.orders.next() {
        let reply = match far.obey(order) {
            Ok(None) => continue,
            Ok(Some(answer)) => Reply::Answer(answer),
            Err(error) => Reply::Failed(error.to_string()),
        };
        far.orders.reply(&reply)?;
    }
    Ok(())
}

fn misled(what: &str) -> MessagesError {
    MessagesError::Words(what.to_owned())
}

impl<W: Write> Far<W> {
    /// Does it; what is to be said of it, where anything is.
    fn obey(&mut self, order: Order) -> Result<Option<Answer>, MessagesError> {
        match order {
            Order::Open { way, receive, stream, mac } => self.open(Kind { way, receive, stream }, &mac).map(Some),
            Order::Echo { bytes, count } => {
                self.work(|end| ping::echo(end.end(), bytes, count));
                Ok(None)
            }
            Order::Take { bytes } => {
                self.work(|end| match end {
                    Single::Bytes(stream) => bulk::take_all(&mut **stream, bytes),
                    Single::Messages(_) => Err(misled("bytes for an end of messages")),
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
        let theirs = mac.parse().map_err(|_| misled("an address that is none"))?;
        let (waiting, port) = match single::wait_for(kind, &self.ours, theirs)? {
            Ok(waiting) => waiting,
            Err(why) => return Ok(Answer::Skipped(why)),
        };
        self.orders.reply(&Reply::Answer(Answer::Waits { port }))?;
        match waiting.meet(kind)? {
            Ok(end) => {
                self.end = Some(end);
                Ok(Answer::Open)
            }
            Err(why) => Ok(Answer::Skipped(why)),
        }
    }

    /// Works with the end, and then serves what the near end may still need, until the next order is here.
    fn work(&mut self, work: impl FnOnce(&mut Single) -> Result<(), MessagesError>) {
        let Some(end) = self.end.as_mut() else {
            self.failed = Some(misled("work before an end"));
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
        let (address, _) = self.ours.address.ok_or_else(|| misled("TCP without an address"))?;
        let listener = TcpListener::bind((address, 0)).map_err(failed("listen"))?;
        let port = listener.local_addr().map_err(failed("read an address"))?.port();
        thread::spawn(move || {
            let stream = single::accept(&listener);
            stream.map(|mut stream| io::copy(&mut stream, &mut io::sink()))
        });
        Ok(Answer::Waits { port })
    }
}
