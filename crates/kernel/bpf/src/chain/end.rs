//! A program that ends frames: alone on its interface, or behind all others of a chain.

use std::os::fd::BorrowedFd;

use super::{Place, Slot, is_chain};
use crate::{
    link::{XdpError, XdpLink, XdpMode, attached},
    program::Program,
};

/// A program that ends what comes to it. Dropping it takes it off.
#[derive(Debug)]
pub enum AtEnd {
    /// The interface's only program: one jump less for each frame.
    Alone(XdpLink),
    /// The last place of the interface's chain.
    InChain(Slot),
}

impl AtEnd {
    /// Puts the program on `interface`, or in the last place of the chain that it runs.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        name: Program,
        interface: &str,
        mode: XdpMode,
    ) -> Result<Self, XdpError> {
        let has_chain = || Ok::<_, XdpError>(attached(interface)?.is_some_and(|runs| is_chain(&runs.name)));
        if !has_chain()? {
            match XdpLink::attach(program, name, interface, mode) {
                // A chain came in between.
                Err(_) if has_chain()? => {}
                alone => return alone.map(Self::Alone),
            }
        }
        let mut slot = Slot::take(interface, mode, &[Place::End])?;
        slot.put(&[program])?;
        Ok(Self::InChain(slot))
    }

    /// The mode in which the kernel says that it runs.
    pub fn mode(&self) -> XdpMode {
        match self {
            Self::Alone(link) => link.mode(),
            Self::InChain(slot) => slot.mode(),
        }
    }

    /// True if the interface still exists and runs it.
    pub fn is_alive(&self) -> bool {
        match self {
            Self::Alone(link) => link.is_alive(),
            Self::InChain(slot) => slot.is_alive(),
        }
    }

    /// Puts it back if somebody else emptied its place, and says so ([`Slot::put_back`]).
    pub fn put_back(&self) -> Option<String> {
        match self {
            Self::Alone(_) => None,
            Self::InChain(slot) => slot.put_back(),
        }
    }

    pub fn times_put_back(&self) -> u64 {
        match self {
            Self::Alone(_) => 0,
            Self::InChain(slot) => slot.times_put_back(),
        }
    }

    pub fn program_id(&self) -> u32 {
        match self {
            Self::Alone(link) => link.program_id(),
            Self::InChain(slot) => slot.program_id(),
        }
    }
}
