//! Flags, MTU and MAC address of interfaces of this thread's network namespace (netdevice(7)): read, and two of the flags set.

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFlags {
    /// Administratively up (IFF_UP).
    pub up: bool,
    /// Up, with a carrier (IFF_RUNNING).
    pub running: bool,
    /// Promiscuous by the flag (IFF_PROMISC); packet sockets can have it so besides.
    pub promiscuous: bool,
}

/// The name of an interface, which may change; none: it is gone, or in another network namespace.
pub fn name_of(index: u32) -> Option<String> {
    // The library takes the kernel's refusal for an empty name.
    nix::net::if_::if_indextoname(index).ok()?.into_string().ok().filter(|name| !name.is_empty())
}

/// Reads the flags (SIOCGIFFLAGS).
///
/// # Errors
/// ENODEV if there is no such interface.
pub fn flags(interface: &str) -> io::Result<LinkFlags> {
    let flags = flags_of(&ask(interface, libc::SIOCGIFFLAGS)?);
    let has = |flag: i32| flags & flag != 0;
    Ok(LinkFlags { up: has(libc::IFF_UP), running: has(libc::IFF_RUNNING), promiscuous: has(libc::IFF_PROMISC) })
}

/// Reads the MTU in bytes (SIOCGIFMTU).
///
/// # Errors
/// ENODEV if there is no such interface.
pub fn mtu(interface: &str) -> io::Result<u32> {
    let request = ask(interface, libc::SIOCGIFMTU)?;
    // SAFETY: SIOCGIFMTU has just filled this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0).cast_unsigned())
}

/// Reads the MAC address (SIOCGIFHWADDR); none for an interface whose addresses are of another kind.
///
/// # Errors
/// ENODEV if there is no such interface.
pub fn mac(interface: &str) -> io::Result<Option<[u8; 6]>> {
    let request = ask(interface, libc::SIOCGIFHWADDR)?;
    // SAFETY: SIOCGIFHWADDR has just filled this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let octets = std::array::from_fn(|i| address.sa_data[i] as u8);
    Ok(matches!(address.sa_family, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK).then_some(octets))
}

/// Brings an interface up or takes it down.
///
/// # Errors
/// ENODEV if there is no such interface, EPERM without CAP_NET_ADMIN.
pub fn set_up(interface: &str, up: bool) -> io::Result<()> {
    set(interface, libc::IFF_UP, up)
}

/// Has an interface take frames for everybody, beyond the end of this process, or not.
pub fn set_promiscuous(interface: &str, promiscuous: bool) -> io::Result<()> {
    set(interface, libc::IFF_PROMISC, promiscuous)
}

fn set(interface: &str, flag: i32, on: bool) -> io::Result<()> {
    let mut request = ask(interface, libc::SIOCGIFFLAGS)?;
    let before = flags_of(&request);
    let after = if on { before | flag } else { before & !flag };
    if after == before {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = after as libc::c_short;
    ioctl(libc::SIOCSIFFLAGS, &mut request)
}

/// The flags in the answer to SIOCGIFFLAGS.
fn flags_of(request: &libc::ifreq) -> i32 {
    // SAFETY: SIOCGIFFLAGS fills this member, and zeros are valid too.
    i32::from(unsafe { request.ifr_ifru.ifru_flags })
}

fn ask(interface: &str, code: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut request = request(interface)?;
    ioctl(code, &mut request)?;
    Ok(request)
}

/// Makes one of the requests of this file, all of which take an ifreq.
fn ioctl(code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the request is an initialised ifreq with a name that ends in NUL, and outlives the call.
    match unsafe { libc::ioctl(socket()?.as_raw_fd(), code, std::ptr::from_mut(request)) } {
        code if code < 0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // One place is left for the NUL.
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_what_is_not_there_is_an_error() {
        assert!(flags("lo").is_ok());
        assert_eq!(mac("lo").ok(), Some(Some([0; 6])));
        assert_eq!(flags("ek-none0").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(flags("a-name-that-is-too-long").is_err());
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_name() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert_eq!((name_of(index).as_deref(), name_of(i32::MAX as u32)), (Some("lo"), None));
    }
}
