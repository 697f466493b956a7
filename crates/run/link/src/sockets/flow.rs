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

use crate::{Either, Engine, LinkError};

/// Bytes that one system call moves at the most, and that wait here.
pub(super) const PIECE: usize = 1 << 17;

/// Bytes of memory that a way keeps while nothing waits for it.
const KEPT: usize = 1 << 12;

/// The two ways of a connection that is open.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) stream: Handle,
    pub(super) end: OwnedFd,
    /// From the other node, for the program.
    incoming: Waiting,
    /// From the program, for the other node.
    outgoing: Waiting,
    /// The bytes that wait both ways, in their user's budget.
    part: Part,
    /// The end may be readable, may be writable.
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// Since when no process holds the program's end.
    pub(super) gone: Option<Instant>,
    /// The program reads nothing more.
    is_deaf: bool,
    /// The program sends nothing more; the other node has been told; the program was told of the other node's end.
    program_ended: bool,
    is_closed: bool,
    is_shut: bool,
    /// What the program sends from now on goes another way.
    is_taken: bool,
    /// Nothing comes for it by this stream any more.
    is_moved: bool,
    /// Bytes from the program, and to it.
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// Bytes that could not go on at once.
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

    /// Long ones give their memory back.
    fn clear(&mut self) {
        self.at = 0;
        match self.bytes.capacity() {
            0..=KEPT => self.bytes.clear(),
            _ => self.bytes = Vec::new(),
        }
    }
}

/// What became of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It goes on.
    More,
    /// Both ways have ended.
    Done,
}

impl Flow {
    /// `early` came before the pair was there.
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

    /// Counts what waits, here and in the stream, in a budget from now on.
    pub(super) fn share(&mut self, engine: &mut Engine<Either>, budget: &Arc<Budget>) {
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

    /// Takes nothing more from the program's end: what it sends from now on goes another way. The bytes that were taken so far.
    pub(super) fn take(&mut self) -> u64 {
        self.is_taken = true;
        self.sent
    }

    /// Takes again what the program sends: no other way has been used.
    pub(super) fn give_back(&mut self) {
        (self.is_taken, self.is_readable) = (self.is_moved, true);
        if self.is_shut {
            // The other node had ended meanwhile.
            let _ = shutdown(self.end.as_raw_fd(), Shutdown::Write);
        }
    }

    /// Was the program told that nothing follows?
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Is it taken?
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Ends a flow that is taken once what it has is away: nothing comes for the program by it any more.
    pub(super) fn moved(&mut self) {
        self.is_moved = true;
    }

    /// Bytes that the program's end has got.
    pub(super) fn delivered(&self) -> u64 {
        self.received - self.incoming.left().len() as u64
    }

    /// Bytes that came before those of the stream.
    pub(super) fn put_first(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.incoming.bytes.extend_from_slice(bytes);
    }

    /// Copies bytes that wait for the program's end into `to`; how many.
    pub(super) fn read_waiting(&mut self, to: &mut [u8]) -> usize {
        let left = self.incoming.left();
        let count = left.len().min(to.len());
        to[..count].copy_from_slice(&left[..count]);
        self.incoming.at += count;
        count
    }

    /// Nothing waits here for the program's end.
    pub(super) fn has_passed_all(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Nothing of the program waits here for room in the stream, and more may follow.
    pub(super) fn has_sent_all(&self) -> bool {
        self.outgoing.is_empty() && !self.program_ended
    }

    /// Moves what can be moved now; `piece` is room for [`PIECE`] bytes.
    ///
    /// # Errors
    /// The connection has ended otherwise than by both closing; the program's end is gone (EPIPE, ECONNRESET).
    pub(super) fn turn(&mut self, engine: &mut Engine<Either>, piece: &mut [u8]) -> Result<Next, LinkError> {
        self.collect(engine, piece)?;
        self.deliver(engine, piece)?;
        self.count();
        match engine.state(self.stream) {
            // Also where neither way had anything to move.
            Some(State::Failed(reason)) => Err(LinkError::Ended(reason)),
            _ if self.is_closed && self.is_shut => Ok(Next::Done),
            _ => Ok(Next::More),
        }
    }

    /// Moves what came into the program's end.
    ///
    /// # Errors
    /// As [`Flow::turn`].
    pub(super) fn deliver(&mut self, engine: &mut Engine<Either>, piece: &mut [u8]) -> Result<(), LinkError> {
        while self.is_writable && !self.is_shut {
            if self.incoming.is_empty() {
                let read = engine.read_into(self.stream, piece)?;
                if read == 0 {
                    if engine.is_at_end(self.stream) {
                        self.is_shut = true;
                        if !self.is_taken {
                            // The program may have closed it already.
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

    /// As many as the program's end takes now.
    fn pass_on(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        loop {
            return match send(self.end.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => Ok(sent),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    self.is_writable = false;
                    Ok(0)
                }
                // It has said that it reads no more (SHUT_RD), and may still write: what comes is dropped, as TCP does.
                Err(Errno::EPIPE) if self.gone.is_none() => {
                    self.is_deaf = true;
                    Ok(bytes.len())
                }
                Err(error) => Err(gone(error)),
            };
        }
    }

    /// Moves what the program sent into the stream.
    ///
    /// # Errors
    /// As [`Flow::turn`].
    pub(super) fn collect(&mut self, engine: &mut Engine<Either>, piece: &mut [u8]) -> Result<(), LinkError> {
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
                // Once the budget is spent nothing waits here that the stream does not take: the rest stays with the program.
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
