//! What a program's reads and writes come to.

use std::{
    os::fd::{AsRawFd, RawFd},
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, recv},
};

use super::{Direct, Id, One, PEEK, Stage, Step};

impl Direct {
    /// [`Direct::read`] has something to say.
    pub fn is_readable(&mut self, id: Id) -> bool {
        match self.all.get(&id) {
            Some(One { stage: Stage::Open { flow, .. }, .. }) => {
                !flow.has_passed_all() || self.engine.is_readable(flow.stream)
            }
            _ => false,
        }
    }

    /// Its descriptor has something to say.
    pub fn has_passed(&mut self, id: Id) {
        if let Some(One { stage: Stage::Open { has_passed, .. }, .. }) = self.all.get_mut(&id) {
            *has_passed = true;
        }
    }

    /// Something came for it since the last read.
    pub fn has_something(&self, id: Id) -> bool {
        self.all.get(&id).is_none_or(|one| one.unread.is_some() || one.broke.is_some())
    }

    /// Reads for the program by its descriptor `fd`.
    pub fn read(&mut self, id: Id, fd: RawFd, to: &mut [u8]) -> Step {
        let Some(one) = self.all.get_mut(&id) else { return Step::Kernel };
        if one.is_orphan {
            return Step::Kernel;
        }
        if let Some(error) = one.broke {
            return Step::Broke(error as i32);
        }
        let Stage::Open { flow, has_passed } = &mut one.stage else { return Step::Kernel };
        if *has_passed {
            match recv(fd, to, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => *has_passed = false,
                Ok(0) if flow.is_shut() => return Step::Done(0),
                // The broker ended it: it says why.
                Ok(0) => return Step::Kernel,
                Ok(read) => return Step::Done(read),
                // The descriptor is another one by now.
                Err(_) => return Step::Kernel,
            }
        }
        if !flow.has_passed_all() {
            return Step::Done(flow.read_waiting(to));
        }
        match self.engine.read_into(flow.stream, to) {
            Ok(0) if self.engine.is_at_end(flow.stream) => {
                // The pair says so from now on.
                self.pass(id);
                Step::Done(0)
            }
            Ok(0) => {
                one.unread = None;
                Step::Waits
            }
            Ok(read) => {
                flow.received += read as u64;
                // What it left is looked at again.
                let was_known = one.unread.is_some();
                one.unread = (read == to.len()).then(Instant::now);
                if one.unread.is_some() && !was_known {
                    self.unread.push(id);
                }
                Step::Done(read)
            }
            Err(error) => {
                self.broke(id, &error);
                self.all.get(&id).and_then(|one| one.broke).map_or(Step::Kernel, |error| Step::Broke(error as i32))
            }
        }
    }

    /// Writes for the program as much as there is room for; it has left when this comes back.
    pub fn write(&mut self, id: Id, bytes: &[u8]) -> Step {
        let Some(one) = self.all.get_mut(&id) else { return Step::Kernel };
        let Stage::Open { flow, .. } = &mut one.stage else { return Step::Kernel };
        if one.broke.is_some() || one.is_orphan {
            return Step::Kernel;
        }
        // What was written by another way goes first.
        match recv(flow.end.as_raw_fd(), &mut [0], PEEK) {
            Err(Errno::EAGAIN) if flow.has_sent_all() => {}
            Ok(0) => return Step::Kernel,
            _ => {
                flow.is_readable = true;
                if let Err(error) = flow.collect(&mut self.engine, &mut self.piece) {
                    self.broke(id, &error);
                    return Step::Kernel;
                }
                if flow.is_readable || !flow.has_sent_all() {
                    return Step::Kernel;
                }
            }
        }
        match self.engine.write(flow.stream, bytes) {
            Ok(0) if !bytes.is_empty() => Step::Waits,
            Ok(written) => {
                flow.sent += written as u64;
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
