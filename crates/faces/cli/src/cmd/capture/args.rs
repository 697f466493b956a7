//! The arguments of `evenkeel capture`, and the configuration that they make.

use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use anyhow::anyhow;
use bpf::{TapPlace, XdpMode};
use capture::{
    open::Tuning,
    output::{Naming, Rotation, Target},
    plan::{Backend, FANOUT_NAMES, PlanError, fanout_algorithm},
    session::{ANY, Destination, Readers, Settings},
    text::{Bytes, Shown, Time},
};
use clap::{ArgAction, ArgGroup, Args};
use model::CpuSet;
use port::WHOLE_FRAME;
use sys::packet::FanoutAlgorithm;

use super::{
    config_file::ConfigFile,
    tcpdump::{TcpdumpArgs, Wanted, by_number},
};
use crate::{
    args::XDP_MODES,
    failure::Failure,
    numbers::{bytes, number, words},
    time::{seconds_within, within},
};

/// Capture packets: as lines, to a pcapng file, or only counted.
///
/// Example: evenkeel capture -i eth0 -n udp port 53
///
/// These flags mean what they mean in tcpdump. Packets are printed as lines unless -w, --count-only, --json or --backend auto is given. The
/// network stack still gets the packets, except with --backend xdp and with --consume. xdp and tap see received frames only. Ctrl-C ends
/// the capture and prints the totals; a second Ctrl-C ends it at once.
#[derive(Debug, Default, Args)]
// The group means nothing where packets come from a file.
#[command(group(ArgGroup::new("live").multiple(true)))]
pub(crate) struct CaptureArgs {
    /// The interface, unless -i or -r is given; then the filter (pcap-filter(7)).
    #[arg(value_name = "INTERFACE] [FILTER")]
    words: Vec<String>,
    /// Capture from this interface; `any`: from all that are up.
    #[arg(short, long, value_name = "INTERFACE", conflicts_with = "read", help_heading = "What to capture")]
    interface: Option<String>,
    /// Read this pcap or pcapng file; `-` is standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with = "live", help_heading = "What to capture")]
    read: Option<PathBuf>,
    /// Stop after this number of packets.
    #[arg(short, long, value_name = "N", help_heading = "What to capture", value_parser = number::<u64>("a number of packets", "1000", 1..))]
    count: Option<u64>,
    /// Stop after this time.
    #[arg(long, value_name = "TIME", help_heading = "What to capture", value_parser = within("1ms", "8760h"), group = "live")]
    duration: Option<Duration>,
    /// Bytes to keep of each packet, 16 to 262144; 0 means whole packets [default: 0].
    #[arg(short, long, alias = "snapshot-length", value_name = "BYTES", help_heading = "What to capture", value_parser = snaplen)]
    snaplen: Option<u32>,
    /// Do not put the interface into promiscuous mode.
    #[arg(short = 'p', long, alias = "no-promiscuous-mode", help_heading = "What to capture", group = "live")]
    no_promisc: bool,
    /// Leave out packets that this machine sends.
    #[arg(long, hide_short_help = true, help_heading = "What to capture", group = "live")]
    inbound: bool,
    /// Print one line for each packet [default]
    #[arg(long, hide_short_help = true, conflicts_with_all = ["count_only", "json"], help_heading = "What to print")]
    print: bool,
    /// Only count packets.
    #[arg(long, conflicts_with = "write", help_heading = "What to print")]
    count_only: bool,
    /// Print the link header of each packet.
    #[arg(short = 'e', long, conflicts_with_all = ["write", "count_only", "json"], help_heading = "What to print")]
    link: bool,
    /// Print the fields of the IP header.
    #[arg(short, long, action = ArgAction::Count, help_heading = "What to print")]
    verbose: u8,
    /// Print bytes in hexadecimal; -xx with the link header.
    #[arg(short = 'x', long, hide_short_help = true, action = ArgAction::Count, conflicts_with_all = ["write", "count_only", "json", "hex_ascii", "ascii"], help_heading = "What to print")]
    hex: u8,
    /// Print bytes in hexadecimal and ASCII; -XX with the link header.
    #[arg(short = 'X', long, action = ArgAction::Count, conflicts_with_all = ["write", "count_only", "json", "ascii"], help_heading = "What to print")]
    hex_ascii: u8,
    /// Print bytes in ASCII; -AA with the link header.
    #[arg(short = 'A', long, hide_short_help = true, action = ArgAction::Count, conflicts_with_all = ["write", "count_only", "json"], help_heading = "What to print")]
    ascii: u8,
    /// Print no time; -tt: seconds since the epoch, -ttt: since the packet before, -tttt: date and time, -ttttt: since the first packet
    /// [default: local time of day].
    #[arg(short = 't', long, hide_short_help = true, action = ArgAction::Count, help_heading = "What to print")]
    time: u8,
    /// Print addresses and ports as numbers. This is always so: names are never looked up.
    #[arg(short, long, hide_short_help = true, action = ArgAction::Count, help_heading = "What to print")]
    numeric: u8,
    /// Print whole lines into a pipe. This is always so: a line waits 0.2 s at most.
    #[arg(short, long, hide_short_help = true, help_heading = "What to print")]
    line_buffered: bool,
    /// TCP numbers are those of the packet. This is always so.
    #[arg(
        short = 'S',
        long,
        alias = "absolute-tcp-sequence-numbers",
        hide_short_help = true,
        help_heading = "What to print"
    )]
    absolute_numbers: bool,
    /// Write packets to the file as they come. This is always so.
    #[arg(short = 'U', long, hide_short_help = true, help_heading = "Files", group = "live")]
    packet_buffered: bool,
    /// Print the totals as JSON (schema evenkeel.capture/1).
    #[arg(long, help_heading = "What to print")]
    json: bool,
    /// Print shorter lines of packets, and no line each second on standard error.
    #[arg(short, long, help_heading = "What to print")]
    quiet: bool,
    /// Write pcapng to this file; `-` is standard output.
    #[arg(short, long, value_name = "FILE", help_heading = "Files")]
    write: Option<PathBuf>,
    /// Begin a new file before one grows beyond this size; K, M and G are understood.
    #[arg(long, hide_short_help = true, value_name = "BYTES", help_heading = "Files", value_parser = bytes::<u64>)]
    rotate_size: Option<u64>,
    /// Begin a new file when a packet is this much younger than the first one, in whole seconds.
    #[arg(long, hide_short_help = true, value_name = "TIME", help_heading = "Files", value_parser = seconds_within("1s", "8760h"))]
    rotate_interval: Option<u64>,
    /// Begin a new file after this number of packets.
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Files", value_parser = number::<u64>("a number of packets", "1000000", 1..))]
    rotate_count: Option<u64>,
    /// Keep only this number of files, removing the oldest.
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Files", value_parser = number::<u32>("a number of files", "10", 1..))]
    files: Option<u32>,
    /// Read settings from this TOML file: the same names as the long flags, which win over it.
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "Files")]
    config: Option<PathBuf>,
    /// Capture by packet, packet+fanout, ring, ring+fanout, xdp, tap or auto [default: ring].
    ///
    /// xdp (AF_XDP) takes frames from the stack; tap (an XDP program) copies frames and lets them pass. auto tries them on the live traffic
    /// first: half a second each, two for those near the best; with four or five to try about 15 seconds in all.
    #[arg(long, value_name = "BACKEND", help_heading = "Backend", group = "live")]
    backend: Option<BackendArg>,
    /// CPUs for the readers, such as 0-3,8 [default: those of the interface's NUMA node].
    #[arg(long, hide_short_help = true, value_name = "CPUS", help_heading = "Backend", group = "live")]
    cpus: Option<CpuSet>,
    /// With --backend tap: captured frames end there and never reach the stack. With --backend auto: xdp and such a tap are tried
    /// too.
    #[arg(long, hide_short_help = true, help_heading = "Backend", group = "live")]
    consume: bool,
    /// With --backend tap, where the interface has a shield: capture what comes to it, with its verdicts [default].
    #[arg(long, hide_short_help = true, conflicts_with = "behind", help_heading = "Backend", group = "live")]
    before: bool,
    /// With --backend tap, where the interface has a shield: capture what it lets through.
    #[arg(long, hide_short_help = true, help_heading = "Backend", group = "live")]
    behind: bool,
    /// With --backend auto: try tap too, which attaches an XDP program for the trial (some NICs restart their link for it).
    #[arg(long, hide_short_help = true, help_heading = "Backend", group = "live")]
    try_xdp: bool,
    /// Run the XDP program of xdp and tap in this mode [default: native].
    #[arg(long, hide_short_help = true, value_name = "MODE", value_parser = words(&XDP_MODES), help_heading = "Backend", group = "live")]
    xdp_mode: Option<XdpMode>,
    /// Spread packets over a fanout group by hash, lb, cpu, rollover, rnd, qm, cbpf or ebpf (these two by source address)
    /// [default: hash].
    #[arg(long, hide_short_help = true, value_name = "ALGORITHM", help_heading = "Fanout", value_parser = fanout, group = "live")]
    fanout: Option<FanoutAlgorithm>,
    /// Number of fanout members [default: by the topology, one per CPU and a second one on three of them].
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Fanout", value_parser = number::<usize>("a number of members", "4", ..), group = "live")]
    members: Option<usize>,
    /// Let the kernel put IPv4 fragments together before it chooses a fanout member.
    #[arg(long, hide_short_help = true, help_heading = "Fanout", group = "live")]
    defrag: bool,
    /// Let packets roll over to another fanout member when the chosen one is full.
    #[arg(long, hide_short_help = true, help_heading = "Fanout", group = "live")]
    rollover: bool,
    /// Size of a ring's block in bytes, a power of two; K and M are understood [default: 1M].
    #[arg(long, hide_short_help = true, value_name = "BYTES", help_heading = "Rings and sockets", value_parser = bytes::<u32>, group = "live")]
    block_size: Option<u32>,
    /// Number of blocks in a ring [default: 64, and 16 for each member of a fanout group].
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Rings and sockets", value_parser = number::<u32>("a number of blocks", "64", ..), group = "live")]
    blocks: Option<u32>,
    /// Hand over a block of a ring that is not full after this time, 1ms to 10s [default: 60ms].
    #[arg(long, hide_short_help = true, value_name = "TIME", help_heading = "Rings and sockets", value_parser = within("1ms", "10s"), group = "live")]
    block_timeout: Option<Duration>,
    /// The same in milliseconds.
    #[arg(long, hide = true, value_name = "MS", conflicts_with = "block_timeout", value_parser = number::<u16>("a time in milliseconds", "60", 1..=10_000), group = "live")]
    retire_ms: Option<u16>,
    /// Have the kernel compute each packet's flow hash into the ring (TP_FT_REQ_FILL_RXHASH).
    #[arg(long, hide_short_help = true, help_heading = "Rings and sockets", group = "live")]
    rx_hash: bool,
    /// Packets per system call of a plain socket; 1 is the classic loop [default: 64].
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Rings and sockets", value_parser = number::<usize>("a number of packets", "64", 1..=1024), group = "live")]
    batch: Option<usize>,
    /// Receive buffer of a plain socket in bytes; K and M are understood [default: 16M].
    #[arg(long, hide_short_help = true, value_name = "BYTES", help_heading = "Rings and sockets", value_parser = bytes::<u32>, group = "live")]
    buffer: Option<u32>,
    #[command(flatten)]
    pub(super) tcpdump: TcpdumpArgs,
}

