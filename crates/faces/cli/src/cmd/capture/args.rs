//! The arguments of `evenkeel capture`, and what they mean.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow};
use bpf::{TapPlace, XdpMode};
use capture::{
    open::Tuning,
    output::{Rotation, Target},
    plan::{Backend, FANOUT_NAMES, fanout_algorithm},
    text::{Bytes, Shown, Time},
};
use clap::{ArgAction, Args};
use model::CpuSet;
use port::WHOLE_FRAME;
use serde::{Deserialize, Serialize};

use crate::time::within;
use crate::{failure::Failure, numbers::number};

/// Capture packets: as lines, to a pcapng file, or only counted.
///
/// Example: evenkeel capture -i eth0 -n udp port 53
///
/// tcpdump's flags mean what they mean there. Packets are printed as lines unless -w, --count-only, --json or --mode auto is given. The
/// network stack still gets the packets, except with --mode xdp and with --consume. xdp and tap see received frames only. Ctrl-C ends the
/// capture and prints the totals; a second Ctrl-C ends it at once.
#[derive(Debug, Default, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CaptureArgs {
    /// The interface, unless -i or -r is given, then the filter in tcpdump's syntax (pcap-filter(7)).
    #[arg(value_name = "IFACE] [FILTER")]
    #[serde(skip)]
    words: Vec<String>,
    /// Capture from this interface; `any`: from all that are up.
    #[arg(short, long, value_name = "IFACE", conflicts_with = "read", help_heading = "What to capture")]
    interface: Option<String>,
    /// Read packets from this pcap or pcapng file instead; `-` is standard input.
    #[arg(short, long, value_name = "FILE", help_heading = "What to capture")]
    read: Option<PathBuf>,
    #[arg(skip)]
    filter: Vec<String>,
    /// Stop after this number of packets.
    #[arg(short, long, value_name = "N", help_heading = "What to capture", value_parser = number::<u64>("a number of packets", "1000", ..))]
    count: Option<u64>,
    /// Stop after this time.
    #[arg(long, value_name = "TIME", help_heading = "What to capture", value_parser = within("1ms", "8760h"))]
    duration: Option<Duration>,
    /// Keep at most this number of bytes of each packet, 16 to 262144 [default: 262144, whole packets].
    #[arg(short, long, value_name = "BYTES", help_heading = "What to capture", value_parser = number::<u32>("a number of bytes", "96", ..))]
    snaplen: Option<u32>,
    /// Do not ask the interface for frames that are not addressed to it.
    #[arg(short = 'p', long, help_heading = "What to capture")]
    no_promisc: bool,
    /// Leave out packets that this machine sends.
    #[arg(long, help_heading = "What to capture")]
    inbound: bool,
    /// Print one line for each packet (the default).
    #[arg(long, conflicts_with_all = ["write", "count_only", "json"], help_heading = "What to print")]
    print: bool,
    /// Only count packets.
    #[arg(long, conflicts_with = "write", help_heading = "What to print")]
    count_only: bool,
    /// Print the link header of each packet.
    #[arg(short = 'e', long, conflicts_with_all = ["write", "count_only", "json"], help_heading = "What to print")]
    link: bool,
    /// Print the fields of the IP header.
    #[arg(short, long, action = ArgAction::Count, help_heading = "What to print")]
    #[serde(skip)]
    verbose: u8,
    /// Print the bytes of each packet in hexadecimal; -xx with the link header.
    #[arg(short = 'x', long, action = ArgAction::Count, conflicts_with_all = ["write", "count_only", "json", "hex_ascii", "ascii"], help_heading = "What to print")]
    #[serde(skip)]
    hex: u8,
    /// Print the bytes of each packet in hexadecimal and ASCII; -XX with the link header.
    #[arg(short = 'X', long, action = ArgAction::Count, conflicts_with_all = ["write", "count_only", "json", "ascii"], help_heading = "What to print")]
    #[serde(skip)]
    hex_ascii: u8,
    /// Print the bytes of each packet in ASCII; -AA with the link header.
    #[arg(short = 'A', long, action = ArgAction::Count, conflicts_with_all = ["write", "count_only", "json"], help_heading = "What to print")]
    #[serde(skip)]
    ascii: u8,
    /// Print no time; -tt: seconds since the epoch, -tttt: date and time [default: local time of day].
    #[arg(short = 't', long, action = ArgAction::Count, help_heading = "What to print")]
    #[serde(skip)]
    time: u8,
    /// Print addresses and ports as numbers. This is always so: names are never looked up.
    #[arg(short, long, action = ArgAction::Count, help_heading = "What to print")]
    #[serde(skip)]
    numeric: u8,
    /// Print whole lines into a pipe. This is always so: a line waits 0.2 s at most.
    #[arg(short, long, help_heading = "What to print")]
    #[serde(skip)]
    line_buffered: bool,
    /// Print the totals as JSON (schema evenkeel.capture).
    #[arg(long, help_heading = "What to print")]
    json: bool,
    /// Print no line each second on standard error.
    #[arg(short, long, help_heading = "What to print")]
    quiet: bool,
    /// Write pcapng to this file; `-` is standard output.
    #[arg(short, long, value_name = "FILE", help_heading = "Files")]
    write: Option<PathBuf>,
    /// Begin a new file before one grows beyond this size; K, M and G are understood.
    #[arg(long, value_name = "BYTES", help_heading = "Files")]
    rotate_size: Option<String>,
    /// Begin a new file when a packet is this many seconds younger than the first one.
    #[arg(long, value_name = "SECONDS", help_heading = "Files", value_parser = number::<u64>("a number of seconds", "60", ..))]
    rotate_seconds: Option<u64>,
    /// Begin a new file after this number of packets.
    #[arg(long, value_name = "N", help_heading = "Files", value_parser = number::<u64>("a number of packets", "1000000", ..))]
    rotate_count: Option<u64>,
    /// Keep only this number of files, removing the oldest.
    #[arg(long, value_name = "N", help_heading = "Files", value_parser = number::<u32>("a number of files", "10", ..))]
    files: Option<u32>,
    /// Read settings from this TOML file: the same names as the long flags, which win over it.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// How to capture: packet, packet+fanout, ring, ring+fanout, xdp (AF_XDP: takes frames from the stack), tap (an XDP
    /// program copies frames and lets them pass), or auto, which tries them on the live traffic first: half a second each, two
    /// for those near the best, and with four or five to try about 15 seconds in all [default: ring].
    #[arg(long, value_name = "BACKEND", help_heading = "Backend")]
    mode: Option<String>,
    /// CPUs for the readers, such as 0-3,8 [default: those of the interface's NUMA node].
    #[arg(long, value_name = "LIST", help_heading = "Backend")]
    cpus: Option<String>,
    /// With --mode tap: captured frames end there and never reach the stack. With --mode auto: xdp and such a tap are tried
    /// too.
    #[arg(long, help_heading = "Backend")]
    consume: bool,
    /// With --mode tap, where the interface has a shield: capture what comes to it, with its verdicts [default].
    #[arg(long, conflicts_with = "behind", help_heading = "Backend")]
    before: bool,
    /// With --mode tap, where the interface has a shield: capture what it lets through.
    #[arg(long, help_heading = "Backend")]
    behind: bool,
    /// With --mode auto: try tap too, which attaches an XDP program for the trial (some NICs restart their link for it).
    #[arg(long, help_heading = "Backend")]
    try_xdp: bool,
    /// Where the XDP program of xdp and tap runs: native (in the driver) or generic (in the stack, slow, any driver)
    /// [default: native].
    #[arg(long, value_name = "MODE", help_heading = "Backend")]
    xdp_mode: Option<String>,
    /// How a fanout group spreads packets: hash, lb, cpu, rollover, rnd, qm, cbpf or ebpf (these two by source address)
    /// [default: hash].
    #[arg(long, value_name = "ALGORITHM", help_heading = "Fanout")]
    fanout: Option<String>,
    /// Number of fanout members [default: by the topology, one per CPU and a second one on three of them].
    #[arg(long, value_name = "N", help_heading = "Fanout", value_parser = number::<usize>("a number of members", "4", ..))]
    members: Option<usize>,
    /// Let the kernel put IPv4 fragments together before it chooses a fanout member.
    #[arg(long, help_heading = "Fanout")]
    defrag: bool,
    /// Let packets roll over to another fanout member when the chosen one is full.
    #[arg(long, help_heading = "Fanout")]
    rollover: bool,
    /// Size of a ring's block in bytes, a power of two; K and M are understood [default: 1M].
    #[arg(long, value_name = "BYTES", help_heading = "Rings and sockets")]
    block_size: Option<String>,
    /// Number of blocks in a ring [default: 64, and 16 for each member of a fanout group].
    #[arg(long, value_name = "N", help_heading = "Rings and sockets", value_parser = number::<u32>("a number of blocks", "64", ..))]
    blocks: Option<u32>,
    /// Hand over a block of a ring that is not full after this time in milliseconds [default: 60].
    #[arg(long, value_name = "MS", help_heading = "Rings and sockets", value_parser = number::<u32>("a time in milliseconds", "60", ..))]
    retire_ms: Option<u32>,
    /// Have the kernel compute each packet's flow hash into the ring (TP_FT_REQ_FILL_RXHASH).
    #[arg(long, help_heading = "Rings and sockets")]
    rx_hash: bool,
    /// Packets per system call of a plain socket; 1 is the classic loop [default: 64].
    #[arg(long, value_name = "N", help_heading = "Rings and sockets", value_parser = number::<usize>("a number of packets", "64", ..))]
    batch: Option<usize>,
    /// Receive buffer of a plain socket in bytes; K and M are understood [default: 16M].
    #[arg(long, value_name = "BYTES", help_heading = "Rings and sockets")]
    buffer: Option<String>,
}

