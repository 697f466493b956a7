//! Names in a BPF file system.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use libbpf_rs::libbpf_sys;

use crate::link::XdpError;

/// Opens the link or map that is pinned as `path`.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, XdpError> {
    let name = c_path(path)?;
    // SAFETY: the string is terminated and outlives the call.
    let fd = unsafe { libbpf_sys::bpf_obj_get(name.as_ptr()) };
    if fd < 0 {
        return Err(XdpError::pin("open", path, io::Error::from_raw_os_error(-fd)));
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pins a link or map as `path`.
pub(crate) fn keep(object: BorrowedFd<'_>, path: &Path) -> Result<(), XdpError> {
    let name = c_path(path)?;
    // SAFETY: the descriptor is borrowed and the string is terminated; both outlive the call.
    let code = unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), name.as_ptr()) };
    if code < 0 {
        return Err(XdpError::pin("pin the program as", path, io::Error::from_raw_os_error(-code)));
    }
    Ok(())
}

fn c_path(path: &Path) -> Result<CString, XdpError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|e| XdpError::pin("use", path, e.into()))
}