/// The least size of a file of a rotation: smaller ones hold a packet or none.
const ROTATED_BYTES_MIN: u64 = 64 << 10;

/// A validated capture.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) capture: Settings,
    /// The file to read instead of an interface.
    pub(crate) read: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Config {
    /// True if each packet is printed.
    pub(super) fn prints(&self) -> bool {
        matches!(self.capture.destination, Destination::Text(_))
    }
}

/// A command line that means nothing.
pub(super) fn wrong(text: impl Into<String>) -> Failure {
    Failure::usage(anyhow!(text.into()))
}

/// A backend, or the word for trying them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BackendArg {
    Auto,
    One(Backend),
}

impl FromStr for BackendArg {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::One) }
    }
}

fn fanout(name: &str) -> Result<FanoutAlgorithm, String> {
    let names = FANOUT_NAMES.map(|(name, _)| name);
    fanout_algorithm(name).ok_or_else(|| format!("there is no algorithm `{name}`; there are {}", names.join(", ")))
}

/// Bytes to keep of a packet; 0 means all, as in tcpdump.
fn snaplen(text: &str) -> Result<u32, String> {
    let size = if text == "0" { Some(WHOLE_FRAME) } else { bytes::<u32>(text).ok() };
    size.filter(|size| (16..=WHOLE_FRAME).contains(size)).ok_or_else(|| {
        format!("write a number of bytes from 16 to {WHOLE_FRAME}, such as 96 or 64K, or 0 for whole packets")
    })
}

