//! One connection: bytes between an end of a pair and a stream of link.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, Shutdown, recv, send, shutdown},
};
use transport::{Budget, Handle, Part, SendError, State};

use crate::{BrokerCarrier, Engine, LinkError};

/// Bytes that one system call moves, and that are buffered here.
pub(super) const PIECE: usize = 1 << 17;

/// Bytes of memory that a direction keeps while its buffer is empty.
const KEPT_BYTES_MAX: usize = 1 << 12;

/// Both directions of an open connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) stream: Handle,
    pub(super) end: OwnedFd,
    /// From the other node to the program.
    incoming: Waiting,
    /// From the program to the other node.
    outgoing: Waiting,
    /// Buffered bytes of both directions, in their user's budget.
    part: Part,
    /// The end may be readable; it may be writable.
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// Since when no process holds the program's end.
    pub(super) gone: Option<Instant>,
    /// The program reads no more (SHUT_RD).
    is_deaf: bool,
    /// The program sends no more; the stream is closed; the program's end is shut down, as the other node sends no more.
    program_ended: bool,
    is_closed: bool,
    is_shut: bool,
    /// The program is being taken over: its end is not read any more.
    is_taken: bool,
    /// Nothing more comes by this stream.
    is_moved: bool,
    /// Bytes from the program, and to it.
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// A buffer of bytes that found no room.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    at: usize,
}

