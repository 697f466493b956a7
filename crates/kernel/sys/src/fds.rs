//! Descriptors that came over a Unix socket.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// Descriptors of a message: the kernel's own limit (SCM_MAX_FD). With less room the kernel would install some that no message names, and they would stay open.
pub const DESCRIPTORS_MAX: usize = 253;

/// A message of a Unix socket, and its descriptors.
#[derive(Debug)]
pub struct Message {
    pub bytes: usize,
    pub fds: Vec<OwnedFd>,
    /// This process had no room for all of its descriptors (MSG_CTRUNC).
    pub is_cut: bool,
}

/// Receives a message with all descriptors that the kernel installs, which nix leaves open where there was no room for the rest.
///
/// # Errors
/// Errors of recvmsg(2) but EINTR, after which it is called again.
pub fn receive(socket: &impl AsFd, text: &mut [u8]) -> io::Result<Message> {
    // SAFETY: it computes a number.
    const SPACE: usize = unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) } as usize;
    /// Aligned as the header of a control message is.
    #[repr(C, align(8))]
    struct Space([u8; SPACE]);

    let mut space = Space([0; SPACE]);
    let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    // SAFETY: all its fields are numbers or pointers that may be null.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = space.0.as_mut_ptr().cast();
    message.msg_controllen = SPACE;
    let bytes = loop {
        // SAFETY: the descriptor is alive; what the message points to is as long as it says and outlives the call.
        let bytes = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(bytes).map_err(|_| io::Error::last_os_error()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the macros stay within the `msg_controllen` bytes that the kernel has written.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: the kernel writes whole control messages, here with `cmsg_len` bytes, and made each descriptor for this process; nobody else owns it.
        unsafe {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                fds.extend((0..count).map(|at| OwnedFd::from_raw_fd(first.add(at).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(Message { bytes, fds, is_cut: message.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Takes over the descriptors of control messages that nix has just read, each once.
pub fn received(messages: impl Iterator<Item = Vec<RawFd>>) -> Vec<OwnedFd> {
    // SAFETY: the kernel made these descriptors for this process in the recvmsg(2) that read the messages; nobody else owns them.
    messages.flatten().filter(|fd| *fd >= 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

/// The kernel's number of a socket (SO_COOKIE), which no other has as long as the kernel runs.
pub fn socket_cookie(socket: &impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cookie`, which is as long and outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

/// Has the other ends of a Unix socket pass no descriptors to it (SO_PASSRIGHTS, since Linux 6.16): what is dropped unread would be closed here.
///
/// # Errors
/// ENOPROTOOPT before that.
pub fn pass_no_rights(socket: &impl AsFd) -> io::Result<()> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is alive; the kernel reads as many bytes of the number as it has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has a socket listen, with any backlog that another program gives: the kernel takes a negative one for the longest that it allows.
pub fn listen(socket: &impl AsFd, backlog: i32) -> io::Result<()> {
    // SAFETY: the descriptor is alive; the call takes numbers.
    let result = unsafe { libc::listen(socket.as_fd().as_raw_fd(), backlog) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Accepts the next connection of a listening socket.
pub fn accept(listener: &impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is alive; no address is asked for.
    let fd =
        unsafe { libc::accept4(listener.as_fd().as_raw_fd(), ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: accept4(2) has just made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::{fs, io::IoSlice, process::Command};

    use nix::sys::{
        resource::{Resource, getrlimit, setrlimit},
        socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair},
    };

    use super::*;

    const ALONE: &str = "EK_FDS_ALONE";

    /// Its process has a low limit of descriptors, and so is its own.
    #[test]
    fn no_descriptor_is_lost_where_there_is_no_room_for_all() {
        if std::env::var_os(ALONE).is_none() {
            let name = "fds::tests::no_descriptor_is_lost_where_there_is_no_room_for_all";
            let test = std::env::current_exe().unwrap();
            let done = Command::new(test).args(["--exact", name]).env(ALONE, "").output().unwrap();
            return assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        }
        let (to, from) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let send = |count: usize| {
            let fds = vec![to.as_raw_fd(); count];
            sendmsg::<()>(
                to.as_raw_fd(),
                &[IoSlice::new(b"text")],
                &[ControlMessage::ScmRights(&fds)],
                MsgFlags::empty(),
                None,
            )
        };
        let open = || fs::read_dir("/proc/self/fd").unwrap().count();
        let (before, mut text) = (open(), [0; 16]);
        send(DESCRIPTORS_MAX).unwrap();
        let all = receive(&from, &mut text).unwrap();
        assert_eq!((all.bytes, all.fds.len(), all.is_cut), (4, DESCRIPTORS_MAX, false));
        drop(all);
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, from.as_raw_fd() as u64 + 20, most).unwrap();
        send(DESCRIPTORS_MAX).unwrap();
        let some = receive(&from, &mut text).unwrap();
        assert!(some.is_cut && (1..DESCRIPTORS_MAX).contains(&some.fds.len()), "{some:?}");
        drop(some);
        assert_eq!(open(), before);
    }
}