impl CaptureArgs {
    /// True if it is about a file.
    pub(crate) fn is_saved(&self) -> bool {
        self.read.is_some()
    }

    /// Tells the interface from the filter in the words without a flag.
    fn sort_words(&mut self) -> Result<Vec<String>, Failure> {
        let mut words = std::mem::take(&mut self.words);
        self.interface = self.interface.take().map(by_number).transpose()?;
        if self.interface.is_none() && self.read.is_none() {
            if !words.is_empty() {
                self.interface = Some(words.remove(0));
            }
        } else if let (Some(one), Some(other)) = (&self.interface, words.first())
            && host::interface::exists(other)
        {
            return Err(wrong(format!("two interfaces, {one} and {other}; name one, or `any`")));
        }
        Ok(words)
    }

    /// The parts of a packet that are printed.
    fn shown(&self) -> Result<Shown, Failure> {
        let time = match self.time {
            0 => Time::OfDay,
            1 => Time::None,
            2 => Time::Epoch,
            3 => Time::SincePrevious,
            4 => Time::Date,
            5 => Time::SinceFirst,
            _ => return Err(wrong("-t is given five times at most (-ttttt: the time since the first packet)")),
        };
        let bytes = [(self.hex, true, false), (self.hex_ascii, true, true), (self.ascii, false, true)];
        let bytes = bytes.into_iter().find(|(times, ..)| *times > 0);
        let bytes = bytes.map(|(times, hex, ascii)| Bytes { hex, ascii, link: times > 1 });
        Ok(Shown { time, link: self.link, verbose: self.verbose > 0, quick: self.quiet, bytes })
    }

