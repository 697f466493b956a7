//! The names of the files of a rotation.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use super::Rotation;

/// Naming of a rotation's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Naming {
    /// `name-00001.pcapng`, `name-00002.pcapng`.
    #[default]
    Numbered,
    /// As tcpdump does: `name`, `name1`, `name2`, or a ring of numbers of equal length from 0 on where a number of files is kept. With a
    /// time between files the name has strftime(3)'s patterns.
    Tcpdump,
}

/// A name whose patterns of a time cannot be filled in.
#[derive(Debug, thiserror::Error)]
#[error("the file name `{name}` cannot be filled in with a time: {reason}; write a percent sign as `%%`")]
pub struct NoPattern {
    name: String,
    reason: String,
}

/// Gives one name after the other.
#[derive(Debug)]
pub(super) struct Names {
    base: OsString,
    rotation: Rotation,
    zone: jiff::tz::TimeZone,
    number: u32,
    /// The name without a number, and how many files had it before.
    timed: OsString,
    before: u32,
}

impl Names {
    pub(super) fn new(base: OsString, rotation: Rotation) -> Self {
        let zone = jiff::tz::TimeZone::system();
        Self { base, rotation, zone, number: 0, timed: OsString::new(), before: 0 }
    }

    /// The name of the next file; `by_time` if it begins at that time, in seconds since the epoch, and not because of a size.
    pub(super) fn next(&mut self, at_s: u64, by_time: bool) -> Result<OsString, NoPattern> {
        self.number += 1;
        if self.rotation.naming == Naming::Numbered {
            return Ok(numbered(&self.base, self.number));
        }
        let timed = if self.number == 1 || by_time { self.timed(at_s)? } else { self.timed.clone() };
        // A pattern that is too coarse makes the same name again: tcpdump writes over the file.
        self.before = if self.number > 1 && timed == self.timed { self.before + 1 } else { 0 };
        self.timed = timed;
        let (digits, number) = match self.rotation.files.filter(|_| self.rotation.bytes.is_some()) {
            Some(files) => (digits(files.saturating_sub(1)), self.before % files.max(1)),
            None => (0, self.before),
        };
        let mut name = self.timed.clone();
        if number > 0 || digits > 0 {
            name.push(format!("{number:0digits$}"));
        }
        Ok(name)
    }

    /// The one that is to be removed now; a ring writes over its oldest.
    pub(super) fn oldest(&self) -> Option<OsString> {
        let keep = self.rotation.files.filter(|_| self.rotation.naming == Naming::Numbered)?;
        self.number.checked_sub(keep.max(1)).filter(|&n| n > 0).map(|n| numbered(&self.base, n))
    }

    fn timed(&self, at_s: u64) -> Result<OsString, NoPattern> {
        if self.rotation.seconds.is_none() {
            return Ok(self.base.clone());
        }
        let wrong = |reason: String| NoPattern { name: self.base.to_string_lossy().into_owned(), reason };
        let pattern = self.base.to_str().ok_or_else(|| wrong("it is not UTF-8".to_owned()))?;
        let at = jiff::Timestamp::from_second(at_s.cast_signed()).unwrap_or_default().to_zoned(self.zone.clone());
        let name = jiff::fmt::strtime::format(pattern, &at).map_err(|e| wrong(e.to_string()))?;
        if name.contains('/') { Err(wrong("it makes a folder".to_owned())) } else { Ok(name.into()) }
    }
}

/// Digits of a number; 0 has none.
fn digits(number: u32) -> usize {
    number.checked_ilog10().map_or(0, |n| n as usize + 1)
}

/// `name.pcapng` and 7 become `name-00007.pcapng`.
pub(super) fn numbered(base: &OsStr, number: u32) -> OsString {
    let base = Path::new(base);
    let stem = base.file_stem().unwrap_or_default().to_string_lossy();
    match base.extension() {
        Some(extension) => format!("{stem}-{number:05}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number:05}"),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(base: &str, rotation: Rotation, packets: &[(u64, bool)]) -> Vec<String> {
        let mut names = Names { zone: jiff::tz::TimeZone::UTC, ..Names::new(base.into(), rotation) };
        let mut next = |(seconds, by_time): &(u64, bool)| names.next(*seconds, *by_time).expect("a name");
        packets.iter().map(|packet| next(packet).into_string().expect("UTF-8")).collect()
    }

    fn rotation(seconds: Option<u64>, files: Option<u32>, naming: Naming) -> Rotation {
        Rotation { bytes: Some(1), seconds, files, naming, packets: None }
    }

    #[test]
    fn sizes_number_as_tcpdump_does() {
        let full = [(0, false); 4];
        let of = |files, naming| names("x.pcap", rotation(None, files, naming), &full);
        assert_eq!(of(None, Naming::Tcpdump), ["x.pcap", "x.pcap1", "x.pcap2", "x.pcap3"]);
        assert_eq!(of(Some(3), Naming::Tcpdump), ["x.pcap0", "x.pcap1", "x.pcap2", "x.pcap0"]);
        assert_eq!(of(Some(11), Naming::Tcpdump)[..2], ["x.pcap00", "x.pcap01"]);
        assert_eq!(of(Some(1), Naming::Tcpdump)[..2], ["x.pcap", "x.pcap"]);
        assert_eq!(of(Some(2), Naming::Numbered)[..2], ["x-00001.pcap", "x-00002.pcap"]);
    }

    #[test]
    fn times_stand_in_the_name_and_no_file_is_written_over() {
        let of = |base, packets: &[(u64, bool)]| names(base, rotation(Some(60), None, Naming::Tcpdump), packets);
        assert_eq!(
            of("%H%M.pcap", &[(0, false), (60, true), (61, false), (3720, true)]),
            ["0000.pcap", "0001.pcap", "0001.pcap1", "0102.pcap"]
        );
        assert_eq!(of("%H.pcap", &[(0, false), (60, true), (3600, true)]), ["00.pcap", "00.pcap1", "01.pcap"]);
        let mut wrong = Names::new("%!".into(), rotation(Some(1), None, Naming::Tcpdump));
        assert!(wrong.next(0, false).is_err());
    }
}
