//! The shield between two interfaces: what passes leaves by the other one as it came, MAC addresses and all.

mod check;
mod link_state;
pub mod ring;

use std::fmt;

pub use check::{Datapath, check, takes_frames};
pub use link_state::LinkState;
pub(crate) use link_state::{bring_up, names, put_back};

use crate::error::ShieldError;

/// Two interfaces that frames cross between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The interface by whose name the shield goes.
    pub first: String,
    pub second: String,
}

impl Pair {
    /// Parses `A,B`.
    pub fn parse(text: &str) -> Result<Self, ShieldError> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        match names[..] {
            [first, second] if first.is_empty() || second.is_empty() => {}
            [first, second] if first == second => {
                return Err(ShieldError::SameInterface { interface: first.to_owned() });
            }
            [first, second] => return Ok(Self { first: first.to_owned(), second: second.to_owned() }),
            _ => {}
        }
        Err(ShieldError::NotAPair { text: text.to_owned() })
    }

    pub fn names(&self) -> [&str; 2] {
        [&self.first, &self.second]
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.first, self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_different_names() {
        assert_eq!(Pair::parse("a0, b0").unwrap().to_string(), "a0,b0");
        for wrong in ["a0", "a0,", "a0,b0,c0", ",", ""] {
            assert!(matches!(Pair::parse(wrong), Err(ShieldError::NotAPair { .. })), "{wrong}");
        }
        assert!(matches!(Pair::parse("a0,a0"), Err(ShieldError::SameInterface { interface }) if interface == "a0"));
    }
}
