//! Requests to the kernel's routing socket (rtnetlink(7)), one at a time, each acknowledged or answered.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Sends `message` with `flags` besides REQUEST and ACK, in the calling thread's namespace, and waits for the verdict.
pub(crate) fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let socket = send(message, NLM_F_ACK | flags)?;
    let mut buffer = vec![0; 8192];
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0)?;
        let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer[..length]).map_err(invalid)?;
        if let NetlinkPayload::Error(e) = reply.payload {
            return match e.code {
                None => Ok(()),
                Some(_) => Err(e.to_io()),
            };
        }
    }
}

/// Sends `message` with `flags` besides REQUEST, in the calling thread's namespace, and gives all messages of the answer.
pub(crate) fn ask(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = send(message, flags)?;
    let mut buffer = vec![0; 64 << 10];
    let mut answers = Vec::new();
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0)?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(invalid)?;
            let step = (reply.header.length as usize).next_multiple_of(4).clamp(1, rest.len());
            rest = &rest[step..];
            match reply.payload {
                NetlinkPayload::Done(_) => return Ok(answers),
                NetlinkPayload::Error(e) => return Err(e.to_io()),
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                _ => {}
            }
        }
    }
}

fn send(message: RouteNetlinkMessage, flags: u16) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = NLM_F_REQUEST | flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(socket)
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
