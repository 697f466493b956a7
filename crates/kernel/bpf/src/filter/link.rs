//! The program on an interface: replaced in one step, and kept beyond the end of the process if it is pinned.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use libbpf_rs::libbpf_sys;

use super::{PROGRAM, load::Shield};
use crate::link::{XdpError, XdpLink, XdpMode};

/// A program on an interface. Dropping it takes the program off, unless it is pinned.
#[derive(Debug)]
pub struct ShieldLink {
    link: XdpLink,
    interface: String,
    /// The program, for putting it back; none: another process attached it.
    program: Option<OwnedFd>,
}

impl ShieldLink {
    pub(super) fn attach(shield: &Shield, interface: &str, mode: XdpMode) -> Result<Self, XdpError> {
        let link = XdpLink::attach(shield.as_fd(), PROGRAM, interface, mode)?;
        Ok(Self { link, interface: interface.to_owned(), program: Some(PROGRAM.descriptor(shield.as_fd())?) })
    }

    /// Puts `shield` in the place of the program that runs. Each packet sees the old one or the new one.
    ///
    /// # Errors
    /// [`XdpError::System`] with what the kernel answers; the old program then goes on.
    pub fn replace(&mut self, shield: &Shield) -> Result<(), XdpError> {
        let program = PROGRAM.descriptor(shield.as_fd())?;
        self.update(program)
    }

    /// The same on two interfaces: both run `shield` afterwards, or neither does.
    ///
    /// A program that another process attached can be put back only with CAP_SYS_ADMIN, which finds it by its id.
    ///
    /// # Errors
    /// [`XdpError::System`] of the interface that refused; where the other one could not be put back, that is said too.
    pub fn replace_both(first: &mut Self, second: &mut Self, shield: &Shield) -> Result<(), XdpError> {
        let before = match &first.program {
            Some(program) => Some(PROGRAM.descriptor(program.as_fd())?),
            None => libbpf_rs::Program::fd_from_id(first.link.program_id()).ok(),
        };
        first.replace(shield)?;
        let Err(refused) = second.replace(shield) else { return Ok(()) };
        let why = match before {
            None => "the program that was there cannot be had without CAP_SYS_ADMIN".to_owned(),
            Some(before) => match first.update(before) {
                Ok(()) => return Err(refused),
                Err(error) => error.to_string(),
            },
        };
        let refused = std::error::Error::source(&refused).map_or_else(|| refused.to_string(), ToString::to_string);
        let both = format!("{refused}; {} runs the new rules already and cannot be put back: {why}", first.interface);
        Err(second.failed("replace the shield's program", io::Error::other(both)))
    }

    fn update(&mut self, program: OwnedFd) -> Result<(), XdpError> {
        // SAFETY: both descriptors are borrowed for the call; no options are given.
        let code = unsafe {
            libbpf_sys::bpf_link_update(self.link.as_fd().as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        };
        if code < 0 {
            return Err(self.failed("replace the shield's program", io::Error::from_raw_os_error(-code)));
        }
        self.program = Some(program);
        self.link.refresh(&self.interface)
    }

    /// Keeps the program on the interface under the name `path` of a BPF file system, beyond the end of this process.
    ///
    /// # Errors
    /// [`XdpError::Pin`] with the path.
    pub fn pin(&self, path: &Path) -> Result<(), XdpError> {
        let name = c_path(path)?;
        // SAFETY: the descriptor is borrowed and the string is terminated; both outlive the call.
        let code = unsafe { libbpf_sys::bpf_obj_pin(self.link.as_fd().as_raw_fd(), name.as_ptr()) };
        if code < 0 {
            return Err(XdpError::pin("pin the program as", path, io::Error::from_raw_os_error(-code)));
        }
        Ok(())
    }

    /// Takes the name away: the program goes with the last process that holds it.
    ///
    /// # Errors
    /// [`XdpError::Pin`] with the path.
    pub fn unpin(path: &Path) -> Result<(), XdpError> {
        fs::remove_file(path).map_err(|source| XdpError::pin("remove", path, source))
    }

    /// The program that another process pinned as `path`, on an interface of this network namespace.
    ///
    /// # Errors
    /// [`XdpError::Pin`] if there is none, or its interface is gone.
    pub fn open(path: &Path) -> Result<Self, XdpError> {
        let name = c_path(path)?;
        // SAFETY: the string is terminated and outlives the call.
        let fd = unsafe { libbpf_sys::bpf_obj_get(name.as_ptr()) };
        if fd < 0 {
            return Err(XdpError::pin("open", path, io::Error::from_raw_os_error(-fd)));
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let link = unsafe { OwnedFd::from_raw_fd(fd) };
        let (link, interface) = XdpLink::adopt(link).map_err(|source| XdpError::pin("take over", path, source))?;
        Ok(Self { link, interface, program: None })
    }

    /// The mode in which the kernel says that it runs.
    pub fn mode(&self) -> XdpMode {
        self.link.mode()
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The attached program's id.
    pub fn program_id(&self) -> u32 {
        self.link.program_id()
    }

    /// Whether the interface still exists.
    pub fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    /// What the interface is called now, if that is another name than before: [`ShieldLink::interface`] is the new one from then on.
    pub fn renamed(&mut self) -> Option<&str> {
        let now = self.link.interface_name()?;
        if now == self.interface {
            return None;
        }
        self.interface = now;
        Some(&self.interface)
    }

    /// Whether this network namespace has the interface: it may have been moved to another one, where the program goes on.
    pub fn is_here(&self) -> bool {
        self.link.interface_name().is_some()
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> XdpError {
        XdpError::System { interface: self.interface.clone(), operation, source }
    }
}

fn c_path(path: &Path) -> Result<CString, XdpError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|e| XdpError::pin("use", path, e.into()))
}
