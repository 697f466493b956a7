//! Bytes of several nodes to one.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use model::link_bench::IncastRound;

use super::{
    MessagesError,
    end::{MESSAGE_TIMEOUT, PORT, pin},
    plan::Transport,
};
use crate::bridged::{Bridged, Place, connected};
use link::{Engine, Handle, Raw};

/// Sending time before bytes are counted.
const WARM_UP_TIME: Duration = Duration::from_millis(200);
const COUNT_TIME: Duration = Duration::from_secs(2);
/// Longest sleep of an idle sender or receiver.
const SLEEP_MAX: Duration = Duration::from_millis(10);
const CHUNK_BYTES: usize = 1 << 16;

/// The receiver of several connections.
trait Sink: Send {
    /// Reads available bytes of each connection, adds them to its sum, and waits for a while if there are none.
    fn take(&mut self, sums: &mut [u64]) -> Result<(), MessagesError>;
}

/// A sender on a node of its own.
trait Source: Send {
    /// Sends as many bytes as there is room for, or waits for a while.
    fn put(&mut self, piece: &[u8]) -> Result<(), MessagesError>;
}

struct Node {
    engine: Engine<Raw>,
    handles: Vec<Handle>,
}

impl Sink for Node {
    fn take(&mut self, sums: &mut [u64]) -> Result<(), MessagesError> {
        let mut all = 0;
        for (&handle, sum) in self.handles.iter().zip(sums) {
            let count = self.engine.read(handle, |piece| {
                std::hint::black_box(piece);
            })?;
            (all, *sum) = (all + count, *sum + count as u64);
        }
        if all == 0 {
            self.engine.wait(Duration::ZERO, SLEEP_MAX)?;
        } else {
            self.engine.poll()?;
        }
        Ok(())
    }
}

impl Source for Node {
    fn put(&mut self, piece: &[u8]) -> Result<(), MessagesError> {
        match self.engine.write(self.handles[0], piece)? {
            0 => self.engine.wait(Duration::ZERO, SLEEP_MAX)?,
            _ => self.engine.poll()?,
        };
        Ok(())
    }
}

impl Sink for Vec<TcpStream> {
    fn take(&mut self, sums: &mut [u64]) -> Result<(), MessagesError> {
        let (mut place, mut all) = (vec![0; CHUNK_BYTES], 0);
        for (stream, sum) in self.iter_mut().zip(sums) {
            match stream.read(&mut place) {
                Ok(count) => (all, *sum) = (all + count, *sum + count as u64),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(source) => return Err(MessagesError::System { operation: "read from a TCP connection", source }),
            }
        }
        if all == 0 {
            thread::yield_now();
        }
        Ok(())
    }
}

impl Source for TcpStream {
    fn put(&mut self, piece: &[u8]) -> Result<(), MessagesError> {
        match self.write(piece) {
            Ok(_) => Ok(()),
            // It had no room for as long as a sender waits.
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(source) => Err(MessagesError::System { operation: "write to a TCP connection", source }),
        }
    }
}

/// Bits per second of one sender, then of `senders` at once.
pub(super) fn incast(transport: Transport, senders: u32, cpus: [u32; 2]) -> Result<IncastRound, MessagesError> {
    let bed = Bridged::new("incast", senders + 1)?;
    let alone: f64 = arrived(&bed, transport, 1, cpus)?.iter().sum();
    let all = arrived(&bed, transport, senders, cpus)?;
    let sum: f64 = all.iter().sum();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(IncastRound {
        alone_bits_per_second: alone,
        bits_per_second: sum,
        min_share: if sum > 0.0 { least * f64::from(senders) / sum } else { 0.0 },
    })
}

/// Bits per second of each connection.
fn arrived(bed: &Bridged, transport: Transport, senders: u32, cpus: [u32; 2]) -> Result<Vec<f64>, MessagesError> {
    match transport {
        Transport::Link => {
            let (sink, sources) = nodes(bed, senders as usize)?;
            measure(sink, sources, cpus)
        }
        Transport::Tcp => {
            let (sink, sources) = streams(bed, senders as usize)?;
            measure(sink, sources, cpus)
        }
        other => Err(MessagesError::Unreliable(other)),
    }
}

fn measure<K: Sink, S: Source>(mut sink: K, sources: Vec<S>, cpus: [u32; 2]) -> Result<Vec<f64>, MessagesError> {
    let (stop, count) = (AtomicBool::new(false), sources.len());
    // It is there until all senders have ended: one that still writes would find its connection gone.
    let sink = &mut sink;
    thread::scope(|scope| {
        let stop = &stop;
        let sends: Vec<_> = sources
            .into_iter()
            .map(|mut source| {
                scope.spawn(move || -> Result<(), MessagesError> {
                    pin(cpus[0])?;
                    let piece = vec![0x5a; CHUNK_BYTES];
                    while !stop.load(Ordering::Relaxed) {
                        source.put(&piece)?;
                    }
                    Ok(())
                })
            })
            .collect();
        let receive = scope.spawn(move || -> Result<Vec<f64>, MessagesError> {
            let mut work = || {
                pin(cpus[1])?;
                let mut sums = vec![0; count];
                let began = Instant::now();
                while began.elapsed() < WARM_UP_TIME {
                    sink.take(&mut sums)?;
                }
                sums.fill(0);
                let began = Instant::now();
                while began.elapsed() < COUNT_TIME {
                    sink.take(&mut sums)?;
                }
                let seconds = began.elapsed().as_secs_f64();
                Ok(sums.into_iter().map(|sum| 8.0 * sum as f64 / seconds).collect())
            };
            let rates = work();
            stop.store(true, Ordering::Relaxed);
            rates
        });
        let rates = receive.join().map_err(|_| MessagesError::Panicked("the end that receives"))??;
        for send in sends {
            send.join().map_err(|_| MessagesError::Panicked("the end that sends"))??;
        }
        Ok(rates)
    })
}

/// The first node of a bed, and so many others that have a stream to it.
fn nodes(bed: &Bridged, senders: usize) -> Result<(Node, Vec<Node>), MessagesError> {
    let node = |place: &Place| Ok::<_, MessagesError>(Node { engine: place.engine()?, handles: Vec::new() });
    let mut sink = node(&bed.places[0])?;
    sink.engine.listen(PORT, true, senders)?;
    let mut sources = Vec::new();
    for place in &bed.places[1..=senders] {
        let mut source = node(place)?;
        let [ours, theirs] = connected(&mut source.engine, &mut sink.engine, PORT, true)?;
        source.handles.push(ours);
        sink.handles.push(theirs);
        sources.push(source);
    }
    Ok((sink, sources))
}

fn streams(bed: &Bridged, senders: usize) -> Result<(Vec<TcpStream>, Vec<TcpStream>), MessagesError> {
    let system = MessagesError::system;
    let place = &bed.places[0];
    let listener = place.space.run(|| TcpListener::bind((place.address, 0)))?.map_err(system("listen"))?;
    let to = listener.local_addr().map_err(system("read an address"))?;
    let (mut sinks, mut sources) = (Vec::new(), Vec::new());
    for place in &bed.places[1..=senders] {
        let source =
            place.space.run(|| TcpStream::connect_timeout(&to, MESSAGE_TIMEOUT))?.map_err(system("connect"))?;
        source.set_write_timeout(Some(SLEEP_MAX)).map_err(system("set a time-out"))?;
        let (sink, _) = listener.accept().map_err(system("accept a connection"))?;
        sink.set_nonblocking(true).map_err(system("set a socket"))?;
        sinks.push(sink);
        sources.push(source);
    }
    Ok((sinks, sources))
}
