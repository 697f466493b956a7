//! Numbers, words and tables of TOML, each with what is to be written instead of what cannot be.

use std::path::PathBuf;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    keys::{self, Fault},
    toml_words,
    words::{self, Wrong},
};

pub(super) type Value<'i> = Spanned<DeValue<'i>>;

pub(super) struct Reader<'f> {
    pub(super) faults: &'f mut Vec<Fault>,
}

impl Reader<'_> {
    pub(super) fn wrong(&mut self, value: &Value<'_>, what: impl Into<String>, instead: impl Into<String>) {
        self.faults.push((value.span().start, Wrong::new(what, instead)));
    }

    /// Does `with` the values of all keys that are known.
    pub(super) fn each<'v>(
        &mut self,
        value: &'v Value<'_>,
        name: &str,
        known: &[&str],
        instead: &str,
        with: &mut dyn FnMut(&mut Self, &str, &'v Value<'_>),
    ) {
        let Some(table) = self.table(value, instead) else { return };
        for (key, value) in table {
            match known.iter().find(|known| **known == key.get_ref().as_ref()) {
                Some(known) => with(self, known, value),
                None => {
                    let wrong = Wrong::new(
                        format!("`{name}` has no key `{}`", key.get_ref()),
                        keys::instead_of(key.get_ref(), known),
                    );
                    self.faults.push((key.span().start, wrong));
                }
            }
        }
    }

    pub(super) fn table<'v, 'i>(&mut self, value: &'v Value<'i>, instead: &str) -> Option<&'v DeTable<'i>> {
        toml_words::table(value, instead).map_err(|fault| self.faults.push(fault)).ok()
    }

    pub(super) fn number(&mut self, value: &Value<'_>, key: &str) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) => plain(value).and_then(|text| text.parse().ok()),
            _ => None,
        };
        if number.is_none() {
            self.wrong(value, format!("`{key}` is no number"), format!("write it without quotes, as in {key} = 5"));
        }
        number
    }

    pub(super) fn whole(&mut self, value: &Value<'_>, key: &str) -> Option<u64> {
        let number = match value.get_ref() {
            DeValue::Integer(_) => plain(value).and_then(|text| text.parse().ok()),
            _ => None,
        };
        if number.is_none() {
            self.wrong(
                value,
                format!("`{key}` is no whole number"),
                format!("write it without quotes, as in {key} = 5"),
            );
        }
        number
    }

    pub(super) fn boolean(&mut self, value: &Value<'_>, key: &str) -> Option<bool> {
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong(value, format!("`{key}` is neither true nor false"), "write true or false, without quotes");
        }
        boolean
    }

    pub(super) fn path(&mut self, value: &Value<'_>, key: &str) -> Option<PathBuf> {
        let path = value.get_ref().as_str().filter(|path| !path.is_empty()).map(PathBuf::from);
        if path.is_none() {
            self.wrong(
                value,
                format!("`{key}` is no file"),
                format!("write its path in quotes, as in {key} = \"/var/log/…\""),
            );
        }
        path
    }

    pub(super) fn port(&mut self, value: &Value<'_>) -> Option<u16> {
        let text = plain(value).unwrap_or_default();
        let port = words::range(&text, "port", 0, 65535).ok().filter(|range| range.start() == range.end());
        if port.is_none() {
            self.wrong(value, "`port` is no port", "write a number from 1 to 65535, as in port = 9464");
        }
        port.map(|range| *range.start())
    }

    /// Packets, or bits, per second: a number, or as rules have it.
    pub(super) fn rate(&mut self, value: &Value<'_>, key: &str) -> Option<f64> {
        let text = plain(value);
        let rate = match value.get_ref() {
            DeValue::String(text) => words::rate(text).ok().map(|pps| pps as f64),
            _ => text.as_ref().and_then(|text| text.parse().ok()),
        };
        if rate.is_none() {
            let shown = text.map_or_else(String::new, |text| format!(" `{text}`"));
            self.wrong(
                value,
                format!("`{key}`{shown} is not a rate"),
                "write a number per second, such as 5000, \"5k/s\" or \"1.5M/s\"",
            );
        }
        rate
    }
}

/// A value without its quotes, as words are written.
fn plain(value: &Value<'_>) -> Option<String> {
    let words = toml_words::values(value).ok()?;
    match &words[..] {
        // TOML lets digits be grouped.
        [word] if value.get_ref().as_str().is_none() => Some(word.text.replace('_', "")),
        [word] => Some(word.text.clone()),
        _ => None,
    }
}