    /// `any` has one reader for each interface.
    fn check_any(&self, backend: Option<Backend>) -> Result<(), Failure> {
        if self.interface.as_deref() == Some(ANY)
            && (self.members.is_some() || !matches!(backend, Some(Backend::Ring | Backend::Packet)))
        {
            return Err(wrong(
                "`any` has one reader for each interface: use --backend ring or packet, without --members",
            ));
        }
        Ok(())
    }

    /// The time since another packet is known where one reader has seen both.
    fn check_time(&self, shown: Shown, backend: Option<Backend>) -> Result<(), Failure> {
        let several =
            self.interface.as_deref() == Some(ANY) || backend.is_some_and(|b| b.is_fanout() || b == Backend::Xdp);
        if several && self.read.is_none() && matches!(shown.time, Time::SincePrevious | Time::SinceFirst) {
            return Err(wrong(
                "-ttt and -ttttt need one reader, which sees all packets in their order: name one interface, with --backend ring, packet or tap, or use -tt",
            ));
        }
        Ok(())
    }

    /// Options that mean something to some backends only: the user would believe that they do something.
    fn check_backend(&self, backend: Backend) -> Result<(), Failure> {
        use Backend::{Packet, PacketFanout, Ring, RingFanout, Tap, Xdp};
        let (plain, rings) = ([Packet, PacketFanout], [Ring, RingFanout]);
        let (groups, programs) = ([PacketFanout, RingFanout], [Xdp, Tap]);
        let table: [(&str, bool, &[Backend]); 13] = [
            ("block-size", self.block_size.is_some(), &rings),
            ("blocks", self.blocks.is_some(), &rings),
            ("block-timeout", self.block_timeout.is_some() || self.retire_ms.is_some(), &rings),
            ("rx-hash", self.rx_hash, &rings),
            ("batch", self.batch.is_some(), &plain),
            ("buffer", self.buffer.is_some(), &plain),
            ("fanout", self.fanout.is_some(), &groups),
            ("defrag", self.defrag, &groups),
            ("rollover", self.rollover, &groups),
            ("consume", self.consume, &programs),
            ("xdp-mode", self.xdp_mode.is_some(), &programs),
            ("before", self.before, &[Tap]),
            ("behind", self.behind, &[Tap]),
        ];
        match table.into_iter().find(|(_, given, backends)| *given && !backends.contains(&backend)) {
            Some((option, _, backends)) => {
                let names: Vec<_> = backends.iter().map(|b| b.name()).collect();
                Err(wrong(format!(
                    "--{option} does nothing with --backend {backend}: it is for {} and auto",
                    names.join(", ")
                )))
            }
            None if self.try_xdp => {
                Err(wrong(format!("--try-xdp does nothing with --backend {backend}: it is for auto")))
            }
            None => Ok(()),
        }
    }

