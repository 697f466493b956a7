//! Reads and writes of the program.

use std::{
    os::fd::{AsRawFd, RawFd},
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, recv},
};

use super::{Connection, ConnectionId, PEEK, Progress, Step, Takeovers};

impl Takeovers {
    /// True if [`Takeovers::read`] would return something.
    pub fn is_readable(&mut self, id: ConnectionId) -> bool {
        match self.connections.all.get(&id) {
            Some(Connection { progress: Progress::TakenOver { flow, .. }, .. }) => {
                !flow.is_delivered() || self.engine.is_readable(flow.stream)
            }
            _ => false,
        }
    }

    /// Notes that its pair has bytes.
    pub fn has_passed(&mut self, id: ConnectionId) {
        if let Some(Connection { progress: Progress::TakenOver { has_passed, .. }, .. }) =
            self.connections.all.get_mut(&id)
        {
            *has_passed = true;
        }
    }

    /// True if bytes arrived for a connection since the last read.
    pub fn has_unread_of(&self, id: ConnectionId) -> bool {
        self.connections.all.get(&id).is_none_or(|one| one.unread.is_some() || one.broke.is_some())
    }

    /// Reads for the program, whose descriptor is `fd`.
    pub fn read(&mut self, id: ConnectionId, fd: RawFd, to: &mut [u8]) -> Step {
        let Some(one) = self.connections.all.get_mut(&id) else { return Step::Kernel };
        if one.is_orphan {
            return Step::Kernel;
        }
        if let Some(error) = one.broke {
            return Step::Broke(error as i32);
        }
        let Progress::TakenOver { flow, has_passed } = &mut one.progress else { return Step::Kernel };
        if *has_passed {
            match recv(fd, to, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => *has_passed = false,
                Ok(0) if flow.is_shut() => return Step::Done(0),
                // The broker ended it, and knows the error.
                Ok(0) => return Step::Kernel,
                Ok(read) => return Step::Done(read),
                // The number was reused.
                Err(_) => return Step::Kernel,
            }
        }
        if !flow.is_delivered() {
            return Step::Done(flow.read_buffered(to));
        }
        match self.engine.read_into(flow.stream, to) {
            Ok(0) if self.engine.is_at_end(flow.stream) => {
                // The pair is at its end from now on.
                self.pass(id);
                Step::Done(0)
            }
            Ok(0) => {
                one.unread = None;
                Step::Waits
            }
            Ok(read) => {
                flow.to_program.bytes += read as u64;
                // More bytes may be left.
                let was_known = one.unread.is_some();
                one.unread = (read == to.len()).then(Instant::now);
                if one.unread.is_some() && !was_known {
                    self.unread.push(id);
                }
                Step::Done(read)
            }
            Err(error) => {
                self.broke(id, &error);
                self.connections
                    .all
                    .get(&id)
                    .and_then(|one| one.broke)
                    .map_or(Step::Kernel, |error| Step::Broke(error as i32))
            }
        }
    }

    /// Writes as many bytes for the program as there is room for, and sends them.
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> Step {
        let Some(one) = self.connections.all.get_mut(&id) else { return Step::Kernel };
        let Progress::TakenOver { flow, .. } = &mut one.progress else { return Step::Kernel };
        if one.broke.is_some() || one.is_orphan {
            return Step::Kernel;
        }
        // Bytes written into the pair go first.
        match recv(flow.end.as_raw_fd(), &mut [0], PEEK) {
            Err(Errno::EAGAIN) if flow.is_sent() => {}
            Ok(0) => return Step::Kernel,
            _ => {
                flow.from_program.is_readable = true;
                if let Err(error) = flow.collect(&mut self.engine, &mut self.piece) {
                    self.broke(id, &error);
                    return Step::Kernel;
                }
                if flow.from_program.is_readable || !flow.is_sent() {
                    return Step::Kernel;
                }
            }
        }
        match self.engine.write(flow.stream, bytes) {
            Ok(0) if !bytes.is_empty() => Step::Waits,
            Ok(written) => {
                flow.from_program.bytes += written as u64;
                if let Err(error) = self.engine.flush() {
                    self.broke(id, &error);
                }
                Step::Done(written)
            }
            Err(error) => {
                self.broke(id, &error);
                Step::Kernel
            }
        }
    }
}
