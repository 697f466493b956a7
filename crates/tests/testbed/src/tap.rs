//! All frames of a namespace, as they come and leave.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket,
            sockopt::{RcvBufForce, ReceiveTimeout},
        },
        time::{TimeVal, TimeValLike},
    },
};

use crate::Space;

/// All that comes while its thread does not run.
const BUFFER_BYTES: usize = 64 << 20;
const WAIT_MS: i64 = 200;

/// Sees each frame, whomever it is for.
#[derive(Debug)]
pub struct Tap(OwnedFd);

impl Tap {
    pub fn open(space: &Space) -> Self {
        space.run(|| {
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
            setsockopt(&socket, RcvBufForce, &BUFFER_BYTES).unwrap();
            setsockopt(&socket, ReceiveTimeout, &TimeVal::milliseconds(WAIT_MS)).unwrap();
            Self(socket)
        })
    }

    /// The next frame, its beginning if it is longer than the buffer; none: nothing came for a while.
    pub fn next<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        loop {
            match recv(self.0.as_raw_fd(), buffer, MsgFlags::empty()) {
                Ok(len) => return Some(&buffer[..len]),
                Err(Errno::EAGAIN) => return None,
                Err(Errno::EINTR) => {}
                Err(e) => panic!("a tap: {e}"),
            }
        }
    }
}
