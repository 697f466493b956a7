//! Requests to the kernel's routing socket (rtnetlink(7)), each acknowledged.

use std::io;

use host::netlink::{Netlink, ONE};
use netlink_packet_core::NetlinkSerializable;
use netlink_packet_route::RouteNetlinkMessage;
use nix::sys::socket::SockProtocol;

/// Sends `message` with `flags` besides REQUEST and ACK, in the calling thread's namespace, and waits for the verdict.
pub(crate) fn request(message: &RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut body = vec![0; message.buffer_len()];
    message.serialize(&mut body);
    Netlink::open(SockProtocol::NetlinkRoute)?.ask(message.message_type(), ONE | flags, &body, |_, _| {})
}
