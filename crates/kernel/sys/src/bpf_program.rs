//! The kernel's information about a loaded BPF program (bpf(2)).

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

const PROG_GET_FD_BY_ID: libc::c_long = 13;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
/// `struct bpf_prog_info` up to and with `name`, and where that lies.
const INFO_BYTES: usize = 80;
const NAME_AT: usize = 64;

/// `union bpf_attr` as BPF_PROG_GET_FD_BY_ID reads it.
#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// `union bpf_attr` as BPF_OBJ_GET_INFO_BY_FD reads it.
#[repr(C)]
struct InfoByFd {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// The name of the program with that id (at most 15 characters; empty when it was loaded without).
///
/// # Errors
/// When there is no such program, or the privilege to ask (CAP_SYS_ADMIN) is missing.
pub fn name(id: u32) -> io::Result<String> {
    let by_id = ById { id, next_id: 0, open_flags: 0 };
    // SAFETY: the command reads `size_of::<ById>()` bytes at the pointer, which `by_id` has, and writes none there; it gives a
    // new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_GET_FD_BY_ID, &raw const by_id, size_of::<ById>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it. Descriptors fit an i32.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut info = [0u8; INFO_BYTES];
    let mut by_fd =
        InfoByFd { fd: fd.as_raw_fd().cast_unsigned(), info_len: INFO_BYTES as u32, info: info.as_mut_ptr() as u64 };
    // SAFETY: the command reads and writes `size_of::<InfoByFd>()` bytes at the pointer, which `by_fd` has. It writes at most `info_len` bytes at `info`, which
    // is as long and exclusively ours during the call. The zeroes in it ask for no further buffers.
    let done = unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw mut by_fd, size_of::<InfoByFd>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = &info[NAME_AT..];
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_such_program_is_an_error() {
        let error = name(u32::MAX).unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::ENOENT | libc::EPERM | libc::ENOSYS)), "{error:?}");
    }
}
