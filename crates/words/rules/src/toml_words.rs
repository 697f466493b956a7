//! TOML values as words with their places.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    keys::{Entry, Fault, Word},
    words::Wrong,
};
use crate::error::Problem;

/// A text with its name, which turns byte offsets into lines and columns.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Name of the file or flag.
    pub name: &'a str,
    pub text: &'a str,
}

impl<'a> Text<'a> {
    /// Places in this text, which are cheap to find one after the other.
    pub fn places(self) -> Places<'a> {
        Places { text: self, at: 0, line: 1, column: 1 }
    }

    /// A problem at a byte offset.
    pub fn problem(self, fault: Fault) -> Problem {
        self.places().problem(fault)
    }

    /// Problems at byte offsets, in the order of the text.
    pub fn problems(self, mut faults: Vec<Fault>) -> Vec<Problem> {
        faults.sort_by_key(|fault| fault.0);
        let mut places = self.places();
        faults.into_iter().map(|fault| places.problem(fault)).collect()
    }
}

/// Lines and columns of byte offsets. What was counted up to one place is not counted again for a later one: a file of many thousand rules takes
/// no longer to number than to read.
#[derive(Debug)]
pub struct Places<'a> {
    text: Text<'a>,
    at: usize,
    line: usize,
    column: usize,
}

impl Places<'_> {
    /// Line and column (in characters) of a byte offset, both 1 for the first.
    pub fn of(&mut self, at: usize) -> (usize, usize) {
        if at < self.at {
            (self.at, self.line, self.column) = (0, 1, 1);
        }
        let at = at.min(self.text.text.len());
        for byte in &self.text.text.as_bytes()[self.at..at] {
            match byte {
                b'\n' => (self.line, self.column) = (self.line + 1, 1),
                // The second and further bytes of a character.
                0x80..0xc0 => {}
                _ => self.column += 1,
            }
        }
        self.at = at;
        (self.line, self.column)
    }

    fn problem(&mut self, (at, wrong): Fault) -> Problem {
        let (line, column) = self.of(at);
        Problem { file: self.text.name.to_owned(), line, column, what: wrong.what, instead: wrong.instead }
    }
}

/// TOML's name of the type of a value, with its article.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A value that is not a list or table, as the word that it would be in quotes.
fn scalar(value: &Spanned<DeValue<'_>>) -> Result<Word, Fault> {
    let at = value.span().start;
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(moment) => moment.to_string(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().to_owned(),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => number.to_string(),
            Err(_) => return Err((at, Wrong::new("a number that is too large", "write a smaller one"))),
        },
        DeValue::Float(float) => float.as_str().to_owned(),
        other => {
            return Err((
                at,
                Wrong::new(format!("{} where one value belongs", kind(other)), "write a string or a number"),
            ));
        }
    };
    Ok(Word { text, at })
}

/// A value, or a list of values.
pub fn values(value: &Spanned<DeValue<'_>>) -> Result<Vec<Word>, Fault> {
    match value.get_ref() {
        DeValue::Array(array) if array.is_empty() => {
            let wrong = Wrong::new("an empty list says nothing", "leave the key out, or name what is meant");
            Err((value.span().start, wrong))
        }
        DeValue::Array(array) => array.iter().map(scalar).collect(),
        _ => scalar(value).map(|word| vec![word]),
    }
}

/// The keys of a table with their values.
pub fn entries(table: &DeTable<'_>) -> Result<Vec<Entry>, Vec<Fault>> {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (key, value) in table {
        match values(value) {
            Ok(words) => {
                entries.push(Entry { key: Word { text: key.get_ref().to_string(), at: key.span().start }, words });
            }
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

/// The table that `value` is.
pub fn table<'a, 'i>(value: &'a Spanned<DeValue<'i>>, instead: &str) -> Result<&'a DeTable<'i>, Fault> {
    value.get_ref().as_table().ok_or_else(|| {
        (value.span().start, Wrong::new(format!("{} where a table belongs", kind(value.get_ref())), instead))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counted from the beginning each time.
    fn slowly(text: &str, at: usize) -> (usize, usize) {
        let before = &text[..at];
        (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
    }

    proptest! {
        #[test]
        fn places_are_the_same_in_any_order(text in "[a\n\u{e4}\u{1f600}]{0,60}", order in prop::collection::vec(any::<prop::sample::Index>(), 1..20)) {
            let offsets: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut places = Text { name: "", text: &text }.places();
            for index in order {
                let at = offsets[index.index(offsets.len())];
                prop_assert_eq!(places.of(at), slowly(&text, at));
            }
        }
    }
}
