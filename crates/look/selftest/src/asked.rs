//! What is asked of verbs, in the lab of a self-test and on the cards of a guest, and the signs that they work.

/// Said by `shield run` and `link serve` once they do what they are for.
pub const SHIELD_UP: &str = "shield up";
pub const LINK_UP: &str = " serves";

/// The share of frames that the ledger may leave unexplained.
const UNEXPLAINED_MAX: f64 = 0.001;

/// The arguments of a verb; `NEAR` and `FAR` are the interfaces of a box.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    words: &'static [&'static str],
    /// Said once it holds; none: it ends by itself.
    pub up: Option<&'static str>,
}

const LIMIT: &str = "limit protocol=tcp rate=1000";
const CHALLENGE: &str = "challenge protocol=tcp destination-port=80";

/// Asked on a card, besides `ledger`, `spread` and `capture`, which see frames there.
pub const ON_A_CARD: [Asked; 8] = [
    Asked { words: &["top", "--once"], up: None },
    Asked { words: &["doctor"], up: None },
    Asked { words: &["profile", "--duration", "2s"], up: None },
    Asked { words: &["shield", "run", "NEAR", "--xdp-mode", "native", "--rule", LIMIT], up: Some(SHIELD_UP) },
    Asked { words: &["shield", "run", "NEAR", "--xdp-mode", "generic", "--rule", LIMIT], up: Some(SHIELD_UP) },
    Asked { words: &["shield", "run", "NEAR", "--xdp-mode", "generic", "--rule", CHALLENGE], up: Some(SHIELD_UP) },
    Asked { words: &["route", "check", "NEAR", "FAR"], up: None },
    Asked { words: &["link", "serve", "FAR", "--name", "guest"], up: Some(LINK_UP) },
];

impl Asked {
    /// Its arguments for a box with these interfaces.
    pub fn on<'a>(&self, ports: [&'a str; 2]) -> Vec<&'a str> {
        arguments(self.words.iter().copied(), ports)
    }
}

/// Arguments for a box with these interfaces.
pub(crate) fn arguments<'a>(words: impl Iterator<Item = &'a str>, [near, far]: [&'a str; 2]) -> Vec<&'a str> {
    let placed = |word| match word {
        "NEAR" => near,
        "FAR" => far,
        word => word,
    };
    words.map(placed).collect()
}

/// True if a ledger explains its frames, but for `spare` that were under way while counters were read.
pub fn ledger_closes(offered: f64, unexplained: f64, spare: f64) -> bool {
    unexplained.abs() <= (UNEXPLAINED_MAX * offered).max(spare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_stand_in_the_place_of_their_words() {
        assert_eq!(ON_A_CARD[6].on(["a", "b"]), ["route", "check", "a", "b"]);
        assert!(ledger_closes(1000.0, -1.0, 0.0) && !ledger_closes(1000.0, 2.0, 0.0) && ledger_closes(10.0, 2.0, 2.0));
        assert!(!ledger_closes(f64::NAN, f64::NAN, 0.0));
    }
}
