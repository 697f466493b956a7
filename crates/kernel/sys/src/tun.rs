//! A TAP device that lives as long as its descriptor (Documentation/networking/tuntap.rst).

use std::{
    ffi::CStr,
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
};

/// A TAP device of this process, down and without address. Dropping it removes the interface; so does the end of the process.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
}

impl Tap {
    /// Makes a TAP device in the network namespace of the calling thread.
    ///
    /// `pattern` is a name of at most 15 bytes, in which `%d` becomes the first free number.
    pub fn create(pattern: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        let mut name = [0 as libc::c_char; libc::IFNAMSIZ];
        if pattern.is_empty() || pattern.len() >= name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in name.iter_mut().zip(pattern.bytes()) {
            *to = from.cast_signed();
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short },
        };
        // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is; it outlives the call.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has written the name it chose, closed by a NUL within IFNAMSIZ (drivers/net/tun.c, tun_set_iff).
        let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Self { file, name })
    }

    /// The descriptor: a read takes one frame that was sent on the interface, a write has one arrive there.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name that the kernel gave it.
    pub fn name(&self) -> &str {
        &self.name
    }
}
