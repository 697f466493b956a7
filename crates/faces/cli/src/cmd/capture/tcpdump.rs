//! tcpdump's own flags, where they mean something else than ours, and answers to those that are not taken.

use std::{ffi::OsStr, path::Path};

use anyhow::Context;
use capture::{
    output::{Naming, Rotation},
    plan::Backend,
    session::ANY,
};
use clap::Args;
use host::interface::Wiring;

use super::args::wrong;
use crate::{
    failure::{Failure, Outcome, print},
    numbers::{number, words},
};

/// The answer to a flag of tcpdump that capture does not take: the flag or command that does the same.
pub(crate) fn called_here(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "--count" => "tcpdump's --count is --count-only here; --count N is -c N",
        "-B" | "--buffer-size" => "tcpdump's -B (KiB) is --buffer for --backend packet here, and --blocks for a ring",
        "-d" => "the compiled filter is not shown here: `tcpdump -d`",
        "-Z" | "--relinquish-privileges" => {
            "capture gives up root's rights by itself before it reads packets: leave the flag out"
        }
        "-K" | "--dont-verify-checksums" => "checksums are not checked here: leave the flag out",
        "-F" => "write the filter on the command line: \"$(cat FILE)\"",
        "-V" => "one file is read at a time here: -r FILE",
        "-I" | "--monitor-mode" => "set monitor mode before the capture: `iw dev INTERFACE set type monitor`",
        "-j" | "-J" | "--time-stamp-type" | "--list-time-stamp-types" => {
            "times are those of the kernel: leave the flag out"
        }
        "-L" | "-y" | "--list-data-link-types" | "--linktype" => {
            "the link type is the interface's own: leave the flag out"
        }
        "-H" | "-M" | "-E" | "-T" => {
            "payloads are not decoded here: `evenkeel capture -i INTERFACE -w - | tshark -r -`"
        }
        "-N" | "-f" => "names are never looked up here: leave the flag out",
        "-O" | "--no-optimize" => "the filter is always optimised: leave the flag out",
        "-a" | "-b" | "-g" | "-u" => "lines have one form here: leave the flag out",
        "-m" => "MIB modules are not loaded here: leave the flag out",
        "-z" => "no program is run on files here: a file is whole when the next one has begun",
        "-#" | "--number" => "lines are not numbered here: `| cat -n`",
        "--immediate-mode" => "--block-timeout 1ms hands packets over at once here",
        "--time-stamp-precision" | "--micro" | "--nano" => "files have nanoseconds always: leave the flag out",
        "--list-remote-interfaces" => "only this machine's interfaces are captured from: -D lists them",
        _ => return None,
    })
}

/// Flags that are tcpdump's alone, and mean what they mean there.
#[derive(Debug, Default, Args)]
pub(super) struct TcpdumpArgs {
    /// As in tcpdump: begin a new file when one has grown beyond so many millions of bytes; they are called FILE, FILE1, FILE2.
    #[arg(short = 'C', value_name = "N", hide_short_help = true, conflicts_with_all = ["rotate_size", "rotate_interval", "rotate_count", "files"], help_heading = "Files", value_parser = number::<u64>("a number of millions of bytes", "10", 1..))]
    millions: Option<u64>,
    /// As in tcpdump: begin a new file after so many seconds; FILE has patterns of strftime(3), such as x-%H%M%S.pcap.
    #[arg(short = 'G', value_name = "N", hide_short_help = true, conflicts_with_all = ["rotate_size", "rotate_interval", "rotate_count", "files", "read"], help_heading = "Files", value_parser = number::<u64>("a number of seconds", "60", 1..))]
    seconds: Option<u64>,
    /// As in tcpdump: with -C write over the oldest of so many files, called FILE0, FILE1, FILE2; with -G alone stop after so many.
    #[arg(short = 'W', value_name = "N", hide_short_help = true, conflicts_with = "files", help_heading = "Files", value_parser = number::<u32>("a number of files", "10", 1..))]
    ring: Option<u32>,
    /// As in tcpdump: capture packets of this direction only [default: inout].
    #[arg(short = 'Q', long = "direction", value_name = "DIRECTION", hide_short_help = true, value_parser = words(&DIRECTIONS), help_heading = "What to capture", group = "live")]
    pub(super) direction: Option<Wanted>,
    /// List the interfaces that can be captured from, and end.
    #[arg(short = 'D', long, hide_short_help = true, help_heading = "What to capture", group = "live")]
    pub(super) list_interfaces: bool,
}

