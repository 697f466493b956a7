//! Many bytes one way.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use model::link_bench::Receive;

use super::{
    MessagesError,
    bed::Bed,
    brokered::{Brokered, brokered},
    end::{End, MESSAGE_TIMEOUT, Native, link, pin},
    plan::Transport,
    sockets::tcp,
};

/// Bytes of a write and of a read.
const CHUNK_BYTES: usize = 1 << 16;

/// An end that takes and gives bytes.
pub(super) trait Stream: End {
    /// Sends some of these bytes, or waits for a while; returns how many.
    fn put(&mut self, bytes: &[u8]) -> Result<usize, MessagesError>;

    /// Reads available bytes, or waits for a while; returns how many.
    fn take(&mut self, place: &mut [u8]) -> Result<usize, MessagesError>;
}

impl Stream for Native {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, MessagesError> {
        let count = self.engine.write(self.handle, bytes)?;
        if count == 0 {
            self.wait()?;
        } else {
            self.engine.poll()?;
        }
        Ok(count)
    }

    fn take(&mut self, _: &mut [u8]) -> Result<usize, MessagesError> {
        // The bytes are looked at where they are, as an application of the native interface does.
        let mut sum = 0_u64;
        let count = self.engine.read(self.handle, |piece| sum += u64::from(piece[0]))?;
        std::hint::black_box(sum);
        if count == 0 {
            self.wait()?;
        } else {
            self.engine.poll()?;
        }
        Ok(count)
    }
}

impl Stream for TcpStream {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, MessagesError> {
        self.write(bytes).map_err(MessagesError::system("write to a TCP connection"))
    }

    fn take(&mut self, place: &mut [u8]) -> Result<usize, MessagesError> {
        match self.read(place).map_err(MessagesError::system("read from a TCP connection"))? {
            0 => Err(MessagesError::Short("TCP")),
            count => Ok(count),
        }
    }
}

impl Stream for Brokered {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, MessagesError> {
        self.end.put(bytes)
    }

    fn take(&mut self, place: &mut [u8]) -> Result<usize, MessagesError> {
        Stream::take(&mut self.end, place)
    }
}

/// Seconds of a transfer, until the receiver confirms all bytes.
pub(super) fn transfer(bed: &Bed, transport: Transport, cpus: [u32; 2], bytes: u64) -> Result<f64, MessagesError> {
    match transport {
        Transport::Link | Transport::LinkSockets => between(link(bed, transport, Receive::Polling, true)?, cpus, bytes),
        Transport::Broker => between(brokered(bed, Receive::Sleeping)?, cpus, bytes),
        Transport::Tcp => match tcp(bed, Receive::Sleeping)? {
            Ok(ends) => between(ends, cpus, bytes),
            Err(_) => Err(MessagesError::Silent("TCP")),
        },
        Transport::Packet | Transport::Xdp | Transport::Udp => Err(MessagesError::Unreliable(transport)),
    }
}

fn between<S: Stream>([mut here, mut there]: [S; 2], cpus: [u32; 2], bytes: u64) -> Result<f64, MessagesError> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        let reads = scope.spawn(move || -> Result<(), MessagesError> {
            pin(cpus[1])?;
            take_all(&mut there, bytes)?;
            while !done.load(Ordering::Acquire) {
                there.serve()?;
                thread::yield_now();
            }
            Ok(())
        });
        let writes = scope.spawn(move || -> Result<f64, MessagesError> {
            let seconds = pin(cpus[0]).and_then(|()| put_all(&mut here, bytes));
            done.store(true, Ordering::Release);
            seconds
        });
        let written = writes.join().map_err(|_| MessagesError::Panicked("the end that writes"))?;
        reads.join().map_err(|_| MessagesError::Panicked("the end that reads"))??;
        written
    })
}

/// Reads `bytes`, and confirms by one byte.
pub(super) fn take_all<S: Stream + ?Sized>(there: &mut S, bytes: u64) -> Result<(), MessagesError> {
    let (mut place, mut left, mut last) = (vec![0; CHUNK_BYTES], bytes, Instant::now());
    while left > 0 {
        match there.take(&mut place)? as u64 {
            0 if last.elapsed() > MESSAGE_TIMEOUT => return Err(MessagesError::Silent("transfer")),
            0 => {}
            count => (left, last) = (left.saturating_sub(count), Instant::now()),
        }
    }
    while there.put(&[1])? == 0 {}
    Ok(())
}

/// Writes `bytes`; returns the seconds until the receiver confirms all.
pub(super) fn put_all<S: Stream + ?Sized>(here: &mut S, bytes: u64) -> Result<f64, MessagesError> {
    let (piece, mut left) = (vec![0x5a; CHUNK_BYTES], bytes);
    let (began, mut last) = (Instant::now(), Instant::now());
    while left > 0 {
        match here.put(&piece[..left.min(CHUNK_BYTES as u64) as usize])? as u64 {
            0 if last.elapsed() > MESSAGE_TIMEOUT => return Err(MessagesError::Silent("transfer")),
            0 => {}
            count => (left, last) = (left - count, Instant::now()),
        }
    }
    while here.take(&mut [0])? == 0 {
        if last.elapsed() > 2 * MESSAGE_TIMEOUT {
            return Err(MessagesError::Silent("transfer"));
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Writes until it is to stop.
pub(super) fn put_until<S: Stream + ?Sized>(here: &mut S, stop: &AtomicBool) -> Result<(), MessagesError> {
    let piece = vec![0x5a; CHUNK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        here.put(&piece)?;
    }
    Ok(())
}

/// Does `work` while bytes cross the same link over TCP, as many as can, with both ends on the CPUs of its ends.
pub(super) fn beside<T>(
    bed: &Bed,
    cpus: [u32; 2],
    work: impl FnOnce() -> Result<T, MessagesError>,
) -> Result<T, MessagesError> {
    let Ok([mut here, mut there]) = tcp(bed, Receive::Sleeping)? else { return Err(MessagesError::Silent("TCP")) };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let writes = scope.spawn(move || -> Result<(), MessagesError> {
            pin(cpus[0])?;
            put_until(&mut here, stop)?;
            here.shutdown(Shutdown::Write).map_err(MessagesError::system("end a TCP connection"))
        });
        let reads = scope.spawn(move || -> Result<(), MessagesError> {
            pin(cpus[1])?;
            let mut place = vec![0; CHUNK_BYTES];
            loop {
                match there.read(&mut place) {
                    Ok(0) => return Ok(()),
                    Err(e) if e.kind() != ErrorKind::Interrupted => {
                        return Err(MessagesError::System { operation: "read from a TCP connection", source: e });
                    }
                    _ => {}
                }
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        writes.join().map_err(|_| MessagesError::Panicked("the end that writes"))??;
        reads.join().map_err(|_| MessagesError::Panicked("the end that reads"))??;
        done
    })
}