impl Waiting {
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
        Self {
            stream,
            end,
            received: early.len() as u64,
            incoming: Waiting { bytes: early, at: 0 },
            outgoing: Waiting::default(),
            part: Part::default(),
            is_readable: true,
            is_writable: true,
            gone: None,
            is_deaf: false,
            program_ended: false,
            is_closed: false,
            is_shut: false,
            is_taken: false,
            is_moved: false,
            sent: 0,
        }
    }

    /// Counts bytes buffered here and in the stream in a budget from now on.
    pub(super) fn share(&mut self, engine: &mut Engine<BrokerCarrier>, budget: &Arc<Budget>) {
        engine.share(self.stream, budget);
        self.part.share(budget);
        self.count();
    }

    fn count(&mut self) {
        let bytes = self.incoming.bytes.len() + self.outgoing.bytes.len();
        if bytes != self.part.bytes() {
            self.part.set(bytes);
        }
    }

    /// Stops reading the program's end, which the program takes over; bytes read so far.
    pub(super) fn take(&mut self) -> u64 {
        self.is_taken = true;
        self.sent
    }

    /// Reads the program's end again: the takeover failed.
    pub(super) fn give_back(&mut self) {
        (self.is_taken, self.is_readable) = (self.is_moved, true);
        if self.is_shut {
            // The other node has closed meanwhile.
            let _ = shutdown(self.end.as_raw_fd(), Shutdown::Write);
        }
    }

    /// Whether the program's end is shut down.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Whether the program has taken the connection over.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Ends a taken flow once its buffers are sent: nothing more comes by it.
    pub(super) fn moved(&mut self) {
        self.is_moved = true;
    }

    /// Bytes delivered to the program's end.
    pub(super) fn delivered(&self) -> u64 {
        self.received - self.incoming.left().len() as u64
    }

    /// Puts bytes in front of those of the stream.
    pub(super) fn put_first(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.incoming.bytes.extend_from_slice(bytes);
    }

    /// Copies buffered bytes for the program's end into `to`; returns how many.
    pub(super) fn read_waiting(&mut self, to: &mut [u8]) -> usize {
        let left = self.incoming.left();
        let count = left.len().min(to.len());
        to[..count].copy_from_slice(&left[..count]);
        self.incoming.at += count;
        count
    }

    /// Whether no bytes for the program's end are buffered.
    pub(super) fn has_passed_all(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Whether no bytes of the program are buffered, and it may send more.
    pub(super) fn has_sent_all(&self) -> bool {
        self.outgoing.is_empty() && !self.program_ended
    }

    /// Moves all bytes that can be moved now; `piece` has room for [`PIECE`] bytes.
    ///
    /// # Errors
    /// The connection broke; the program's end is gone (EPIPE, ECONNRESET).
    pub(super) fn pump(&mut self, engine: &mut Engine<BrokerCarrier>, piece: &mut [u8]) -> Result<Next, LinkError> {
        self.collect(engine, piece)?;
        self.deliver(engine, piece)?;
        self.count();
        match engine.state(self.stream) {
            // Also where neither direction had bytes to move.
            Some(State::Failed(reason)) => Err(LinkError::Ended(reason)),
            _ if self.is_closed && self.is_shut => Ok(Next::Done),
            _ => Ok(Next::More),
        }
    }

    /// Moves received bytes into the program's end.
    pub(super) fn deliver(&mut self, engine: &mut Engine<BrokerCarrier>, piece: &mut [u8]) -> Result<(), LinkError> {
        while self.is_writable && !self.is_shut {
            if self.incoming.is_empty() {
                let read = engine.read_into(self.stream, piece)?;
                if read == 0 {
                    if engine.is_at_end(self.stream) {
                        self.is_shut = true;
                        if !self.is_taken {
                            // The program may have closed it before.
                            let _ = shutdown(self.end.as_raw_fd(), Shutdown::Write);
                        }
                    }
                    return Ok(());
                }
                self.received += read as u64;
                if self.is_deaf {
                    match self.gone {
                        None => continue,
                        Some(_) => return Err(gone(Errno::EPIPE)),
                    }
                }
                let sent = self.pass_on(&piece[..read])?;
                self.incoming.clear();
                self.incoming.bytes.extend_from_slice(&piece[sent..read]);
            } else {
                let waiting = std::mem::take(&mut self.incoming);
                let sent = self.pass_on(waiting.left());
                self.incoming = waiting;
                self.incoming.at += sent?;
                if self.incoming.is_empty() {
                    self.incoming.clear();
                }
            }
        }
        Ok(())
    }

    /// Sends bytes to the program's end; returns how many it took.
    fn pass_on(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        loop {
            return match send(self.end.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => Ok(sent),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    self.is_writable = false;
                    Ok(0)
                }
                // After SHUT_RD the program may still write. Received bytes are dropped, as in TCP.
                Err(Errno::EPIPE) if self.gone.is_none() => {
                    self.is_deaf = true;
                    Ok(bytes.len())
                }
                Err(error) => Err(gone(error)),
            };
        }
    }

    /// Moves bytes of the program into the stream.
    pub(super) fn collect(&mut self, engine: &mut Engine<BrokerCarrier>, piece: &mut [u8]) -> Result<(), LinkError> {
        while !self.is_closed {
            if !self.outgoing.is_empty() {
                match engine.write(self.stream, self.outgoing.left())? {
                    0 => return Ok(()),
                    written => self.outgoing.at += written,
                }
                if self.outgoing.is_empty() {
                    self.outgoing.clear();
                }
            } else if self.program_ended || self.is_moved {
                match engine.close(self.stream) {
                    Err(SendError::Full) => {}
                    _ => self.is_closed = true,
                }
                return Ok(());
            } else if self.is_readable && !self.is_taken {
                // With the budget spent only bytes that the stream takes are read: the rest stays in the pair.
                let most = match self.part.is_spent() {
                    true => engine.room(self.stream).min(piece.len()),
                    false => piece.len(),
                };
                if most == 0 {
                    return Ok(());
                }
                match recv(self.end.as_raw_fd(), &mut piece[..most], MsgFlags::MSG_DONTWAIT) {
                    Ok(0) => self.program_ended = true,
                    Ok(read) => {
                        self.sent += read as u64;
                        let written = engine.write(self.stream, &piece[..read])?;
                        self.outgoing.clear();
                        self.outgoing.bytes.extend_from_slice(&piece[written..read]);
                    }
                    Err(Errno::EAGAIN) => self.is_readable = false,
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(gone(error)),
                }
            } else {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn gone(error: Errno) -> LinkError {
    LinkError::System { operation: "pass bytes to a program", source: error.into() }
}
