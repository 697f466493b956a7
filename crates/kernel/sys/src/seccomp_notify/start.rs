//! Starting a program behind a filter.

use std::{
    io, mem,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::{Child, Command},
    ptr,
};

use libc::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
    SECCOMP_GET_NOTIF_SIZES, SECCOMP_SET_MODE_FILTER, seccomp_notif, seccomp_notif_resp, seccomp_notif_sizes,
    sock_fprog,
};
use nix::{
    cmsg_space,
    sys::{
        signal::SigSet,
        socket::{AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair},
    },
};

use super::{filter::Filter, listener::Listener};

/// Error of a program that was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("its system calls are answered by somebody already: a filter with a listener is set for this process")]
    Supervised,
    #[error(
        "the kernel cannot have system calls answered by a program ({0}): it takes Linux 6.1 or newer with CONFIG_SECCOMP_FILTER, and leave to call seccomp(2)"
    )]
    Filter(io::Error),
    #[error("{0}")]
    Program(io::Error),
}

/// Starts a program whose calls, and those of its children, go to the listener. No exec gives them a privilege any more (PR_SET_NO_NEW_PRIVS). The
/// program blocks the signals of `mask`, whatever the caller blocks.
///
/// # Errors
/// The kernel lacks what this takes, the caller is behind such a filter itself, or the program cannot be started.
pub fn start(mut command: Command, filter: Filter, mask: SigSet) -> Result<(Child, Listener), StartError> {
    sizes().map_err(StartError::Filter)?;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = pair.map_err(|errno| StartError::Filter(errno.into()))?;
    let program = filter.program().to_vec();
    let install = move || -> io::Result<()> {
        let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
        let fprog = sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
        // It is no sandbox, and so needs no protection against speculation, which costs on older kernels.
        let flags =
            SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        mask.thread_set_mask()?;
        // SAFETY: prctl(2) takes numbers; seccomp(2) reads the program, which is alive and as long as said.
        let listener = unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const fprog)
        };
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        // The descriptor is closed by exec.
        send(theirs.as_raw_fd(), listener as RawFd)
    };
    // SAFETY: between fork and exec the closure makes system calls and fills places on its stack; it allocates nothing and takes no lock: an
    // io::Error of a number has no memory of its own.
    unsafe { command.pre_exec(install) };
    let child = command.spawn();
    // With it goes this process's copy of the other end, so that the receive below cannot wait for nobody.
    drop(command);
    match (child, receive(&ours)) {
        (Ok(child), Some(listener)) => Ok((child, Listener::new(listener, filter))),
        (Err(error), Some(_)) => Err(StartError::Program(error)),
        (Err(error), None) if error.raw_os_error() == Some(libc::EBUSY) => Err(StartError::Supervised),
        (Err(error), None) => Err(StartError::Filter(error)),
        (Ok(_), None) => Err(StartError::Filter(io::ErrorKind::BrokenPipe.into())),
    }
}

/// The kernel's structs must not be longer than those that it is given.
fn sizes() -> io::Result<()> {
    let mut sizes = seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    // SAFETY: seccomp(2) writes three numbers into the struct.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let fits = usize::from(sizes.seccomp_notif) <= mem::size_of::<seccomp_notif>()
        && usize::from(sizes.seccomp_notif_resp) <= mem::size_of::<seccomp_notif_resp>();
    if fits { Ok(()) } else { Err(io::Error::other("this kernel's notifications are longer than those known")) }
}

/// Room for the control message of one descriptor, aligned as its header is.
#[repr(C, align(8))]
struct Rights([u8; 32]);

/// Sends a descriptor with a byte. For the time between fork and exec: nothing is allocated.
fn send(socket: RawFd, fd: RawFd) -> io::Result<()> {
    let (mut byte, mut rights) = ([0u8], Rights([0; 32]));
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all its fields are numbers or pointers that may be null.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = rights.0.as_mut_ptr().cast();
    // SAFETY: the control message of one descriptor takes 24 bytes of the 32, and the macros stay within what msg_controllen says.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(mem::size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(mem::size_of::<RawFd>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast::<RawFd>(), fd);
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The listener that the child sent before its exec; none: it did not come so far.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let (mut byte, mut space) = ([0u8], cmsg_space!([RawFd; 1]));
    let mut places = [io::IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut places, Some(&mut space), flags).ok()?;
    let rights = message.cmsgs().ok()?.filter_map(|message| match message {
        ControlMessageOwned::ScmRights(fds) => Some(fds),
        _ => None,
    });
    crate::fds::received(rights).pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp_notify::{Answer, Call};

    #[test]
    fn the_listener_hears_the_calls_and_the_end() {
        let filter = Filter::new(&[Call::Getsockname.into(), Call::Listen.into()]).unwrap();
        let mut python = Command::new("python3");
        let script = "import socket as s; u = s.socket(s.AF_UNIX); u.bind(''); u.listen(5); print(u.getsockname() != b''); u.close()";
        python.args(["-c", script]).stdout(std::process::Stdio::piped());
        let (child, listener) = start(python, filter, SigSet::empty()).unwrap();
        let mut calls = Vec::new();
        while let Some(notification) = listener.receive().unwrap() {
            assert!(listener.is_valid(notification.id));
            calls.push((notification.call, notification.args[1] as i32));
            listener.answer(notification.id, Answer::Continue).unwrap();
            assert!(!listener.is_valid(notification.id));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!((calls[0], calls[1].0, calls.len()), ((Call::Listen, 5), Call::Getsockname, 2));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_distinguished_from_a_filter_that_is_refused() {
        let filter = Filter::new(&[]).unwrap();
        match start(Command::new("/nowhere/ek-program"), filter, SigSet::empty()) {
            Err(StartError::Program(error)) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
            other => panic!("{other:?}"),
        }
    }
}