/// The name that stands for all interfaces.
pub(crate) const ANY: &str = "any";

/// A validated capture.
#[derive(Debug)]
pub(crate) struct Config {
    /// Empty where a file is read; [`ANY`]: all of them.
    pub(crate) interface: String,
    /// The file to read instead of an interface.
    pub(crate) read: Option<PathBuf>,
    pub(crate) filter: String,
    /// None: `auto`.
    pub(crate) mode: Option<Backend>,
    pub(crate) members: Option<usize>,
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) tuning: Tuning,
    pub(crate) promiscuous: bool,
    pub(crate) inbound: bool,
    /// Whether `auto` may attach an XDP program.
    pub(crate) try_xdp: bool,
    pub(crate) snaplen: u32,
    pub(crate) count: Option<u64>,
    pub(crate) duration: Option<Duration>,
    /// Where pcapng goes; none: nowhere.
    pub(crate) target: Option<Target>,
    pub(crate) print: bool,
    /// What of a packet is printed.
    pub(crate) shown: Shown,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

fn wrong(text: impl Into<String>) -> Failure {
    Failure::usage(anyhow!(text.into()))
}

/// A size such as 4096, 256K or 64M.
fn size(flag: &str, text: &str) -> Result<u64, Failure> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        _ => return Err(wrong(format!("{flag}: `{text}` has an unknown unit; K, M and G are understood"))),
    };
    let number: u64 =
        digits.parse().map_err(|_| wrong(format!("{flag}: `{text}` is not a size such as 4096, 256K or 64M")))?;
    number.checked_mul(1 << shift).ok_or_else(|| wrong(format!("{flag}: `{text}` is too large")))
}

