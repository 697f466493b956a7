//! The shield between two interfaces: what passes leaves by the other one as it came, MAC addresses and all.

mod check;
mod link_state;
pub mod ring;

use std::fmt;

pub use check::{Way, check, takes_frames};
pub use link_state::LinkState;
pub(crate) use link_state::{bring_up, names, put_back};

use crate::error::ShieldError;

/// Two interfaces that frames cross between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// One; the shield goes by its name.
    pub first: String,
    /// The other one.
    pub second: String,
}

impl Pair {
    /// Of `A,B`.
    ///
    /// # Errors
    /// [`ShieldError::Usage`] unless it is two different names.
    pub fn parse(text: &str) -> Result<Self, ShieldError> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        match names[..] {
            [first, second] if first.is_empty() || second.is_empty() => {}
            [first, second] if first == second => {
                return Err(ShieldError::Usage(format!(
                    "frames cannot cross between {first} and itself: name two interfaces, as in --between eth0,eth1"
                )));
            }
            [first, second] => return Ok(Self { first: first.to_owned(), second: second.to_owned() }),
            _ => {}
        }
        Err(ShieldError::Usage(format!("`{text}` is not two interfaces: write their names as in --between eth0,eth1")))
    }

    /// Both names.
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
            assert!(Pair::parse(wrong).unwrap_err().to_string().contains("not two interfaces"), "{wrong}");
        }
        assert!(Pair::parse("a0,a0").unwrap_err().to_string().contains("a0 and itself"));
    }
}
