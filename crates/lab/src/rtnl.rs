//! Requests to the kernel's routing socket (rtnetlink(7)), one at a time, each acknowledged.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Sends `message` with `flags` besides REQUEST and ACK, in the calling thread's namespace, and waits for the verdict.
pub(crate) fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut buffer = vec![0; 8192];
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0)?;
        let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer[..length])
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        if let NetlinkPayload::Error(e) = reply.payload {
            return match e.code {
                None => Ok(()),
                Some(_) => Err(e.to_io()),
            };
        }
    }
}