fn size_u32(flag: &str, text: &str) -> Result<u32, Failure> {
    u32::try_from(size(flag, text)?).map_err(|_| wrong(format!("{flag}: `{text}` is too large")))
}

impl CaptureArgs {
    /// Tells the interface from the filter in the words without a flag.
    fn sort_words(&mut self) -> Result<(), Failure> {
        let mut words = std::mem::take(&mut self.words);
        if self.interface.is_none() && self.read.is_none() {
            if !words.is_empty() {
                self.interface = Some(words.remove(0));
            }
        } else if let (Some(one), Some(other)) = (&self.interface, words.first())
            && host::interface::exists(other)
        {
            return Err(wrong(format!("two interfaces, {one} and {other}; name one, or `any`")));
        }
        self.filter = words;
        Ok(())
    }

    /// What of a packet is printed.
    fn shown(&self) -> Result<Shown, Failure> {
        let time = match self.time {
            0 => Time::OfDay,
            1 => Time::None,
            2 => Time::Epoch,
            4 => Time::Date,
            _ => return Err(wrong("-ttt and -ttttt (time since another packet) are not offered; use -tt or -tttt")),
        };
        let bytes = [(self.hex, true, false), (self.hex_ascii, true, true), (self.ascii, false, true)];
        let bytes = bytes.into_iter().find(|(times, ..)| *times > 0);
        let bytes = bytes.map(|(times, hex, ascii)| Bytes { hex, ascii, link: times > 1 });
        Ok(Shown { time, link: self.link, verbose: self.verbose > 0, bytes })
    }