    /// Turns the arguments into a configuration, before any system call is made for the capture. `typed` are the words that they were read from.
    pub(crate) fn validate(mut self, typed: Vec<OsString>) -> Result<Config, Failure> {
        let mut filter = self.sort_words()?;
        let shown = self.shown()?;
        let mut args = self;
        if let Some(path) = args.config.take() {
            let file = ConfigFile::read(&path)?;
            let interface = args.interface.take();
            args = file.under(typed)?;
            args.interface = interface.or(args.interface);
            if filter.is_empty() {
                filter = file.filter;
            }
        }
        let interface = match (&args.interface, &args.read) {
            (Some(interface), None) => host::interface::real_name(interface),
            (None, Some(_)) => String::new(),
            (Some(_), Some(_)) => return Err(wrong("an interface and a file to read: give one of them")),
            (None, None) => {
                return Err(wrong(format!(
                    "which interface? There are: {}. `evenkeel capture INTERFACE [FILTER]`, `-i any` for all, `-r FILE`",
                    host::interface::names().join(", ")
                )));
            }
        };
        let count_only = args.count_only || (args.write.is_none() && args.json);
        let shows = shown.link || shown.bytes.is_some();
        let is_auto = args.backend == Some(BackendArg::Auto);
        if args.print && args.write.is_some() {
            return Err(wrong(
                "-w FILE prints no packets. To write and print them: `evenkeel capture … -w - | tee FILE | evenkeel capture -r -`",
            ));
        }
        let print = args.write.is_none() && !count_only && (args.print || shows || !is_auto);
        let counting = args.write.is_none() && !print;
        // Counting needs no bytes: the kernel spares the copy.
        let snaplen = args.snaplen.unwrap_or(if counting { 1 } else { WHOLE_FRAME });
        let mut tuning = Tuning::default();
        tuning.block_bytes = args.block_size.unwrap_or(tuning.block_bytes);
        if let Some(bytes) = args.buffer {
            tuning.plain.buffer_bytes = bytes;
            tuning.buffer_required = true;
        }
        tuning.blocks = args.blocks;
        let timeout = args.block_timeout.map(|time| time.as_millis() as u32).or(args.retire_ms.map(u32::from));
        tuning.retire_ms = timeout.unwrap_or(tuning.retire_ms);
        tuning.plain.batch = args.batch.unwrap_or(tuning.plain.batch);
        tuning.rx_hash = args.rx_hash;
        tuning.fanout.defrag = args.defrag;
        tuning.fanout.rollover = args.rollover;
        tuning.fanout.algorithm = args.fanout.unwrap_or(tuning.fanout.algorithm);
        tuning.consume = args.consume;
        if args.behind {
            tuning.place = TapPlace::Behind;
        }
        tuning.xdp_mode = args.xdp_mode.unwrap_or(XdpMode::Native);
        let backend = match args.backend {
            None => Some(Backend::Ring),
            Some(BackendArg::Auto) => None,
            Some(BackendArg::One(backend)) => Some(backend),
        };
        match backend {
            Some(backend) => args.check_backend(backend)?,
            None if args.before || args.behind => {
                return Err(wrong(
                    "--before and --behind are for --backend tap: the other backends see what the shield lets through",
                ));
            }
            None => {}
        }
        args.check_any(backend)?;
        args.check_time(shown, backend)?;
        let rotation = args.tcpdump.rotation(args.write.as_deref())?.unwrap_or(Rotation {
            bytes: args.rotate_size,
            seconds: args.rotate_interval,
            packets: args.rotate_count,
            files: args.files,
            naming: Naming::Numbered,
        });
        if rotation.files.is_some() && !rotation.is_on() {
            return Err(wrong("--files needs --rotate-size, --rotate-interval or --rotate-count"));
        }
        if args.rotate_interval.is_some()
            && args.write.as_deref().is_some_and(|path| path.to_string_lossy().contains('%'))
        {
            return Err(wrong(
                "--rotate-interval numbers files, as in name-00001.pcapng: for times in names (`%`) use -G, with a number of seconds",
            ));
        }
        if rotation.bytes.is_some_and(|bytes| bytes < ROTATED_BYTES_MIN) {
            return Err(wrong(format!(
                "--rotate-size is in bytes, at least {ROTATED_BYTES_MIN}: for a million of them, as tcpdump's `-C 1`, write --rotate-size 1000000"
            )));
        }
        let target = args.write.map(|path| target(path, rotation));
        if rotation.is_on() && !matches!(target, Some(Target::File(..))) {
            return Err(wrong("rotation needs -w FILE: there is nothing to rotate otherwise"));
        }
        if args.json && target == Some(Target::Stdout) {
            return Err(wrong("--json and -w - both want standard output"));
        }
        let destination = match target {
            Some(target) => Destination::Pcapng(target),
            None if print => Destination::Text(shown),
            None => Destination::Count,
        };
        let capture = Settings {
            interface,
            filter: args.tcpdump.filter(filter.join(" ").trim().to_owned(), backend)?,
            backend,
            readers: Readers { members: args.members, cpus: args.cpus },
            tuning,
            promiscuous: !args.no_promisc,
            inbound: args.inbound || args.tcpdump.direction == Some(Wanted::In),
            try_xdp: args.try_xdp || args.consume,
            snaplen,
            count: args.count,
            duration: args.duration,
            destination,
        };
        Ok(Config { capture, read: args.read, json: args.json, quiet: args.quiet })
    }
}

