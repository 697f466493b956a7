//! Names and numbers of interfaces, and what is said of a name that nobody has.

use model::{Classified, ErrorClass};
use nix::net::if_::{if_nameindex, if_nametoindex};

/// A name that is this far from the one given may have been meant.
const NEAR: usize = 2;

/// There is no interface of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no interface `{name}` in this network namespace{hint}")]
pub struct NoInterface {
    /// The name that was asked for.
    pub name: String,
    /// `; did you mean …?`, `; there are: …` or nothing.
    hint: String,
}

impl NoInterface {
    /// Among those of this thread's network namespace.
    pub fn here(name: &str) -> Self {
        Self::among(name, names().iter().map(String::as_str))
    }

    /// Among these, of which those like it are named, or else all.
    pub fn among<'a>(name: &str, there: impl IntoIterator<Item = &'a str>) -> Self {
        let all: Vec<&str> = there.into_iter().collect();
        let near: Vec<&str> =
            all.iter().copied().filter(|other| strsim::damerau_levenshtein(other, name) <= NEAR).collect();
        let hint = match (near.is_empty(), all.is_empty()) {
            (false, _) => format!("; did you mean {}?", near.join(" or ")),
            (true, false) => format!("; there are: {}", all.join(", ")),
            (true, true) => String::new(),
        };
        Self { name: name.to_owned(), hint }
    }
}

impl Classified for NoInterface {
    fn class(&self) -> ErrorClass {
        ErrorClass::Lacking
    }
}

/// The names of the interfaces of this thread's network namespace.
pub fn names() -> Vec<String> {
    let list = if_nameindex();
    list.map(|list| list.iter().map(|i| i.name().to_string_lossy().into_owned()).collect()).unwrap_or_default()
}

/// The index of an interface of this thread's network namespace, by which it is known as long as it exists.
///
/// # Errors
/// There is none of that name.
pub fn index(name: &str) -> Result<u32, NoInterface> {
    if_nametoindex(name).map_err(|_| NoInterface::here(name))
}

/// True if there is an interface of that name in this thread's network namespace.
pub fn exists(name: &str) -> bool {
    if_nametoindex(name).is_ok()
}

pub use sys::link::name_of;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_is_answered_with_those_like_it_or_with_all() {
        let told = |name: &str, there: &[&str]| NoInterface::among(name, there.iter().copied()).to_string();
        assert!(told("eht0", &["lo", "eth0", "eth10"]).ends_with("namespace; did you mean eth0 or eth10?"));
        assert!(told("wlan0", &["lo", "eth0"]).ends_with("`wlan0` in this network namespace; there are: lo, eth0"));
        assert!(told("x", &[]).ends_with("namespace"));
    }

    #[test]
    fn the_loopback_has_a_number() {
        assert_eq!(index("lo").map(name_of), Ok(Some("lo".to_owned())));
        assert_eq!(index("ek-none").unwrap_err().name, "ek-none");
        assert!(exists("lo") && !exists("ek-none"));
        assert_eq!(name_of(i32::MAX as u32), None);
    }
}
