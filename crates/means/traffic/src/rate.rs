//! The speed of sending.

use std::{fmt, str::FromStr};

use wire::size::LINE_OVERHEAD;

use crate::TrafficError;

/// The bytes of a frame that a bit rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// All that the line carries: the frame with FCS, and preamble and gap of 20 bytes.
    L1,
    /// The frame with FCS.
    L2,
    /// The IP packet: the frame without Ethernet header and FCS.
    L3,
}

/// A rate of all senders together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as it goes.
    Max,
    Packets(f64),
    /// Bits per second, and of which bytes.
    Bits(f64, Layer),
}

impl Rate {
    /// Packets per second for frames of `mean_with_fcs` bytes with FCS on average; none for [`Rate::Max`].
    pub fn pps(self, mean_with_fcs: f64) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Packets(pps) => Some(pps),
            Self::Bits(bits, layer) => Some(bits / 8.0 / layer.bytes(mean_with_fcs)),
        }
    }
}

impl Layer {
    /// The bytes of a frame that it counts, from those with FCS.
    pub fn bytes(self, with_fcs: f64) -> f64 {
        match self {
            Self::L1 => with_fcs + LINE_OVERHEAD as f64,
            Self::L2 => with_fcs,
            Self::L3 => with_fcs - (wire::ethernet::HEADER_LEN + wire::ethernet::FCS_LEN) as f64,
        }
    }
}

impl FromStr for Rate {
    type Err = TrafficError;

    fn from_str(text: &str) -> Result<Self, TrafficError> {
        let bad = || TrafficError::Text {
            text: text.to_owned(),
            what: "rate",
            expected: "write max, 100k or 1.5Mpps (packets/s), 500Mbit or 10GbitL1 (bits/s of layer 1, 2 or 3; without a layer it is 2)",
        };
        let lower = text.trim().to_ascii_lowercase();
        if lower == "max" {
            return Ok(Self::Max);
        }
        let (rest, layer) = match lower.rsplit_once('l') {
            Some((rest, "1")) => (rest, Some(Layer::L1)),
            Some((rest, "2")) => (rest, Some(Layer::L2)),
            Some((rest, "3")) => (rest, Some(Layer::L3)),
            _ => (lower.as_str(), None),
        };
        let rest = rest.trim();
        let bits = ["bit/s", "bps", "bit"].iter().find_map(|unit| rest.strip_suffix(unit));
        let number = match (bits, layer) {
            (Some(number), _) => number,
            (None, None) => rest.strip_suffix("pps").unwrap_or(rest),
            (None, Some(_)) => return Err(bad()),
        };
        let value = scaled(number).filter(|v| v.is_finite() && *v > 0.0).ok_or_else(bad)?;
        Ok(if bits.is_some() { Self::Bits(value, layer.unwrap_or(Layer::L2)) } else { Self::Packets(value) })
    }
}

/// A number with an optional k, M or G (powers of 1000).
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'm' => (&text[..text.len() - 1], 1e6),
        b'g' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let digits = digits.trim();
    // `inf`, `nan` and exponents are numbers to Rust and not to people.
    if digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        digits.parse::<f64>().ok().map(|v| v * factor)
    } else {
        None
    }
}

/// The form that [`Rate::from_str`] reads.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Packets(pps) => write!(f, "{pps}pps"),
            Self::Bits(bits, layer) => write!(f, "{bits}bit{layer:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_their_units() {
        let read = |t: &str| t.parse::<Rate>().unwrap();
        assert_eq!(read("max"), Rate::Max);
        assert_eq!(read("1.5Mpps"), Rate::Packets(1.5e6));
        assert_eq!(read("100k"), Rate::Packets(1e5));
        assert_eq!(read("100"), Rate::Packets(100.0));
        assert_eq!(read("500Mbit"), Rate::Bits(5e8, Layer::L2));
        assert_eq!(read("500 Mbit/s"), Rate::Bits(5e8, Layer::L2));
        assert_eq!(read("10GbitL1"), Rate::Bits(1e10, Layer::L1));
        assert_eq!(read("10 Gbit/s L3"), Rate::Bits(1e10, Layer::L3));
        for bad in ["", "fast", "0", "-5", "1e9", "inf", "5x", "5ppsL1", "bit", "5L1"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bits_are_packets_of_the_stated_layer() {
        let pps = |rate: Rate| rate.pps(64.0).unwrap();
        assert!((pps(Rate::Bits(10e9, Layer::L1)) - 14_880_952.38).abs() < 0.01);
        assert!((pps(Rate::Bits(512e6, Layer::L2)) - 1e6).abs() < 1e-6);
        assert!((pps(Rate::Bits(368e6, Layer::L3)) - 1e6).abs() < 1e-6);
        assert_eq!(Rate::Max.pps(64.0), None);
    }
}
