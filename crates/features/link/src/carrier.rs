//! What carries frames.

use std::{fmt, hash::Hash, os::fd::BorrowedFd, time::Duration};

use transport::HEADER_BYTES;

use crate::LinkError;

/// What takes frames to other nodes and brings theirs.
pub trait Carrier {
    /// Where a node is.
    type Address: Copy + Eq + Hash + fmt::Debug + fmt::Display;

    /// Bytes of the longest payload behind a header.
    fn payload_max(&self) -> u16;

    /// Where a frame is sent that all nodes are to hear.
    fn everyone(&self) -> &[Self::Address];

    /// Hands over the frames that are there, headers first, and does not wait; how many. With each comes whether the place that it waited in was
    /// filled beyond a half.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn receive(&mut self, on: impl FnMut(Self::Address, &[u8], bool)) -> Result<usize, LinkError>;

    /// Puts a frame behind those that wait to be sent. Where there is no room those are sent first; one that finds none is lost.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn send(&mut self, to: Self::Address, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError>;

    /// Sends what waits.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Sleeps until a frame is there or `also` is readable, at most so long.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn wait(&mut self, at_most: Duration, also: Option<BorrowedFd<'_>>) -> Result<(), LinkError>;
}
