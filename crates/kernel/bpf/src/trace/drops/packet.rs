//! A dropped packet (`src/trace/drops/packet.h`).

use std::{
    mem::offset_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::RawFlow;
use crate::bytes::word16;

/// Kind of a dropped packet, as far as it tells whether data was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum DropKind {
    /// None of the others, or it could not be told.
    #[default]
    Other,
    TcpData,
    TcpReset,
    /// TCP's request or answer at the begin of a connection, without payload.
    TcpSyn,
    /// TCP's end of a direction, without payload.
    TcpFin,
    /// TCP without payload and without any of these flags.
    TcpBare,
    /// A copy for a packet tap.
    Copy,
    /// The kernel took it for another host's, but it has the MAC of this one: its VLAN tag has no device here.
    ForeignVlan,
    /// No IP, to a group address of the next device alone or of switches: spanning tree, LLDP, LACP, CDP.
    LinkLocal,
}

impl DropKind {
    pub(super) fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::TcpData,
            2 => Self::TcpReset,
            3 => Self::TcpSyn,
            4 => Self::TcpFin,
            5 => Self::TcpBare,
            6 => Self::Copy,
            7 => Self::ForeignVlan,
            8 => Self::LinkLocal,
            _ => Self::Other,
        }
    }

    /// True if it is a TCP segment without payload.
    pub fn is_bare_tcp(self) -> bool {
        matches!(self, Self::TcpReset | Self::TcpSyn | Self::TcpFin | Self::TcpBare)
    }
}

/// Sender and receiver of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropFlow {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The source port; 0: none, or not kept.
    pub source_port: u16,
    /// The destination port; 0: none.
    pub destination_port: u16,
    pub protocol: u8,
}

impl DropFlow {
    /// Out of `struct drop_flow`; none if it was no IP.
    pub(super) fn from_raw(raw: &[u8]) -> Option<Self> {
        let byte = |at: usize| raw.get(at).copied().unwrap_or(0);
        let address = |at: usize, version: u8| -> Option<IpAddr> {
            match version {
                4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(raw.get(at..at + 4)?).ok()?).into()),
                6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(raw.get(at..at + 16)?).ok()?).into()),
                _ => None,
            }
        };
        let version = byte(offset_of!(RawFlow, version));
        Some(Self {
            source: address(offset_of!(RawFlow, source), version)?,
            destination: address(offset_of!(RawFlow, destination), version)?,
            source_port: word16(raw, offset_of!(RawFlow, source_port)),
            destination_port: word16(raw, offset_of!(RawFlow, destination_port)),
            protocol: byte(offset_of!(RawFlow, protocol)),
        })
    }
}
