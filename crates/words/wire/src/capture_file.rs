//! libpcap's messages about capture files, and remedies for those that are known.

use std::path::Path;

/// The largest block that libpcap reads, in bytes.
const BLOCK_MAX: u32 = 16 << 20;

/// A file that libpcap does not read, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// libpcap's message without the name of the file, and the remedy.
    pub reason: String,
    /// The file is good: libpcap lacks what reading it takes.
    pub limit: bool,
}

impl Unread {
    /// Reads `message`, which libpcap gave for the file at `path`.
    pub fn of(message: &str, path: &Path) -> Self {
        let message = message.strip_prefix(&format!("{}: ", path.display())).unwrap_or(message);
        let (limit, hint) = if message.contains("different from the type of the first interface") {
            (true, "it has interfaces of several link types, which tshark reads: capture each by itself")
        } else if message.contains("different from the snapshot length") || other_byte_order(message) {
            (true, "its sections or interfaces differ: `tshark -r FILE -F pcap -w NEW` makes a file that can be read")
        } else if message == "unknown file format" {
            (false, "it is neither pcap nor pcapng; if it is compressed, unpack it first")
        } else if message.starts_with("truncated dump file") && message.contains("header bytes") {
            (false, "it is empty or cut short: a capture begins with a header of 24 bytes")
        } else {
            return Self { reason: message.to_owned(), limit: false };
        };
        Self { reason: format!("{message} ({hint})"), limit }
    }
}

/// True of libpcap's messages about a later section whose byte order is not that of the first: it reads their lengths in the first one's order.
fn other_byte_order(message: &str) -> bool {
    if message.contains("different byte order") {
        return true;
    }
    let lengths = message.strip_prefix("pcapng block size ").and_then(|rest| rest.split_once(" > maximum "));
    let length = lengths.and_then(|(length, _)| length.parse::<u32>().ok()).map(u32::swap_bytes);
    length.is_some_and(|length| length % 4 == 0 && (28..=BLOCK_MAX).contains(&length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_of_the_other_byte_order_is_no_damage() {
        let of = |message: &str| Unread::of(message, Path::new("a.pcapng"));
        // 52 and 13 bytes in the other order, and a length that is too large in both.
        assert!(of("a.pcapng: pcapng block size 872415232 > maximum 16777216").limit);
        assert!(!of("pcapng block size 218103808 > maximum 16777216").limit);
        assert!(!of("pcapng block size 4294967292 > maximum 16777216").limit);
        assert_eq!(of("a.pcapng: truncated").reason, "truncated");
    }
}
