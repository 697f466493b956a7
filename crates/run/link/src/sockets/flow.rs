//! Transfer of a connection's bytes between an end of a pair and a stream of link.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, Shutdown, recv, send, shutdown},
};
use transport::{Budget, Charge, Handle, SendError, State};

use crate::{BrokerCarrier, Engine, LinkError};

/// Bytes that one system call moves, and that are buffered here.
pub(super) const PIECE_BYTES: usize = 1 << 17;

/// Bytes of memory that a direction keeps while its buffer is empty.
const KEPT_BYTES_MAX: usize = 1 << 12;

/// An open connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) stream: Handle,
    /// The broker's end of the pair.
    pub(super) end: OwnedFd,
    pub(super) from_program: FromProgram,
    pub(super) to_program: ToProgram,
    /// Buffered bytes of both directions.
    charge: Charge,
    /// Time since when no process holds the program's end.
    pub(super) hung_up: Option<Instant>,
    /// The program is being taken over: its end is not read any more.
    is_taken: bool,
    /// All further bytes bypass this stream.
    is_moved: bool,
}

/// Bytes from the program's end to the stream.
#[derive(Debug, Default)]
pub(super) struct FromProgram {
    /// Bytes read from the end.
    pub(super) bytes: u64,
    /// The end may be readable.
    pub(super) is_readable: bool,
    buffer: Buffer,
    /// The program has closed its sending direction.
    has_ended: bool,
    /// The sending direction of the stream is closed.
    is_closed: bool,
}

/// Bytes from the stream to the program's end.
#[derive(Debug, Default)]
pub(super) struct ToProgram {
    /// Bytes read from the stream.
    pub(super) bytes: u64,
    /// The end may be writable.
    pub(super) is_writable: bool,
    buffer: Buffer,
    /// The program reads no more (SHUT_RD): bytes are dropped.
    is_discarded: bool,
    /// The other node has closed, and so the end is shut down.
    is_shut: bool,
}

/// Bytes that found no room.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Frees a large buffer.
    fn clear(&mut self) {
        self.at = 0;
        match self.bytes.capacity() {
            0..=KEPT_BYTES_MAX => self.bytes.clear(),
            _ => self.bytes = Vec::new(),
        }
    }
}

/// State of a flow after a pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    More,
    /// Both directions have ended.
    Done,
}

impl Flow {
    /// `early`: bytes for the program that arrived before the pair was made.
    pub(super) fn new(stream: Handle, end: OwnedFd, early: Vec<u8>) -> Self {
        let buffer = Buffer { bytes: early, at: 0 };
        Self {
            stream,
            end,
            from_program: FromProgram { is_readable: true, ..FromProgram::default() },
            to_program: ToProgram {
                bytes: buffer.bytes.len() as u64,
                is_writable: true,
                buffer,
                ..ToProgram::default()
            },
            charge: Charge::default(),
            hung_up: None,
            is_taken: false,
            is_moved: false,
        }
    }

    /// Charges bytes buffered here and in the stream to a budget, or to none.
    pub(super) fn charge_to(&mut self, engine: &mut Engine<BrokerCarrier>, budget: Option<&Arc<Budget>>) {
        engine.charge_to(self.stream, budget);
        self.charge.charge_to(budget);
        self.update_charge();
    }

    fn update_charge(&mut self) {
        let bytes = self.to_program.buffer.bytes.len() + self.from_program.buffer.bytes.len();
        if bytes != self.charge.bytes() {
            self.charge.set(bytes);
        }
    }

    /// Stops reading the program's end, as the program takes over; returns the bytes read so far.
    pub(super) fn take(&mut self) -> u64 {
        self.is_taken = true;
        self.from_program.bytes
    }

    /// Reads the program's end again: the takeover failed.
    pub(super) fn give_back(&mut self) {
        (self.is_taken, self.from_program.is_readable) = (self.is_moved, true);
        if self.to_program.is_shut {
            // The other node has closed meanwhile.
            let _ = shutdown(self.end.as_raw_fd(), Shutdown::Write);
        }
    }

    /// True if the program's end is shut down.
    pub(super) fn is_shut(&self) -> bool {
        self.to_program.is_shut
    }

    /// True once the program takes the connection over.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Ends a taken flow once its buffers are sent.
    pub(super) fn moved(&mut self) {
        self.is_moved = true;
    }

    /// Bytes delivered to the program's end.
    pub(super) fn delivered(&self) -> u64 {
        self.to_program.bytes - self.to_program.buffer.left().len() as u64
    }

    /// Adds bytes that precede those of the stream.
    pub(super) fn prepend(&mut self, bytes: &[u8]) {
        self.to_program.bytes += bytes.len() as u64;
        self.to_program.buffer.bytes.extend_from_slice(bytes);
    }

    /// Copies buffered bytes for the program's end into `to`; returns how many.
    pub(super) fn read_buffered(&mut self, to: &mut [u8]) -> usize {
        let left = self.to_program.buffer.left();
        let count = left.len().min(to.len());
        to[..count].copy_from_slice(&left[..count]);
        self.to_program.buffer.at += count;
        count
    }

