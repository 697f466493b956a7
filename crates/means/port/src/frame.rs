//! The output of every backend: frames, and counts of what it lost.

use model::verdict::Verdict;
use wire::link::Direction;

/// Bytes of both addresses, behind which a tag stands.
const ADDRESSES_LEN: usize = 12;

/// An 802.1Q or 802.1ad tag that the kernel took out of the frame (include/uapi/linux/if_packet.h, TP_STATUS_VLAN_VALID).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag protocol, 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, DEI and VLAN id.
    pub tci: u16,
}

/// The verdict of a filter on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged<'a> {
    pub verdict: Verdict,
    /// The verdict in words, with the name of the rule: `shield: dropped by rule "bad-port"`.
    pub text: &'a str,
}

/// A received frame, borrowed from the ring or the buffer of its backend.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The time of its arrival, in nanoseconds since the epoch (CLOCK_REALTIME).
    pub timestamp_ns: u64,
    /// Its length on the wire in bytes, without FCS and without a tag that the kernel took out.
    pub wire_len: u32,
    /// Its first bytes, up to the snap length, from the destination MAC address on.
    pub data: &'a [u8],
    /// A tag that the kernel took out and that belongs behind the two addresses.
    pub vlan: Option<VlanTag>,
    /// Direction of the frame, where the backend can tell.
    pub direction: Option<Direction>,
    /// The transport checksum was left to a NIC that has not seen the frame: it is that of the pseudo-header alone. Only rings tell.
    pub unfinished: bool,
    /// The verdict of the interface's shield, as far as it was asked: only the tap has it.
    pub judged: Option<Judged<'a>>,
    /// Frames that this source lost between the frame before and this one, as far as the backend can tell; mostly 0.
    pub lost_before: u32,
}

impl<'f> Frame<'f> {
    /// Its bytes with the tag where it stood on the wire; made in `scratch` where the kernel took one out.
    pub fn with_tag<'a>(&self, scratch: &'a mut Vec<u8>) -> &'a [u8]
    where
        'f: 'a,
    {
        if self.vlan.is_none() {
            return self.data;
        }
        scratch.clear();
        self.write_with_tag(scratch);
        scratch
    }

    /// Appends its bytes with the tag where it stood on the wire.
    pub fn write_with_tag(&self, out: &mut Vec<u8>) {
        let Some((tag, (addresses, rest))) = self.vlan.zip(self.data.split_at_checked(ADDRESSES_LEN)) else {
            return out.extend_from_slice(self.data);
        };
        out.extend_from_slice(addresses);
        out.extend_from_slice(&tag.tpid.to_be_bytes());
        out.extend_from_slice(&tag.tci.to_be_bytes());
        out.extend_from_slice(rest);
    }
}

/// Counts of a source since it was opened. They never go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceStats {
    /// Frames handed to the reader.
    pub delivered: u64,
    /// Frames that passed the kernel's filter and were lost because ring, buffer or queue was full.
    pub dropped: u64,
    /// Frames that a filter in this process left out; it sees what was not lost.
    pub filtered_out: u64,
    /// Frames of queues that have no reader: they were made after the source was opened. They passed on to the stack.
    pub missed: u64,
    /// Times the ring was found full (TPACKET_V3 tp_freeze_q_cnt).
    pub freezes: u64,
    /// Times that others emptied the program's place in the interface's chain: frames passed by it until it was put back.
    pub reattached: u64,
}
