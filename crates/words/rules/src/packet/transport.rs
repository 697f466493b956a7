//! The transport header's share of what rules ask about.

use super::{Packet, Part, be16};

impl Packet {
    /// Reads ports, flags and types from the transport header, `bytes` being all behind the IP headers.
    pub(super) fn with_transport(mut self, bytes: &[u8]) -> Result<Self, &'static str> {
        if self.part == Part::Later {
            return Ok(self);
        }
        let is_icmp = self.protocol == if self.source.is_ipv4() { 1 } else { 58 };
        match self.protocol {
            6 => {
                let header = bytes.get(..20).ok_or("cut within the TCP header")?;
                let header_len = usize::from(header[12] >> 4) * 4;
                if header_len < 20 {
                    return Err("TCP data offset below 5");
                }
                if header_len > bytes.len() {
                    return Err("TCP data offset beyond the packet");
                }
                self.tcp_flags = Some(header[13]);
                self.ports = ports(bytes);
            }
            // UDP, UDP-Lite (RFC 3828).
            17 | 136 => {
                bytes.get(..8).ok_or("cut within the UDP header")?;
                self.ports = ports(bytes);
            }
            // DCCP, SCTP.
            33 | 132 => self.ports = Some(ports(bytes).ok_or("cut within the ports")?),
            _ if is_icmp => {
                self.icmp_type = Some(*bytes.get(..4).and_then(|b| b.first()).ok_or("cut within the ICMP header")?);
            }
            _ => {}
        }
        Ok(self)
    }
}

fn ports(bytes: &[u8]) -> Option<(u16, u16)> {
    Some((be16(bytes, 0)?, be16(bytes, 2)?))
}