    /// True if no bytes for the program's end are buffered.
    pub(super) fn is_delivered(&self) -> bool {
        self.to_program.buffer.is_empty()
    }

    /// True if no bytes of the program are buffered, and it may send more.
    pub(super) fn is_sent(&self) -> bool {
        self.from_program.buffer.is_empty() && !self.from_program.has_ended
    }

    /// Moves all bytes that can be moved now; `piece` has room for [`PIECE_BYTES`] bytes.
    ///
    /// # Errors
    /// The connection broke, or the program's end is closed (EPIPE, ECONNRESET).
    pub(super) fn pump(&mut self, engine: &mut Engine<BrokerCarrier>, piece: &mut [u8]) -> Result<Next, LinkError> {
        self.collect(engine, piece)?;
        self.deliver(engine, piece)?;
        self.update_charge();
        match engine.state(self.stream) {
            // Also where neither direction had bytes to move.
            Some(State::Failed(reason)) => Err(LinkError::Ended(reason)),
            _ if self.from_program.is_closed && self.to_program.is_shut => Ok(Next::Done),
            _ => Ok(Next::More),
        }
    }

    /// Moves received bytes into the program's end.
    pub(super) fn deliver(&mut self, engine: &mut Engine<BrokerCarrier>, piece: &mut [u8]) -> Result<(), LinkError> {
        while self.to_program.is_writable && !self.to_program.is_shut {
            if self.to_program.buffer.is_empty() {
                let read = engine.read_into(self.stream, piece)?;
                if read == 0 {
                    if engine.is_at_end(self.stream) {
                        self.to_program.is_shut = true;
                        if !self.is_taken {
                            // The program may have closed it before.
                            let _ = shutdown(self.end.as_raw_fd(), Shutdown::Write);
                        }
                    }
                    return Ok(());
                }
                self.to_program.bytes += read as u64;
                if self.to_program.is_discarded {
                    match self.hung_up {
                        None => continue,
                        Some(_) => return Err(end_closed(Errno::EPIPE)),
                    }
                }
                let sent = self.send_to_end(&piece[..read])?;
                self.to_program.buffer.clear();
                self.to_program.buffer.bytes.extend_from_slice(&piece[sent..read]);
            } else {
                let buffer = std::mem::take(&mut self.to_program.buffer);
                let sent = self.send_to_end(buffer.left());
                self.to_program.buffer = buffer;
                self.to_program.buffer.at += sent?;
                if self.to_program.buffer.is_empty() {
                    self.to_program.buffer.clear();
                }
            }
        }
        Ok(())
    }

    /// Sends bytes to the program's end; returns how many it took.
    fn send_to_end(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        loop {
            return match send(self.end.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => Ok(sent),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    self.to_program.is_writable = false;
                    Ok(0)
                }
                // After SHUT_RD the program may still write. Received bytes are dropped, as in TCP.
                Err(Errno::EPIPE) if self.hung_up.is_none() => {
                    self.to_program.is_discarded = true;
                    Ok(bytes.len())
                }
                Err(error) => Err(end_closed(error)),
            };
        }
    }

    /// Moves bytes of the program into the stream.
    pub(super) fn collect(&mut self, engine: &mut Engine<BrokerCarrier>, piece: &mut [u8]) -> Result<(), LinkError> {
        while !self.from_program.is_closed {
            if !self.from_program.buffer.is_empty() {
                match engine.write(self.stream, self.from_program.buffer.left())? {
                    0 => return Ok(()),
                    written => self.from_program.buffer.at += written,
                }
                if self.from_program.buffer.is_empty() {
                    self.from_program.buffer.clear();
                }
            } else if self.from_program.has_ended || self.is_moved {
                match engine.close(self.stream) {
                    Err(SendError::Full) => {}
                    _ => self.from_program.is_closed = true,
                }
                return Ok(());
            } else if self.from_program.is_readable && !self.is_taken {
                // With an exhausted budget only bytes that the stream has room for are read; the rest stays in the pair.
                let max = match self.charge.is_exhausted() {
                    true => engine.room(self.stream).min(piece.len()),
                    false => piece.len(),
                };
                if max == 0 {
                    return Ok(());
                }
                match recv(self.end.as_raw_fd(), &mut piece[..max], MsgFlags::MSG_DONTWAIT) {
                    Ok(0) => self.from_program.has_ended = true,
                    Ok(read) => {
                        self.from_program.bytes += read as u64;
                        let written = engine.write(self.stream, &piece[..read])?;
                        self.from_program.buffer.clear();
                        self.from_program.buffer.bytes.extend_from_slice(&piece[written..read]);
                    }
                    Err(Errno::EAGAIN) => self.from_program.is_readable = false,
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(end_closed(error)),
                }
            } else {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn end_closed(error: Errno) -> LinkError {
    LinkError::System { operation: "pass bytes to a program", source: error.into() }
}
