//! The PCI Express link of a card: what it runs at, and what it could.

use super::{Missing, text};
use crate::root::Root;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PcieLink {
    pub width: u32,
    /// Lanes that the card has.
    pub width_max: u32,
    /// Speed of a lane now, in GT/s.
    pub speed_gts: f64,
    /// Speed of a lane that the card can.
    pub speed_max_gts: f64,
}

impl PcieLink {
    /// The throughput of the link in one direction, in Gbit/s, without the overhead of packets: 8b/10b code up to 5 GT/s, 128b/130b
    /// above.
    pub fn gbps(&self) -> f64 {
        let code = if self.speed_gts <= 5.0 { 0.8 } else { 128.0 / 130.0 };
        f64::from(self.width) * self.speed_gts * code
    }
}

/// Reads the link of the card behind the interface; none for a device that is not on PCI Express, or is a guest's VirtIO device,
/// whose link is made up.
pub fn read(root: &Root, nic: &str) -> Result<Option<PcieLink>, Missing> {
    let get = |file: &str| text(root, &format!("sys/class/net/{nic}/device/{file}"));
    let (width, width_max) = (get("current_link_width")?, get("max_link_width")?);
    let (speed, speed_max) = (get("current_link_speed")?, get("max_link_speed")?);
    Ok(match (width, width_max, speed, speed_max) {
        (Some(width), Some(width_max), Some(speed), Some(speed_max)) => parse(&width, &width_max, &speed, &speed_max),
        _ => None,
    })
}

/// `8`, `16`, `8.0 GT/s PCIe`, `16.0 GT/s PCIe`; a width of 0 or 255 or an unknown speed is no link.
fn parse(width: &str, width_max: &str, speed: &str, speed_max: &str) -> Option<PcieLink> {
    let lanes = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=32).contains(n));
    let speed_of = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok().filter(|s| *s > 0.0 && *s < 1000.0);
    Some(PcieLink {
        width: lanes(width)?,
        width_max: lanes(width_max)?,
        speed_gts: speed_of(speed)?,
        speed_max_gts: speed_of(speed_max)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_and_speeds_as_the_kernel_writes_them() {
        let link = parse("4", "8", "5.0 GT/s PCIe", "8.0 GT/s PCIe").unwrap();
        assert!((link.gbps() - 16.0).abs() < 1e-9, "{link:?}");
        let full = parse("16", "16", "16.0 GT/s PCIe", "16.0 GT/s PCIe").unwrap();
        assert!((full.gbps() - 252.06).abs() < 0.01);
        assert_eq!(parse("255", "255", "Unknown", "Unknown"), None);
        assert_eq!(parse("0", "8", "2.5 GT/s PCIe", "8.0 GT/s PCIe"), None);
    }
}
