//! Pseudo-random numbers, addresses and bytes of tests.

use std::{net::AddrParseError, str::FromStr};

use crate::words;

/// xorshift64*: the same from the same seed.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed << 1 | 1)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.draw() >> 16) % end
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// One of these addresses.
    pub fn address<T: FromStr<Err = AddrParseError>>(&mut self, all: &str) -> T {
        self.of(&words(all)).parse().expect("an address")
    }
}
