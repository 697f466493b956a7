//! Command lines of verbs for the lab of a self-test and for the cards of a guest, and the signs that the verbs work.

/// Words that `shield run` and `link serve` print once they filter and serve.
pub const SHIELD_UP: &str = "shield up";
pub const LINK_UP: &str = " serves";

/// The largest share of unexplained frames in a ledger that works.
const UNEXPLAINED_MAX: f64 = 0.001;

/// The arguments of a verb, in which `NEAR` and `FAR` stand for the interfaces of a box.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    words: &'static [&'static str],
    /// Words that the verb prints once it runs; none: the verb ends by itself.
    pub up: Option<&'static str>,
}

const LIMIT: &str = "limit protocol=tcp rate=1000";
const CHALLENGE: &str = "challenge protocol=tcp destination-port=80";

/// The verbs for a card, without `ledger`, `spread` and `capture`, which need frames.
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
    /// The arguments with the interfaces of a box.
    pub fn on<'a>(&self, ports: [&'a str; 2]) -> Vec<&'a str> {
        arguments(self.words.iter().copied(), ports)
    }
}

/// Puts interfaces in the place of `NEAR` and `FAR`.
pub(crate) fn arguments<'a>(words: impl Iterator<Item = &'a str>, [near, far]: [&'a str; 2]) -> Vec<&'a str> {
    let placed = |word| match word {
        "NEAR" => near,
        "FAR" => far,
        word => word,
    };
    words.map(placed).collect()
}

/// True if a ledger explains its frames, except `spare` frames that moved while the counters were read.
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
