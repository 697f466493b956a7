//! The trait of carriers of frames.

use std::{fmt, hash::Hash, time::Duration};

use nix::sys::epoll::Epoll;
use transport::{Endpoints, HEADER_BYTES};

use crate::LinkError;

/// Sends frames to other nodes, and receives theirs.
pub trait Carrier {
    type Address: Copy + Eq + Hash + fmt::Debug + fmt::Display;

    /// Bytes of the longest payload behind a header.
    fn payload_max(&self) -> u16;

    /// Address of all nodes.
    fn everyone(&self) -> &[Self::Address];

    /// Hands over the frames that are there, headers first, and does not wait; how many. With each comes whether the place that it waited in was
    /// filled beyond a half.
    fn receive(&mut self, on: impl FnMut(Self::Address, &[u8], bool)) -> Result<usize, LinkError>;

    /// Puts a frame behind those that wait to be sent. Where there is no room those are sent first; one that finds none is lost.
    fn send(&mut self, to: Self::Address, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError>;

    fn flush(&mut self) -> Result<(), LinkError>;

    /// Sleeps until a frame is there, at most so long; false: a signal ended it.
    fn wait(&mut self, at_most: Duration) -> Result<bool, LinkError>;

    /// Adds to an epoll instance what becomes readable when a frame comes between [`Carrier::sleep`] and [`Carrier::awake`].
    fn watch(&self, epoll: &Epoll) -> Result<(), LinkError>;

    /// The interface was down when frames were last sent or waited for. Always false where the carrier cannot tell.
    fn is_down(&self) -> bool {
        false
    }

    /// Says that its user goes to sleep; false: a frame is there.
    fn sleep(&mut self) -> bool;

    /// Says that its user is awake: a frame wakes nobody.
    fn awake(&mut self);

    /// The place of a connection, below 65,535, now has this one, or none.
    fn set_connection(&mut self, _slot: u32, _endpoints: Option<Endpoints<Self::Address>>) {}

    /// All connections are ended.
    fn clear_connections(&mut self) {}
}