/// The direction of the packets that are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    In,
    Out,
    Both,
}

const DIRECTIONS: [(&str, &str, Wanted); 3] = [
    ("in", "packets that this machine receives", Wanted::In),
    ("out", "packets that this machine sends", Wanted::Out),
    ("inout", "both", Wanted::Both),
];

impl TcpdumpArgs {
    /// The rotation that these flags ask for; none without them.
    pub(super) fn rotation(&self, file: Option<&Path>) -> Result<Option<Rotation>, Failure> {
        if self.millions.is_none() && self.seconds.is_none() {
            let lonely = self.ring.is_some();
            return if lonely {
                Err(wrong("-W needs -C or -G: a number of files is for a rotation"))
            } else {
                Ok(None)
            };
        }
        let has_pattern = |part: Option<&OsStr>| part.is_some_and(|part| part.to_string_lossy().contains('%'));
        let (name, folder) = (file.and_then(Path::file_name), file.and_then(Path::parent).map(Path::as_os_str));
        // A single file is written over by none.
        let is_one = self.millions.is_none() && self.ring == Some(1);
        if self.seconds.is_some() && file.is_some_and(|file| file != "-") && !has_pattern(name) && !is_one {
            return Err(wrong(
                "-G needs a time in the name of -w, or each file would be written over the one before: -w 'NAME-%Y%m%d-%H%M%S.pcap'; --rotate-interval numbers files instead",
            ));
        }
        if self.seconds.is_some() && has_pattern(folder) {
            return Err(wrong("with -G the folder of -w has no times (`%`) in its name: all files lie in one folder"));
        }
        let bytes = self.millions.map(|n| n.saturating_mul(1_000_000));
        Ok(Some(Rotation { bytes, seconds: self.seconds, packets: None, files: self.ring, naming: Naming::Tcpdump }))
    }

    /// The filter, with the direction that is asked for.
    pub(super) fn filter(&self, filter: String, backend: Option<Backend>) -> Result<String, Failure> {
        if self.direction != Some(Wanted::Out) {
            return Ok(filter);
        }
        if backend.is_some_and(Backend::is_xdp) {
            return Err(wrong(
                "xdp and tap see received packets only (-Q in): for -Q out use --backend ring or packet",
            ));
        }
        Ok(if filter.is_empty() { "outbound".to_owned() } else { format!("outbound and ({filter})") })
    }
}

/// The interfaces in the order in which they are numbered.
fn numbered() -> Vec<String> {
    let mut names = host::interface::names();
    names.push(ANY.to_owned());
    names
}

/// The interface that has this number in the list of `-D`, unless one is called so.
pub(super) fn by_number(name: String) -> Result<String, Failure> {
    let Ok(number) = name.parse::<usize>() else { return Ok(name) };
    if host::interface::exists(&name) {
        return Ok(name);
    }
    let found = number.checked_sub(1).and_then(|at| numbered().into_iter().nth(at));
    found.ok_or_else(|| {
        wrong(format!("there is no interface with the number {number}: `evenkeel capture -D` lists them"))
    })
}

/// Prints the interfaces, as `tcpdump -D` does.
pub(super) fn list() -> Result<Outcome, Failure> {
    let wiring = Wiring::read().context("cannot list the interfaces").map_err(Failure::lacking)?;
    let mut text = String::new();
    for (at, name) in numbered().iter().enumerate() {
        let state = match name.as_str() {
            ANY => "all that are up",
            name if wiring.up().any(|up| up == name) => "up",
            _ => "down",
        };
        text += &format!("{}.{name} [{state}]\n", at + 1);
    }
    print(&text).map(|()| Outcome::Fine)
}
