//! Values out of arguments: numbers, sizes, words. Errors say what to write instead.

use std::{
    fmt::Display,
    ops::{Bound, RangeBounds},
    str::FromStr,
};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A parser of `what` (`a number of flows`) within a range, which says it with an example.
pub(crate) fn number<T>(
    what: &'static str,
    example: &'static str,
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + 'static,
{
    move |text| {
        let number = text.trim().parse::<T>().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let bounds = match (range.start_bound(), range.end_bound()) {
                (Bound::Included(least), Bound::Included(most)) => format!(" from {least} to {most}"),
                (Bound::Included(least), _) => format!(" from {least} on"),
                _ => String::new(),
            };
            format!("write {what}{bounds}, such as {example}")
        })
    }
}

/// A size in bytes, such as 4096, 256K, 64M or 1G.
pub(crate) fn bytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => Some(1),
        "K" | "KIB" => Some(1 << 10),
        "M" | "MIB" => Some(1 << 20),
        "G" | "GIB" => Some(1 << 30),
        _ => None,
    };
    let size = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    let size = size.filter(|&size| size > 0).and_then(|size| T::try_from(size).ok());
    size.ok_or_else(|| "write a size in bytes, such as 4096, 256K, 64M or 1G".to_owned())
}

/// A parser of words, each with its help and its value.
pub(crate) fn words<T: Clone + Send + Sync + 'static>(
    table: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let possible = table.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(possible).try_map(|text| {
        let found = table.iter().find(|(word, ..)| *word == text);
        found.map(|(.., value)| value.clone()).ok_or("no such word")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_bounds_and_is_requested_with_an_example() {
        let flows = number::<u32>("a number of flows", "32768", ..);
        assert_eq!(flows("512"), Ok(512));
        for wrong in ["x", "", "-1", "1.5", "5000000000"] {
            assert_eq!(flows(wrong), Err("write a number of flows, such as 32768".to_owned()), "{wrong}");
        }
        let percent = number::<u32>("a percentage", "80", 1..=100);
        assert_eq!(percent("100"), Ok(100));
        assert_eq!(percent("0"), Err("write a percentage from 1 to 100, such as 80".to_owned()));
        assert_eq!(number::<u8>("n", "3", 1..)("0"), Err("write n from 1 on, such as 3".to_owned()));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((bytes("256K"), bytes("17")), (Ok(262_144_u64), Ok(17_u32)));
        for text in ["99999999999G", "8G", "0", "", "K", "3Q", "-1"] {
            assert!(bytes::<u32>(text).is_err(), "{text}");
        }
    }
}
