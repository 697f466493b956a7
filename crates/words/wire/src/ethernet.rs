//! Ethernet II with 802.1Q and 802.1ad tags.

use std::{fmt, str::FromStr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use crate::error::WireError;

/// EtherTypes and tag protocols (IEEE 802 numbers, IANA).
pub mod ether_type {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const IPV6: u16 = 0x86dd;
    /// A customer tag (802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// A service tag (802.1ad), the outer one of QinQ.
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// The frame check sequence, which the card adds and takes away, in bytes.
pub const FCS_LEN: usize = 4;
/// Length of the untagged header in bytes.
pub const HEADER_LEN: usize = 14;
/// Length of one tag in bytes.
pub const TAG_LEN: usize = 4;
/// The most tags that [`Ethernet::parse`] reads.
pub const TAGS_MAX: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let bad = || WireError::Mac(text.to_owned());
        let mut mac = [0u8; 6];
        let mut parts = text.trim().split([':', '-']);
        for byte in &mut mac {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|c| c.is_ascii_hexdigit()));
            *byte = part.and_then(|p| u8::from_str_radix(p, 16).ok()).ok_or_else(bad)?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(mac)) }
    }
}

/// The untagged header as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    pub destination: Mac,
    pub source: Mac,
    /// EtherType, or the protocol of the first tag.
    pub ether_type: U16,
}

/// A tag: its protocol and its priority, DEI and VLAN id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol, 0x8100 or 0x88a8.
    pub protocol: u16,
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub control: u16,
}

impl Tag {
    pub fn vlan(self) -> u16 {
        self.control & 0x0fff
    }
}

/// A parsed frame without FCS.
#[derive(Debug, Clone, Copy)]
pub struct Ethernet<'a> {
    header: &'a EthernetHeader,
    tags: [Option<Tag>; TAGS_MAX],
    ether_type: u16,
    payload: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// Reads the header and up to [`TAGS_MAX`] tags.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the bytes end before header and tags do.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, mut payload) = EthernetHeader::ref_from_prefix(bytes).map_err(|_| WireError::Truncated {
            what: "an Ethernet header",
            need: HEADER_LEN,
            have: bytes.len(),
        })?;
        let mut ether_type = header.ether_type.get();
        let mut tags = [None; TAGS_MAX];
        for tag in &mut tags {
            if ether_type != ether_type::VLAN && ether_type != ether_type::SERVICE_VLAN {
                break;
            }
            let (&[c0, c1, t0, t1], rest) = crate::error::split::<TAG_LEN>(payload, "a VLAN tag")?;
            *tag = Some(Tag { protocol: ether_type, control: u16::from_be_bytes([c0, c1]) });
            ether_type = u16::from_be_bytes([t0, t1]);
            payload = rest;
        }
        Ok(Self { header, tags, ether_type, payload })
    }

    pub fn destination(&self) -> Mac {
        self.header.destination
    }

    pub fn source(&self) -> Mac {
        self.header.source
    }

    /// The tags, the outer one first.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + '_ {
        self.tags.iter().flatten().copied()
    }

    /// The EtherType behind the tags.
    pub fn ether_type(&self) -> u16 {
        self.ether_type
    }

    /// The bytes that follow, padding included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_strictly() {
        assert_eq!("02:00:5e:10:00:ff".parse::<Mac>().unwrap().to_string(), "02:00:5e:10:00:ff");
        assert_eq!("02-00-5E-10-00-FF".parse::<Mac>(), Ok(Mac([2, 0, 0x5e, 0x10, 0, 0xff])));
        for bad in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "0g:00:00:00:00:00", "+1:00:00:00:00:00"]
        {
            assert_eq!(bad.parse::<Mac>(), Err(WireError::Mac(bad.to_owned())), "{bad}");
        }
    }
}