/// A path for `-w`; `-` is standard output.
fn target(path: PathBuf, rotation: Rotation) -> Target {
    if path.as_os_str() == "-" { Target::Stdout } else { Target::File(path, rotation) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::FromArgMatches;

    use super::*;

    /// The configuration of a command line.
    fn config(line: &str) -> Result<Config, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let command = CaptureArgs::augment_args(clap::Command::new(crate::args::PROGRAM)).no_binary_name(true);
        let matches = command.try_get_matches_from(&words).map_err(|error| error.to_string())?;
        let args = CaptureArgs::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        args.validate(words).map_err(|failure| failure.message())
    }

    #[test]
    fn the_first_word_is_the_interface_unless_a_flag_says_it() {
        let with = |line: &str| config(line).map(|c| (c.capture.interface, c.capture.filter)).unwrap();
        let udp = || "udp port 53".to_owned();
        assert_eq!(with("eth0 udp port 53"), ("eth0".into(), udp()));
        assert_eq!(with("-i eth0 udp port 53"), ("eth0".into(), udp()));
        assert_eq!(with("-r x.pcap udp port 53"), (String::new(), udp()));
        assert!(config("-i any").is_ok());
    }

    #[test]
    fn lines_are_printed_unless_something_else_is_requested() {
        let print = |line: &str| config(line).unwrap().prints();
        assert!(print("eth0"));
        for line in ["eth0 --json", "eth0 -w x", "eth0 --backend auto"] {
            assert!(!print(line), "{line}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        let with = |text: &str, line: &str| {
            fs::write(&path, text).unwrap();
            config(&format!("{line} --config {}", path.display()))
        };
        let all = "interface = \"eth1\"\nfilter = [\"udp\"]\nblocks = 8\nno-promisc = true\nduration = \"2m\"\n";
        let config = with(all, "eth0 --blocks 4").unwrap();
        assert_eq!((config.capture.interface.as_str(), config.capture.filter.as_str()), ("eth0", "udp"));
        assert_eq!((config.capture.tuning.blocks, config.capture.promiscuous), (Some(4), false));
        assert_eq!(config.capture.duration, Some(Duration::from_secs(120)));
        // Numbers without units.
        let config = with("backend = \"ring+fanout\"\nretire-ms = 20\nduration = 1.5", "eth0").unwrap();
        assert_eq!((config.capture.backend, config.capture.tuning.retire_ms), (Some(Backend::RingFanout), 20));
        assert_eq!(config.capture.duration, Some(Duration::from_millis(1500)));
        for (text, line, named) in [
            ("json = false\nblcks = 8", "eth0", "line 2: blcks"),
            ("write = \"kept.pcapng\"", "eth0 --count-only", "--write"),
            ("blocks = true", "eth0", "line 1: blocks"),
            ("json = \"yes\"", "eth0", "line 1: json"),
            ("blocks = \"many\"", "eth0", "--blocks"),
            ("blocks = ", "eth0", "line 1"),
        ] {
            let message = with(text, line).expect_err(text);
            assert!(message.contains(named), "{text}: {message}");
        }
    }

    #[test]
    fn what_cannot_be_together_or_does_nothing_is_refused() {
        for (line, named) in [
            ("", "INTERFACE"),
            ("-i eth0 lo", "eth0 and lo"),
            ("-r x.pcap --backend ring", "--read"),
            ("-r x.pcap --duration 1", "--read"),
            ("any --backend tap", "`any`"),
            ("any --backend auto", "`any`"),
            ("any -ttt", "one reader"),
            ("eth0 --backend ring+fanout -ttttt", "one reader"),
            ("eth0 -tttttt", "five times"),
            ("eth0 -w x --print", "tee FILE"),
            ("-r x.pcap -w y --print", "tee FILE"),
            ("eth0 -G 1 -w x.pcap", "-G needs a time in the name"),
            ("eth0 -G 1 -W 2 -w x.pcap", "-G needs a time in the name"),
            ("eth0 -G 1 -C 1 -W 1 -w x.pcap", "-G needs a time in the name"),
            ("eth0 -G 1 -w %d/x%H", "folder"),
            ("eth0 -G 1", "-w FILE"),
            ("eth0 -G 1 -w -", "-w FILE"),
            ("eth0 -G 1 -w x%H --rotate-size 1M", "--rotate-size"),
            ("eth0 -W 3 -w x", "-C or -G"),
            ("eth0 -C 1", "-w FILE"),
            ("eth0 -C 0 -w x", "millions of bytes"),
            ("eth0 -C 1 -w x --files 3", "--files"),
            ("eth0 -Q up", "in, out"),
            ("-r x.pcap -Q in", "--read"),
            ("-r x.pcap -G 1 -w x%H", "--read"),
            ("eth0 -Q out --backend tap", "-Q in"),
            ("eth0 --backend packet --blocks 4", "ring, ring+fanout and auto"),
            ("eth0 --backend tap --buffer 1M", "--buffer"),
            ("eth0 --backend ring --consume", "--consume"),
            ("eth0 --backend tap --try-xdp", "--try-xdp"),
            ("eth0 --backend tap --retire-ms 5", "--block-timeout"),
            ("eth0 --backend auto --before", "--before"),
            ("eth0 --backend rings", "ring+fanout"),
            ("eth0 --backend ring+fanout --fanout x", "rollover"),
            ("eth0 --block-size 3Q", "256K"),
            ("eth0 --cpus 3-1", "backwards"),
            ("eth0 -w x --files 3", "--rotate-size"),
            ("eth0 --rotate-count 5", "-w FILE"),
            ("eth0 -w x --rotate-size 1", "--rotate-size 1000000"),
            ("eth0 -w g-%H%M.pcap --rotate-interval 1", "use -G"),
            ("eth0 --rotate-interval 0 -w x", "1s"),
            ("eth0 -w - --json", "standard output"),
        ] {
            let message = config(line).expect_err(line);
            assert!(message.contains(named), "{line}: {message}");
        }
        assert!(config("eth0 --backend auto --blocks 4 --try-xdp").is_ok());
    }
}
