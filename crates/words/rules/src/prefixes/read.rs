//! Set files: one prefix or address a line; what follows `#` or `;` is a comment.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use model::input;

use crate::rule::{Prefix, PrefixSet};

/// Bad lines that an error names; of more it says how many.
const NAMED_MAX: usize = 5;

/// The treatment of a line that is neither prefix nor comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadLine {
    #[default]
    Refuse,
    /// Leave the line out, and say so.
    Skip,
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The file, or whatever name its text has.
    pub file: String,
    /// 1 for the first.
    pub line: usize,
    /// Column in bytes, 1 for the first.
    pub column: usize,
    /// The fault, and what is meant, if that can be guessed.
    pub why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.why)
    }
}

/// A reason why a file gives no set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error("cannot read the set file {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{}", list(.lines))]
    Lines {
        /// Each of them, in the file's order.
        lines: Vec<BadLine>,
    },
}

model::classified!(SetError: Usage);

fn list(lines: &[BadLine]) -> String {
    let mut text: Vec<_> = lines.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if lines.len() > NAMED_MAX {
        text.push(format!("and {} more bad lines", lines.len() - NAMED_MAX));
    }
    text.push("correct the file, or have bad lines skipped".to_owned());
    text.join("\n")
}

/// Reads a set file. With [`OnBadLine::Skip`] the bad lines come beside the set.
///
/// # Errors
/// [`SetError::Read`]; [`SetError::Lines`] for bad lines that are not to be skipped.
pub fn read_set(path: &Path, on_bad: OnBadLine) -> Result<(PrefixSet, Vec<BadLine>), SetError> {
    let bytes = input::read(path).map_err(|source| SetError::Read { path: path.to_owned(), source })?;
    parse_set(&bytes, &path.display().to_string(), on_bad)
}

/// Reads the text of a set file; `name` is what errors call it.
///
/// # Errors
/// [`SetError::Lines`] for bad lines that are not to be skipped.
pub fn parse_set(bytes: &[u8], name: &str, on_bad: OnBadLine) -> Result<(PrefixSet, Vec<BadLine>), SetError> {
    let mut prefixes = Vec::with_capacity(bytes.len() / 16);
    let mut bad = vec![];
    // As editors of Windows begin a file.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for (i, line) in bytes.split(|&b| b == b'\n').enumerate() {
        let content = line.iter().position(|b| matches!(b, b'#' | b';')).map_or(line, |end| &line[..end]);
        let word = content.trim_ascii();
        if word.is_empty() {
            continue;
        }
        let column = 1 + content.len() - content.trim_ascii_start().len();
        let read = match str::from_utf8(word) {
            Ok(text) => parse_prefix(text),
            Err(e) => Err((e.valid_up_to(), "this is not text".to_owned())),
        };
        match read {
            Ok(prefix) => prefixes.push(prefix),
            Err((at, why)) => bad.push(BadLine { file: name.to_owned(), line: i + 1, column: column + at, why }),
        }
    }
    if !bad.is_empty() && on_bad == OnBadLine::Refuse {
        return Err(SetError::Lines { lines: bad });
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    Ok((PrefixSet { prefixes }, bad))
}

/// Reads a prefix (`192.0.2.0/24`, `2001:db8::/32`) or an address.
///
/// # Errors
/// Position in the text, in bytes from 0, and the error.
pub fn parse_prefix(text: &str) -> Result<Prefix, (usize, String)> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let bits: IpAddr = address.parse().map_err(|_| {
        let end = address.find(char::is_whitespace);
        match end {
            Some(end) if address[..end].parse::<IpAddr>().is_ok() => (end, "one prefix a line".to_owned()),
            _ => (0, format!("\"{}\" is not an IPv4 or IPv6 address", address.escape_debug())),
        }
    })?;
    let max = if bits.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => max,
        Some(len) => {
            let digits = !len.is_empty() && len.len() <= 3 && len.bytes().all(|b| b.is_ascii_digit());
            len.parse::<u8>().ok().filter(|len| digits && *len <= max).ok_or_else(|| {
                let at = address.len() + 1;
                (at, format!("\"{}\" is not a prefix length of 0 to {max} bits", len.escape_debug()))
            })?
        }
    };
    let masked = match bits {
        IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & !u32::MAX.checked_shr(len.into()).unwrap_or(0))),
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & !u128::MAX.checked_shr(len.into()).unwrap_or(0))),
    };
    if masked != bits {
        return Err((0, format!("{text} has bits set after /{len}: write {masked}/{len}, or {bits} for one address")));
    }
    Ok(unmapped(bits, len))
}

/// The IPv4 prefix of addresses within ::ffff:0:0/96, as IPv6 sockets write those of IPv4 (RFC 4291 section 2.5.5.2): no packet has one of them.
pub(crate) fn unmapped(address: IpAddr, len: u8) -> Prefix {
    match (address.to_canonical(), len.checked_sub(96)) {
        (canonical, Some(rest)) if canonical != address => Prefix { address: canonical, len: rest },
        _ => Prefix { address, len },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_those_of_ipv4() {
        let read = |text: &str| parse_prefix(text).map(|prefix| (prefix.address.to_string(), prefix.len));
        for (text, address, len) in [
            ("::ffff:192.0.2.7", "192.0.2.7", 32),
            ("::ffff:c000:207", "192.0.2.7", 32),
            ("::ffff:192.0.2.0/120", "192.0.2.0", 24),
            ("::ffff:0:0/96", "0.0.0.0", 0),
            ("::fffe:0:0/95", "::fffe:0:0", 95),
            ("::/0", "::", 0),
            ("64:ff9b::192.0.2.7", "64:ff9b::c000:207", 128),
        ] {
            assert_eq!(read(text), Ok((address.to_owned(), len)), "{text}");
            let word = crate::words::prefix(text).map(|prefix| (prefix.address.to_string(), prefix.len));
            assert_eq!(word, Ok((address.to_owned(), len)), "{text}");
        }
    }

    #[test]
    fn protocols_have_the_names_of_others_too() {
        for (word, number) in [
            ("icmp6", 58),
            ("ipv6-icmp", 58),
            ("udp-lite", 136),
            ("ospfigp", 89),
            ("ipencap", 4),
            ("eigrp", 88),
            ("rsvp", 46),
            ("IPv6-ICMP", 58),
        ] {
            assert_eq!(crate::words::protocol(word), Ok(number), "{word}");
        }
    }
}