    /// What means nothing where packets come from a file.
    fn check_read(&self) -> Result<(), Failure> {
        let live = [
            ("duration", self.duration.is_some()),
            ("no-promisc", self.no_promisc),
            ("inbound", self.inbound),
            ("mode", self.mode.is_some()),
            ("cpus", self.cpus.is_some()),
            ("consume", self.consume),
            ("before", self.before),
            ("behind", self.behind),
            ("try-xdp", self.try_xdp),
            ("xdp-mode", self.xdp_mode.is_some()),
            ("fanout", self.fanout.is_some()),
            ("members", self.members.is_some()),
            ("defrag", self.defrag),
            ("rollover", self.rollover),
            ("block-size", self.block_size.is_some()),
            ("blocks", self.blocks.is_some()),
            ("retire-ms", self.retire_ms.is_some()),
            ("rx-hash", self.rx_hash),
            ("batch", self.batch.is_some()),
            ("buffer", self.buffer.is_some()),
        ];
        match live.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(wrong(format!("--{option} does nothing with -r: it is for an interface"))),
            None => Ok(()),
        }
    }

    /// `any` has one reader for each interface.
    fn check_any(&self, mode: Option<Backend>) -> Result<(), Failure> {
        if self.interface.as_deref() == Some(ANY)
            && (self.members.is_some() || !matches!(mode, Some(Backend::Ring | Backend::Packet)))
        {
            return Err(wrong("`any` has one reader for each interface: use --mode ring or packet, without --members"));
        }
        Ok(())
    }

    /// Puts the flags over the file that `--config` names.
    fn merge(mut self) -> Result<Self, Failure> {
        let Some(path) = self.config.take() else { return Ok(self) };
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))
            .map_err(Failure::usage)?;
        let wrong = |e: toml::de::Error| Failure::usage(anyhow!("{}: {}", path.display(), e.to_string().trim_end()));
        // Checked by itself first, so that a wrong name is reported with its line.
        toml::from_str::<Self>(&text).map_err(wrong)?;
        let mut table: toml::Table = toml::from_str(&text).map_err(wrong)?;
        let flags = toml::Table::try_from(&self).context("cannot merge flags").map_err(Failure::internal)?;
        let given = |value: &toml::Value| match value {
            toml::Value::Boolean(on) => *on,
            toml::Value::Array(items) => !items.is_empty(),
            _ => true,
        };
        table.extend(flags.into_iter().filter(|(_, value)| given(value)));
        table.try_into().map_err(wrong)
    }

    /// What cannot be together, which clap saw of the flags only and not of the file.
    fn check_conflicts(&self) -> Result<(), Failure> {
        let write = self.write.is_some();
        let pairs = [
            ("print", self.print, "write", write),
            ("print", self.print, "count-only", self.count_only),
            ("print", self.print, "json", self.json),
            ("count-only", self.count_only, "write", write),
        ];
        match pairs.into_iter().find(|&(_, one, _, other)| one && other) {
            Some((one, _, other, _)) => {
                Err(wrong(format!("--{one} and --{other} exclude each other (one may stand in the file)")))
            }
            None => Ok(()),
        }
    }

    /// Options that mean something to some backends only: the user would believe that they do something.
    fn check_backend(&self, backend: Backend) -> Result<(), Failure> {
        use Backend::{Packet, PacketFanout, Ring, RingFanout, Tap, Xdp};
        let (plain, rings) = ([Packet, PacketFanout], [Ring, RingFanout]);
        let (groups, programs) = ([PacketFanout, RingFanout], [Xdp, Tap]);
        let table: [(&str, bool, &[Backend]); 13] = [
            ("block-size", self.block_size.is_some(), &rings),
            ("blocks", self.blocks.is_some(), &rings),
            ("retire-ms", self.retire_ms.is_some(), &rings),
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
                    "--{option} does nothing with --mode {backend}: it is for {} and auto",
                    names.join(", ")
                )))
            }
            None if self.try_xdp => Err(wrong(format!("--try-xdp does nothing with --mode {backend}: it is for auto"))),
            None => Ok(()),
        }
    }

    /// Turns the arguments into a configuration, before any system call is made for the capture.
    pub(crate) fn validate(mut self) -> Result<Config, Failure> {
        self.sort_words()?;
        let shown = self.shown()?;
        let args = self.merge()?;
        args.check_conflicts()?;
        if args.read.is_some() {
            args.check_read()?;
        }
        let interface = match (&args.interface, &args.read) {
            (Some(interface), None) => interface.clone(),
            (None, Some(_)) => String::new(),
            (Some(_), Some(_)) => return Err(wrong("an interface and a file to read: give one of them")),
            (None, None) => {
                return Err(wrong("which interface? `evenkeel capture IFACE [FILTER]`, `-i any` for all, `-r FILE`"));
            }
        };
        let count_only = args.count_only || (args.write.is_none() && args.json);
        let shows = shown.link || shown.bytes.is_some();
        let print =
            args.write.is_none() && !count_only && (args.print || shows || args.mode.as_deref() != Some("auto"));
        let counting = args.write.is_none() && !print;
        let snaplen = match args.snaplen {
            Some(n) if (16..=WHOLE_FRAME).contains(&n) => n,
            Some(n) => return Err(wrong(format!("--snaplen {n}: 16 to {WHOLE_FRAME} bytes are possible"))),
            // Who counts needs no bytes: the kernel spares the copy.
            None if counting => 1,
            None => WHOLE_FRAME,
        };
        let mut tuning = super::tuning();
        if let Some(text) = &args.block_size {
            tuning.block_bytes = size_u32("--block-size", text)?;
        }
        if let Some(text) = &args.buffer {
            tuning.plain.buffer_bytes = size_u32("--buffer", text)?;
            tuning.buffer_required = true;
        }
        tuning.blocks = args.blocks;
        tuning.retire_ms = args.retire_ms.unwrap_or(tuning.retire_ms);
        tuning.plain.batch = args.batch.unwrap_or(tuning.plain.batch);
        if !(1..=1024).contains(&tuning.plain.batch) {
            return Err(wrong(format!("--batch {}: 1 to 1024 packets are possible", tuning.plain.batch)));
        }
        if !(1..=10_000).contains(&tuning.retire_ms) {
            return Err(wrong(format!("--retire-ms {}: 1 to 10000 are possible", tuning.retire_ms)));
        }
        tuning.rx_hash = args.rx_hash;
        tuning.fanout.defrag = args.defrag;
        tuning.fanout.rollover = args.rollover;
        if let Some(name) = &args.fanout {
            tuning.fanout.algorithm = fanout_algorithm(name).ok_or_else(|| {
                let names = FANOUT_NAMES.map(|(n, _)| n).join(", ");
                wrong(format!("--fanout: there is no algorithm `{name}`; there are {names}"))
            })?;
        }
        tuning.consume = args.consume;
        if args.behind {
            tuning.place = TapPlace::Behind;
        }
        tuning.xdp_mode = match args.xdp_mode.as_deref() {
            None | Some("native") => XdpMode::Native,
            Some("generic") => XdpMode::Generic,
            Some(other) => {
                return Err(wrong(format!("--xdp-mode: there is no `{other}`; there are native and generic")));
            }
        };
        let mode = match args.mode.as_deref() {
            None => Some(Backend::Ring),
            Some("auto") => None,
            Some(name) => Some(name.parse()?),
        };
        match mode {
            Some(backend) => args.check_backend(backend)?,
            None if args.before || args.behind => {
                return Err(wrong(
                    "--before and --behind are for --mode tap: the other backends see what the shield lets through",
                ));
            }
            None => {}
        }
        args.check_any(mode)?;
        let cpus = args.cpus.as_deref().map(CpuSet::parse_list).transpose();
        let cpus = cpus.context("--cpus").map_err(Failure::usage)?;
        let rotation = Rotation {
            bytes: args.rotate_size.as_deref().map(|t| size("--rotate-size", t)).transpose()?,
            seconds: args.rotate_seconds,
            packets: args.rotate_count,
            files: args.files,
        };
        if [rotation.bytes, rotation.seconds, rotation.packets, rotation.files.map(u64::from)].contains(&Some(0)) {
            return Err(wrong("a rotation by 0 is not possible"));
        }
        if rotation.files.is_some() && !rotation.is_on() {
            return Err(wrong("--files needs --rotate-size, --rotate-seconds or --rotate-count"));
        }
        let target = args.write.map(|path| super::target(path, rotation));
        if rotation.is_on() && !matches!(target, Some(Target::File(..))) {
            return Err(wrong("rotation needs -w FILE: there is nothing to rotate otherwise"));
        }
        if args.json && target == Some(Target::Stdout) {
            return Err(wrong("--json and -w - both want standard output"));
        }
        let duration = args.duration;
        if args.count == Some(0) {
            return Err(wrong("--count 0 captures nothing"));
        }
        Ok(Config {
            interface,
            read: args.read,
            filter: args.filter.join(" ").trim().to_owned(),
            mode,
            members: args.members,
            cpus,
            tuning,
            promiscuous: !args.no_promisc,
            inbound: args.inbound,
            try_xdp: args.try_xdp || args.consume,
            snaplen,
            count: args.count,
            duration,
            target,
            print,
            shown,
            json: args.json,
            quiet: args.quiet,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(args: CaptureArgs) -> String {
        let failure = args.validate().map(|_| ()).expect_err("must be refused");
        format!("{failure:?}")
    }

    fn eth0() -> CaptureArgs {
        CaptureArgs { interface: Some("eth0".into()), count_only: true, ..CaptureArgs::default() }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_first_word_is_the_interface_unless_a_flag_says_it() {
        let with = |args: CaptureArgs| args.validate().map(|c| (c.interface, c.filter)).unwrap();
        let none = CaptureArgs::default;
        assert_eq!(
            with(CaptureArgs { words: words("eth0 udp port 53"), ..none() }),
            ("eth0".into(), "udp port 53".into())
        );
        let flag = CaptureArgs { interface: Some("eth0".into()), words: words("udp port 53"), ..none() };
        assert_eq!(with(flag), ("eth0".into(), "udp port 53".into()));
        let file = CaptureArgs { read: Some("x.pcap".into()), words: words("udp"), ..none() };
        assert_eq!(with(file), (String::new(), "udp".into()));
        let two = CaptureArgs { interface: Some("eth0".into()), words: words("lo"), ..none() };
        assert!(message(two).contains("two interfaces"));
    }

    #[test]
    fn what_only_an_interface_or_one_of_them_can_do_is_refused() {
        let none = CaptureArgs::default;
        let read = || CaptureArgs { read: Some("x.pcap".into()), ..none() };
        assert!(message(CaptureArgs { mode: Some("ring".into()), ..read() }).contains("--mode"));
        assert!(message(CaptureArgs { duration: Some(Duration::from_secs(1)), ..read() }).contains("--duration"));
        let any = || CaptureArgs { interface: Some(ANY.into()), ..none() };
        assert!(any().validate().is_ok());
        assert!(message(CaptureArgs { mode: Some("tap".into()), ..any() }).contains("`any`"));
        assert!(message(CaptureArgs { mode: Some("auto".into()), ..any() }).contains("`any`"));
        assert!(message(CaptureArgs { time: 3, ..any() }).contains("-tttt"));
    }

    #[test]
    fn lines_are_printed_unless_something_else_is_asked_for() {
        let plain = || CaptureArgs { interface: Some("eth0".into()), ..CaptureArgs::default() };
        let print = |args: CaptureArgs| args.validate().unwrap().print;
        assert!(print(plain()));
        assert!(!print(CaptureArgs { json: true, ..plain() }));
        assert!(!print(CaptureArgs { write: Some("x".into()), ..plain() }));
        assert!(!print(CaptureArgs { mode: Some("auto".into()), ..plain() }));
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "interface = \"eth1\"\nfilter = [\"udp\"]\nblocks = 8\nno-promisc = true\n").unwrap();
        let args = CaptureArgs { blocks: Some(4), config: Some(path.clone()), ..eth0() };
        let config = args.validate().unwrap();
        assert_eq!((config.interface.as_str(), config.filter.as_str()), ("eth0", "udp"));
        assert_eq!((config.tuning.blocks, config.promiscuous), (Some(4), false));
        fs::write(&path, "blcks = 8\n").unwrap();
        let text = message(CaptureArgs { config: Some(path), ..eth0() });
        assert!(text.contains("blcks") && text.contains("line 1"), "{text}");
    }

    #[test]
    fn conflicts_and_options_without_effect_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "write = \"kept.pcapng\"\n").unwrap();
        let text = message(CaptureArgs { config: Some(path), ..eth0() });
        assert!(text.contains("--count-only and --write"), "{text}");
        let with = |mode: &str| CaptureArgs { mode: Some(mode.to_owned()), ..eth0() };
        assert!(message(CaptureArgs { blocks: Some(4), ..with("packet") }).contains("ring, ring+fanout and auto"));
        assert!(message(CaptureArgs { buffer: Some("1M".into()), ..with("tap") }).contains("--buffer"));
        assert!(message(CaptureArgs { consume: true, ..with("ring") }).contains("--consume"));
        assert!(message(CaptureArgs { try_xdp: true, ..with("tap") }).contains("--try-xdp"));
        assert!(CaptureArgs { blocks: Some(4), try_xdp: true, ..with("auto") }.validate().is_ok());
    }

    #[test]
    fn wrong_values_are_named() {
        let some = |s: &str| Some(s.to_owned());
        assert!(message(CaptureArgs { mode: some("rings"), ..eth0() }).contains("ring+fanout"));
        assert!(message(CaptureArgs { mode: some("ring+fanout"), fanout: some("x"), ..eth0() }).contains("rollover"));
        assert!(message(CaptureArgs { block_size: some("3Q"), ..eth0() }).contains("unknown unit"));
        assert!(message(CaptureArgs { cpus: some("3-1"), ..eth0() }).contains("backwards"));
        assert!(message(CaptureArgs { files: Some(3), ..eth0() }).contains("--rotate-size"));
        assert!(message(CaptureArgs::default()).contains("which interface"));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("x", "256K").unwrap(), 262_144);
        assert_eq!(size("x", "17").unwrap(), 17);
        assert!(size("x", "99999999999G").is_err());
        assert!(size("x", "").is_err());
    }
}
