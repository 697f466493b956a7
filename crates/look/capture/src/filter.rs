//! Filters in tcpdump's syntax, compiled for the kernel by libpcap.

use sys::{
    libpcap::{Pcap, PcapError},
    link,
    packet::{Instruction, PacketError, PacketSocket},
};

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// A filter that could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("the filter `{filter}` is not valid: {reason} (the syntax is pcap-filter(7)'s)")]
    Syntax { filter: String, reason: String },
    #[error("cannot open {interface} to compile the filter: {reason}")]
    Open { interface: String, reason: String },
    #[error(
        "{interface} cannot be captured here: its packets have no link header that a capture file can name (libpcap's link type is \
         {link_type}, a cooked one); use `tcpdump -i {interface}`"
    )]
    Cooked {
        interface: String,
        /// The link type, LINKTYPE_LINUX_SLL (113) or LINKTYPE_LINUX_SLL2 (276).
        link_type: u16,
    },
    #[error(
        "an XDP program cannot run the filter `{filter}` (its program loops, or is too long): with --backend ring or packet this process runs it, or \
         capture without it to a file, and filter that: `evenkeel capture -r FILE '{filter}'`"
    )]
    NotInXdp { filter: String },
    #[error(
        "the filter `{filter}` runs nowhere: the kernel refuses its program (it loops, or is too long), and what it asks for (`inbound`, `outbound`, \
         `ifindex`) the kernel alone knows"
    )]
    Nowhere { filter: String },
    #[error("the filter `{filter}` cannot be used: {source}; without a filter a capture works")]
    Missing { filter: String, source: PcapError },
    #[error("the link type of {interface} is not known: {source}")]
    NoLinkType { interface: String, source: PcapError },
}

model::classified!(FilterError: Lacking, Usage: Syntax);

/// A compiled filter and the link type that it was compiled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The program; it returns `snaplen` or 0. Empty when no filter was asked for.
    pub program: Vec<Instruction>,
    /// The link type of the interface (LINKTYPE_…), 1 for Ethernet.
    pub link_type: u16,
}

/// Side on which a filter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On a packet socket, where VLAN tags have been taken out of the frame and stand beside it.
    Socket,
    /// In an XDP program, which sees the bytes only.
    Xdp,
}

/// Compiles `filter` as `tcpdump -i interface` does: on the opened interface, since only then libpcap asks the kernel for
/// VLAN tags that it took out of the frame. For an XDP program it must not. Needs CAP_NET_RAW.
pub fn compile(interface: &str, filter: &str, snaplen: u32, place: Place) -> Result<Filter, FilterError> {
    let no_filter = filter.trim().is_empty();
    let handle = match Pcap::of_interface(interface, snaplen) {
        Ok(handle) => handle,
        // An interface with a MAC address is Ethernet.
        Err(PcapError::Missing(_)) if no_filter && link::mac(interface).is_ok_and(|mac| mac.is_some()) => {
            return Ok(Filter { program: Vec::new(), link_type: ETHERNET });
        }
        Err(source @ PcapError::Missing(_)) if no_filter => {
            return Err(FilterError::NoLinkType { interface: interface.to_owned(), source });
        }
        Err(source @ PcapError::Missing(_)) => return Err(FilterError::Missing { filter: filter.to_owned(), source }),
        Err(PcapError::Libpcap(reason)) => return Err(FilterError::Open { interface: interface.to_owned(), reason }),
    };
    let link_type = link_type(interface, handle.link_type())?;
    if no_filter {
        return Ok(Filter { program: Vec::new(), link_type });
    }
    let program = match place {
        Place::Socket => handle.compile(filter),
        Place::Xdp => Pcap::of_link_type(handle.link_type()).and_then(|bytes_only| bytes_only.compile(filter)),
    }
    .map_err(|e| FilterError::Syntax { filter: filter.to_owned(), reason: e.to_string() })?;
    Ok(Filter { program, link_type })
}

/// True if the kernel runs a filter's program at that place. It takes loops (`protochain`) and other programs for unsafe, and has no memory for very
/// long ones.
pub fn runs_in_kernel(program: &[Instruction], place: Place) -> bool {
    const REFUSED: [i32; 2] = [libc::EINVAL, libc::ENOMEM];
    match place {
        _ if program.is_empty() => true,
        Place::Xdp => bpf::Filter::from_classic(program).is_ok(),
        // A socket that cannot be had is told of when the capture opens its own.
        Place::Socket => PacketSocket::open().map_or(true, |socket| match socket.set_filter(program) {
            Err(PacketError::Option { source, .. }) => {
                !source.raw_os_error().is_some_and(|code| REFUSED.contains(&code))
            }
            _ => true,
        }),
    }
}

/// DLT_RAW has a number of its own on Linux (12) and another one in files (101). The cooked ones have a header that libpcap makes from
/// the socket's addresses: a file that names them without it is broken.
fn link_type(interface: &str, data_link: i32) -> Result<u16, FilterError> {
    match data_link {
        12 => Ok(101),
        113 | 276 => Err(FilterError::Cooked { interface: interface.to_owned(), link_type: data_link as u16 }),
        other => Ok(other as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_types_are_those_of_files() {
        let of = |data_link| link_type("ppp0", data_link).ok();
        assert_eq!((of(12), of(1), of(113), of(276)), (Some(101), Some(1), None, None));
    }
}
