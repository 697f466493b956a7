//! Random rules, and frames that meet them: values come from small pools, and most frames are made to fulfil some rule, so that
//! rules really apply, first ones hide later ones, and the edges of ranges and prefixes are hit. The same seed gives the same.

mod bytes;
mod frames;
mod kernel;
mod rules;

pub use bytes::Spec;
pub use frames::{frame, hurt, spec};
pub use kernel::{Kernel, LINEAR_MAX, splits};
pub use rules::{Shape, rules};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// A few of these, at least one; some may be the same.
    pub fn some<T: Copy>(&mut self, of: &[T]) -> Vec<T> {
        (0..=self.below(3)).map(|_| self.pick(of)).collect()
    }
}

pub const PORTS: &[u16] = &[0, 1, 22, 53, 79, 80, 81, 123, 443, 1023, 1024, 8080, 32768, 65534, 65535];
/// TCP, UDP, UDP-Lite, SCTP, DCCP, both ICMP, IGMP, GRE, ESP, no next header, one without a meaning.
pub const PROTOCOLS: &[u8] = &[6, 6, 6, 17, 17, 136, 132, 33, 1, 58, 2, 47, 50, 59, 253];
pub const FLAGS: &[u8] = &[0, 1, 2, 4, 16, 18, 17, 24, 0xc2, 255];
pub const ICMP_TYPES: &[u8] = &[0, 3, 8, 11, 128, 129, 135, 136, 255];
pub const DSCP: &[u8] = &[0, 1, 8, 46, 63];
pub const VLANS: &[u16] = &[0, 1, 7, 100, 4094, 4095];
pub const LENGTHS: &[u16] = &[20, 28, 40, 41, 48, 60, 61, 64, 100, 128, 576, 1280, 1500, 65535];

/// Addresses that share prefixes of many lengths.
pub fn address(random: &mut Random, v4: bool) -> IpAddr {
    if v4 {
        let [a, b] = random.pick(&[[198, 18], [198, 19], [10, 0], [0, 0], [255, 255]]);
        let (c, d) = (random.pick(&[0, 1, 2, 127, 128, 255]), random.pick(&[0, 1, 2, 3, 127, 128, 254, 255]));
        return Ipv4Addr::new(a, b, c, d).into();
    }
    let first: [u16; 2] = random.pick(&[[0x2001, 2], [0x2001, 3], [0xfd00, 0], [0, 0]]);
    let mut rest = || random.pick(&[0, 0, 1, 0x7fff, 0x8000, 0xffff]);
    Ipv6Addr::new(first[0], first[1], rest(), rest(), rest(), rest(), rest(), rest()).into()
}
