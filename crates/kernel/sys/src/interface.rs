//! Names and numbers of interfaces, and what is said of a name that nobody has.

use nix::net::if_::{if_nameindex, if_nametoindex};

/// A name that is this far from the one given may have been meant.
const DISTANCE_MAX: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no interface `{name}` in this network namespace{hint}")]
pub struct NoInterface {
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
        if let Some(real) = name.split_once(':').map(|(real, _)| real).filter(|real| all.contains(real)) {
            let hint = format!("; `{name}` is a label of an address: name the interface, {real}");
            return Self { name: name.to_owned(), hint };
        }
        let near: Vec<&str> =
            all.iter().copied().filter(|other| strsim::damerau_levenshtein(other, name) <= DISTANCE_MAX).collect();
        let hint = match (near.is_empty(), all.is_empty()) {
            (false, _) => format!("; did you mean {}?", near.join(" or ")),
            (true, false) => format!("; there are: {}", all.join(", ")),
            (true, true) => String::new(),
        };
        Self { name: name.to_owned(), hint }
    }
}

model::classified!(NoInterface: Lacking);

/// The names of the interfaces of this thread's network namespace.
pub fn names() -> Vec<String> {
    let list = if_nameindex();
    list.map(|list| list.iter().map(|i| i.name().to_string_lossy().into_owned()).collect()).unwrap_or_default()
}

/// The index of an interface of this thread's network namespace, by which it is known as long as it exists.
pub fn index(name: &str) -> Result<u32, NoInterface> {
    find(name).ok_or_else(|| NoInterface::here(name))
}

/// The kernel cuts names at a colon, which no interface has in its name: what is behind it is a label of an address.
fn find(name: &str) -> Option<u32> {
    if_nametoindex(name).ok().filter(|_| !name.contains(':'))
}

/// True if there is an interface of that name in this thread's network namespace.
pub fn exists(name: &str) -> bool {
    find(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::name_of;

    #[test]
    fn a_name_that_nobody_has_is_answered_with_those_like_it_or_with_all() {
        let message = |name: &str, there: &[&str]| NoInterface::among(name, there.iter().copied()).to_string();
        assert!(message("eht0", &["lo", "eth0", "eth10"]).ends_with("namespace; did you mean eth0 or eth10?"));
        assert!(message("wlan0", &["lo", "eth0"]).ends_with("`wlan0` in this network namespace; there are: lo, eth0"));
        assert!(message("x", &[]).ends_with("namespace"));
        assert!(message("eth0:1", &["lo", "eth0"]).ends_with("name the interface, eth0"));
        assert!(!message("br:1", &["lo", "eth0"]).contains("label"));
    }

    #[test]
    fn the_loopback_has_a_number() {
        assert_eq!(index("lo").map(name_of), Ok(Some("lo".to_owned())));
        assert_eq!(index("ek-none").unwrap_err().name, "ek-none");
        assert!(exists("lo") && !exists("ek-none") && !exists("lo:1"));
        assert_eq!(name_of(i32::MAX as u32), None);
    }
}
