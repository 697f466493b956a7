//! A filter of packets in tcpdump's syntax, compiled by libpcap, for the packets of which details are shown.

use sys::{
    libpcap::{Pcap, PcapError},
    packet::{Instruction, classic},
};

/// Ethernet's header, which is put before a packet that has none yet.
const ETHERNET: usize = 14;
/// LINKTYPE_ETHERNET.
const ETHERNET_LINK: i32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("the filter `{filter}` is not valid: {reason} (the syntax is pcap-filter(7)'s)")]
    Syntax { filter: String, reason: String },
    #[error("the filter `{filter}` cannot be used: {source}")]
    Missing { filter: String, source: PcapError },
}

model::classified!(FilterError: Usage, Lacking: Missing);

#[derive(Debug)]
pub struct Filter(Vec<Instruction>);

impl Filter {
    /// Compiles a filter for Ethernet frames.
    pub fn compile(filter: &str) -> Result<Self, FilterError> {
        let compiled = Pcap::of_link_type(ETHERNET_LINK).and_then(|ethernet| ethernet.compile(filter));
        compiled.map(Self).map_err(|error| match error {
            PcapError::Libpcap(reason) => FilterError::Syntax { filter: filter.to_owned(), reason },
            source @ PcapError::Missing(_) => FilterError::Missing { filter: filter.to_owned(), source },
        })
    }

    /// True if it takes the packet: its first bytes, the length of its Ethernet header, its EtherType, and its whole length.
    pub(crate) fn matches(&self, bytes: &[u8], link_header: usize, ether_type: u16, length: u32) -> bool {
        let mut frame = Vec::new();
        if link_header == 0 {
            frame.resize(ETHERNET - 2, 0);
            frame.extend(ether_type.to_be_bytes());
        }
        frame.extend(bytes);
        let added = frame.len() - bytes.len();
        let length = length.saturating_add(added as u32).max(frame.len() as u32);
        // An empty filter is an empty program, or one instruction that keeps all.
        self.0.is_empty() || classic::accepts(&self.0, &frame, length)
    }
}

#[cfg(test)]
mod tests {
    use model::{Classified, ErrorClass};

    use super::*;

    /// A UDP packet without a link header: 10.0.0.1:5000 to 10.0.0.2:53.
    const PACKET: [u8; 28] =
        [0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0, 53, 0, 108, 0, 0];

    #[test]
    fn a_packet_is_taken_or_not() {
        let matches = |filter: &str| Filter::compile(filter).expect("a filter").matches(&PACKET, 0, 0x0800, 128);
        for filter in ["", "udp", "port 53", "src host 10.0.0.1 and dst port 53", "greater 140", "less 142"] {
            assert!(matches(filter), "{filter}");
        }
        for filter in ["tcp", "port 54", "dst host 10.0.0.1", "ip6", "greater 143", "less 141"] {
            assert!(!matches(filter), "{filter}");
        }
        let framed: Vec<u8> = [&[2; 12][..], &[8, 0], &PACKET].concat();
        let filter = Filter::compile("ether src 02:02:02:02:02:02 and port 53").expect("a filter");
        assert!(filter.matches(&framed, 14, 0x0800, 142) && !filter.matches(&PACKET, 0, 0x0800, 128));
    }

    #[test]
    fn a_cut_packet_has_its_length_and_no_bytes_that_were_not_kept() {
        let matches =
            |filter: &str, length| Filter::compile(filter).expect("a filter").matches(&PACKET, 0, 0x0800, length);
        assert!(
            matches("greater 150000", 160_000) && !matches("less 150000", 160_000),
            "longer than IP's own length says"
        );
        assert!(matches("udp[4:2] = 108", 128) && !matches("udp[10] = 0", 128) && !matches("udp[10] != 0", 128));
    }

    #[test]
    fn a_wrong_filter_is_a_wrong_usage() {
        let error = Filter::compile("port of call").expect_err("no filter");
        assert_eq!(error.class(), ErrorClass::Usage);
        assert!(error.to_string().contains("port of call"), "{error}");
    }
}
