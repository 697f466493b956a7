//! The shield's program on an interface: replaced in one step, and kept beyond the end of the process if it is pinned.

use std::{
    io,
    ops::Deref,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use super::{PROGRAM, load::Shield};
use crate::{
    chain::{Place, Slot},
    link::{XdpError, XdpMode},
};

/// The shield's place in an interface's chain. Dropping it takes the program off, unless it is pinned.
#[derive(Debug)]
pub struct ShieldLink {
    slot: Slot,
    /// The program, for putting it back; none: another process put it there.
    program: Option<OwnedFd>,
}

impl Deref for ShieldLink {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl ShieldLink {
    /// Takes the shield's place on `interface`. No frame is judged before the first [`ShieldLink::put`], and nothing is attached.
    ///
    /// # Errors
    /// See [`Slot::take`].
    pub fn take(interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        Ok(Self { slot: Slot::take(interface, mode, &[Place::Filter])?, program: None })
    }

    /// Puts `shield` in the place, or in the place of the program that runs. Each packet sees the old one or the new one.
    ///
    /// # Errors
    /// [`XdpError::System`] with what the kernel answers, and those of [`crate::XdpLink::attach`]; the old program then goes on.
    pub fn put(&mut self, shield: &Shield) -> Result<(), XdpError> {
        if !shield.is_for(&self.slot.maps()) {
            let text = format!("the shield's program was not loaded for the chain of {}", self.interface());
            return Err(XdpError::setting(text));
        }
        let program = PROGRAM.descriptor(shield.as_fd())?;
        self.update(program)
    }

    /// The same on two interfaces: both run `shield` afterwards, or neither does.
    ///
    /// A program that another process attached can be put back only with CAP_SYS_ADMIN, which finds it by its id.
    ///
    /// # Errors
    /// [`XdpError::System`] of the interface that refused; where the other one could not be put back, that is said too.
    pub fn put_both(first: &mut Self, second: &mut Self, shield: &Shield) -> Result<(), XdpError> {
        let before = match &first.program {
            Some(program) => Some(PROGRAM.descriptor(program.as_fd())?),
            None => libbpf_rs::Program::fd_from_id(first.program_id()).ok(),
        };
        first.put(shield)?;
        let Err(refused) = second.put(shield) else { return Ok(()) };
        let why = match before {
            None => "the program that was there cannot be had without CAP_SYS_ADMIN".to_owned(),
            Some(before) => match first.update(before) {
                Ok(()) => return Err(refused),
                Err(error) => error.to_string(),
            },
        };
        let refused = std::error::Error::source(&refused).map_or_else(|| refused.to_string(), ToString::to_string);
        let both = format!("{refused}; {} runs the new rules already and cannot be put back: {why}", first.interface());
        let operation = "replace the shield's program";
        Err(XdpError::on(second.interface(), operation)(io::Error::other(both)))
    }

    fn update(&mut self, program: OwnedFd) -> Result<(), XdpError> {
        self.slot.put(&[program.as_fd()])?;
        self.program = Some(program);
        Ok(())
    }

    /// Keeps the program on the interface under the name `path` of a BPF file system, and names that begin with it, beyond the end of this
    /// process.
    pub fn pin(&mut self, path: &Path) -> Result<(), XdpError> {
        self.slot.pin(path)
    }

    /// The program that another process pinned as `path`, on an interface of this network namespace.
    ///
    /// # Errors
    /// [`XdpError::Pin`] if there is none, its interface is gone, or another version pinned it.
    pub fn open(path: &Path) -> Result<Self, XdpError> {
        Ok(Self { slot: Slot::open(path, Place::Filter)?, program: None })
    }

    /// Takes the program off although it is pinned ([`Slot::end`]).
    pub fn end(self) {
        self.slot.end();
    }

    /// The interface's new name, if it has another one than before: [`Slot::interface`] is the new one from then on.
    pub fn renamed(&mut self) -> Option<&str> {
        let now = self.slot.interface_name()?;
        if now == self.slot.interface() {
            return None;
        }
        self.slot.rename(now);
        Some(self.slot.interface())
    }
}
