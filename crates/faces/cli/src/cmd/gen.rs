//! `evenkeel gen`: frames from a template or a capture file.

use std::{
    cmp::Ordering,
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use host::netlink::{Netlink, route};
use model::{CpuSet, units};
use nix::sys::socket::SockProtocol;
use sys::{
    libpcap,
    privilege::{self, Remaining},
};
use traffic::{
    Allowance, Backend, FlowSpace, GenConfig, GenReport, Interface, Origin, Pacing, Plan, Ports, Prefix, Rate,
    Recording, ReplayConfig, StreamConfig, Timing, TrafficError,
    plan::{Frames, NOBODY},
    replay::FILE_MAX,
};
use wire::{FrameSize, IMIX, Kind, Mac, Tag, ethernet::ether_type};

use crate::{
    failure::{Failure, Outcome, cannot_write, note, print, print_json},
    numbers::{number, words},
    signals::{Second, stop_flag},
    time::time,
};

/// Flows that follow each other when none are asked for.
const FLOW_COUNT: usize = 65_536;
/// Flows of an IMIX or another mix of sizes when none are asked for: each meets every size, within the largest cycle.
const FLOWS_MIXED: usize = 4_096;

/// Send frames from a template or a capture file, at a known rate.
///
/// Example: evenkeel gen eth0 --udp --rate 100k --duration 10
///
/// Destinations are the test networks 198.18.0.0/15 and 2001:2::/48, or those named with --allow-destination; inside a lab of this
/// program there is no such rule. Every run has an end (--duration) and a rate.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(crate) struct GenArgs {
    /// The interface to send on.
    #[arg(value_parser = crate::args::interface)]
    interface: String,

    /// TCP SYNs without options, from many sources.
    #[arg(long, group = "what", help_heading = "What to send")]
    syn_flood: bool,
    /// UDP datagrams that fill the frame.
    #[arg(long, group = "what", help_heading = "What to send")]
    udp: bool,
    /// TCP data segments (ACK) that fill the frame.
    #[arg(long, hide_short_help = true, group = "what", help_heading = "What to send")]
    tcp: bool,
    /// The frames of a pcap or pcapng file, over and over.
    #[arg(long, value_name = "FILE", group = "what", help_heading = "What to send")]
    pcap: Option<PathBuf>,
    /// Frame sizes in turn, in bytes with FCS [default: 64].
    ///
    /// RFC 2544 counts so; 64 is 60 in memory. Where 64 cannot hold the headers, the default is the least that can.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', conflicts_with = "pcap", value_parser = number::<usize>("a frame size in bytes", "64", ..), help_heading = "What to send")]
    sizes: Vec<usize>,
    /// The simple Internet mix: 7 frames of 64, 4 of 594, 1 of 1518 bytes.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["pcap", "sizes", "syn_flood"], help_heading = "What to send")]
    imix: bool,

    /// Different flows (addresses and ports) that follow each other in turn [default: as many as the ranges make,
    /// up to 65536, or 4096 with a mix of sizes].
    #[arg(long, hide_short_help = true, value_name = "N", conflicts_with = "pcap", value_parser = number::<usize>("a number of flows", "1000", ..), help_heading = "Addresses")]
    flows: Option<usize>,
    /// Draw each packet's source anew: a port from 1024 on, and an address of --src (of IPv6, its last 32 bits, or with a prefix
    /// shorter than /64 the numbers of its /64 networks). As spoofed floods are; xdp-live only. --flows is then 1 unless given.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["pcap", "src_port"], help_heading = "Addresses")]
    random_sources: bool,
    /// Source addresses [default: 198.18.0.0/16, or 2001:2:0:1::/64 with --ipv6].
    #[arg(long, hide_short_help = true, value_name = "PREFIX", conflicts_with = "pcap", help_heading = "Addresses")]
    src: Option<Prefix>,
    /// Destination addresses [default: 198.19.0.1, or 2001:2:0:2::1 with --ipv6].
    #[arg(long, value_name = "PREFIX", conflicts_with = "pcap", help_heading = "Addresses")]
    dst: Option<Prefix>,
    /// Source ports.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PORTS",
        default_value = "1024-65535",
        conflicts_with = "pcap",
        help_heading = "Addresses"
    )]
    src_port: Ports,
    /// Destination ports [default: 80 for TCP, 9 (discard) for UDP].
    #[arg(long, value_name = "PORTS", conflicts_with = "pcap", help_heading = "Addresses")]
    dst_port: Option<Ports>,
    /// IPv6 instead of IPv4, where no prefix says so.
    #[arg(long, hide_short_help = true, conflicts_with = "pcap", help_heading = "Addresses")]
    ipv6: bool,
    /// Destination MAC address.
    #[arg(long, value_name = "MAC", default_value_t = NOBODY, conflicts_with = "pcap", help_heading = "Addresses")]
    dst_mac: Mac,
    /// Source MAC address [default: that of the interface].
    #[arg(long, hide_short_help = true, value_name = "MAC", conflicts_with = "pcap", help_heading = "Addresses")]
    src_mac: Option<Mac>,
    /// VLAN id; two make QinQ, the outer one first.
    #[arg(long, hide_short_help = true, value_name = "ID", value_delimiter = ',', conflicts_with = "pcap", value_parser = number::<u16>("a VLAN id", "100", ..), help_heading = "Addresses")]
    vlan: Vec<u16>,

    /// Rate of all senders together: 100k, 1.5Mpps, 500Mbit, max.
    ///
    /// A number is packets/s; bits/s are of layer 2 with FCS (500Mbit), of layer 1 with preamble and gap (10GbitL1), or of IP (1GbitL3).
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, help_heading = "How fast and how long")]
    rate: Option<Rate>,
    /// Replay at the file's own times, this many times as fast [default: 1].
    #[arg(long, hide_short_help = true, value_name = "FACTOR", requires = "pcap", conflicts_with_all = ["rate", "original"], value_parser = number::<f64>("a factor", "2", ..), help_heading = "How fast and how long")]
    speed: Option<f64>,
    /// Replay at the file's own times.
    #[arg(
        long,
        hide_short_help = true,
        requires = "pcap",
        conflicts_with = "rate",
        help_heading = "How fast and how long"
    )]
    original: bool,
    /// Stop after this time; at most a day.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time, help_heading = "How fast and how long")]
    duration: Duration,
    /// Stop after this number of frames, if that is sooner.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = number::<u64>("a number of frames", "1000000", ..), help_heading = "How fast and how long")]
    count: Option<u64>,

    /// Wait for the time of the next packet by running or sleeping [default: sleep up to 100000 packets/s per
    /// sender, even beyond and for a file's own times].
    #[arg(long, hide_short_help = true, value_name = "PACING", value_parser = words(&PACING), help_heading = "How to send")]
    pacing: Option<Pacing>,
    /// Send frames by this way.
    #[arg(long, hide_short_help = true, value_name = "BACKEND", value_parser = words(&BACKENDS), default_value = "auto", help_heading = "How to send")]
    backend: BackendChoice,
    /// A sender on each of these CPUs, such as 0-3,8 [default: one sender, wherever the scheduler puts it].
    #[arg(long, hide_short_help = true, value_name = "CPUS", help_heading = "How to send")]
    cpus: Option<CpuSet>,
    /// Through the qdisc instead of past it (tx-ring): tcpdump on this interface then sees the frames.
    #[arg(long, hide_short_help = true, help_heading = "How to send")]
    qdisc: bool,
    /// Seed for the order of the flows; the same seed gives the same frames.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1, value_parser = number::<u64>("a whole number", "1", ..), help_heading = "How to send")]
    seed: u64,

    /// Allow a network that is not set aside for tests (RFC 6815). Repeatable.
    #[arg(long, value_name = "PREFIX", help_heading = "Safety")]
    allow_destination: Vec<Prefix>,
    /// Replay frames that are not IP outside of a lab too.
    #[arg(long, hide_short_help = true, requires = "pcap", help_heading = "Safety")]
    allow_non_ip: bool,

    /// Print one JSON document (schema evenkeel.gen/1) instead of text.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const PACING: [(&str, &str, Pacing); 2] = [
    ("even", "By running: evenly spaced packets; takes the whole core", Pacing::Even),
    (
        "sleep",
        "By sleeping 1 to 20 ms: leaves the core to others; what became due meanwhile is sent in one burst",
        Pacing::Sleep,
    ),
];

/// A backend, or none: the fastest that the interface can do.
#[derive(Debug, Clone, Copy)]
struct BackendChoice(Option<Backend>);

const BACKENDS: [(&str, &str, BackendChoice); 4] = [
    ("auto", "The fastest that the interface can do; the output says which and why", BackendChoice(None)),
    (
        "xdp-live",
        "XDP live frames: templates only; the device must transmit redirected frames",
        BackendChoice(Some(Backend::XdpLive)),
    ),
    ("xdp", "An AF_XDP socket, one queue per sender", BackendChoice(Some(Backend::Xdp))),
    (
        "tx-ring",
        "AF_PACKET's transmit ring past the qdisc; works on every interface",
        BackendChoice(Some(Backend::TxRing)),
    ),
];

/// Sends, and says what was really sent.
pub(crate) fn run(args: &GenArgs) -> Result<Outcome, Failure> {
    if args.pcap.is_some() {
        libpcap::load()?;
    }
    let plan = Plan::with(args.config()?, Interface::look(&args.interface)?, read)?;
    if let Frames::Recording(recording) = &plan.frames
        && recording.cut_short > 0
    {
        note(format_args!(
            "warning: {} of the {} packets were cut short when they were captured, and are sent so",
            units::grouped(recording.cut_short),
            units::grouped(recording.frames.len() as u64)
        ));
    }
    warn_of_gap(&plan);
    args.warn_of_neighbour(&plan);
    let stop = stop_flag(Second::Ends)?;
    let (backend, _) = traffic::backend::choose(&plan)?;
    privilege::require(format!("gen with {}", backend.name()), backend.needs())?;
    let ready = traffic::prepare(&plan)?;
    // All is open: neither sending nor counting takes a right.
    if let Some(why) = privilege::give_up(Remaining::Reading)?.still_root {
        note(format_args!("warning: gen goes on with root's user id, without capabilities: {why}"));
    }
    let report = ready.run(&stop, |p| {
        let (seconds, frames) = (p.elapsed.as_secs_f64(), units::grouped(p.submitted));
        note(format_args!("{seconds:4.0} s  {frames} frames  {}", units::pps(p.pps)));
    })?;
    match args.json {
        true => print_json("gen", &report)?,
        false => print(&text(&report))?,
    }
    Ok(Outcome::Fine)
}

/// Warns of a time without frames in a file that is longer than the whole run.
fn warn_of_gap(plan: &Plan) {
    let (Frames::Recording(recording), Origin::Replay(replay)) = (&plan.frames, &plan.config.origin) else { return };
    let (Timing::Speed(speed), Some((gap_ns, number))) = (replay.timing, recording.longest_gap()) else { return };
    let seconds = gap_ns as f64 / 1e9 / speed;
    if seconds > plan.config.duration.as_secs_f64() {
        note(format_args!(
            "warning: the file has {seconds:.0} s without a packet before its packet {number}: those behind it are not sent in this run; \
             --rate sends without regard to the file's times"
        ));
    }
}

/// Read a capture file from the standard input and write its frames for `gen`.
#[derive(Debug, Args)]
pub(crate) struct FramesArgs {
    /// The file's name, for errors.
    name: PathBuf,
}

/// Has the file read by a process that may do nothing: libpcap meets what a stranger wrote there, before this one gives up its rights.
fn read(path: &Path) -> Result<Recording, TrafficError> {
    let failed = |e: io::Error| TrafficError::File { path: path.to_owned(), reason: e.to_string() };
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    if len > FILE_MAX {
        return Err(failed(io::Error::other(format!(
            "it has {len} bytes, and {FILE_MAX} is the most that is held in memory"
        ))));
    }
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(["frames", "--"])
        .arg(path)
        .stdin(file)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let read = match child.stdout.take() {
        Some(out) => Recording::receive(path, BufReader::with_capacity(1 << 16, out)),
        None => Err(failed(io::ErrorKind::BrokenPipe.into())),
    };
    // One that goes on after a wrong answer has nobody to write to.
    child.wait().map_err(failed)?;
    read
}

/// Runs as that process.
pub(crate) fn frames(args: &FramesArgs) -> Result<Outcome, Failure> {
    // libpcap cannot be loaded after the rights to files are dropped. If it is missing, the reading below returns that error.
    let _ = libpcap::load();
    privilege::give_up(Remaining::Reading)?;
    let read = Recording::read_standard_input(&args.name);
    Recording::send(&read, io::BufWriter::with_capacity(1 << 16, io::stdout().lock())).map_err(cannot_write)?;
    Ok(Outcome::Fine)
}

impl GenArgs {
    fn config(&self) -> Result<GenConfig, Failure> {
        let origin = match &self.pcap {
            Some(path) => {
                let timing = if self.rate.is_some() { Timing::Rate } else { Timing::Speed(self.speed.unwrap_or(1.0)) };
                Origin::Replay(ReplayConfig { path: path.clone(), timing })
            }
            None if self.rate.is_none() => {
                return Err(Failure::usage(anyhow!(
                    "how fast? give --rate 100k (packets/s), --rate 500Mbit, or --rate max for the most that is possible"
                )));
            }
            None => Origin::Stream(self.stream()?),
        };
        Ok(GenConfig {
            interface: self.interface.clone(),
            origin,
            rate: self.rate.unwrap_or(Rate::Max),
            duration: self.duration,
            count: self.count,
            pacing: self.pacing,
            backend: self.backend.0,
            cpus: self.cpus.clone(),
            seed: self.seed,
            allowance: Allowance { named: self.allow_destination.clone(), non_ip: self.allow_non_ip },
            qdisc: self.qdisc,
        })
    }

    fn stream(&self) -> Result<StreamConfig, Failure> {
        let kind = match (self.udp, self.tcp) {
            (true, _) => Kind::Udp,
            (_, true) => Kind::TcpData,
            _ => Kind::TcpSyn,
        };
        let ipv6 = self.ipv6 || self.src.or(self.dst).is_some_and(|p| p.is_ipv6());
        let prefix = |given: Option<Prefix>, v4: &str, v6: &str| match given {
            Some(prefix) => Ok(prefix),
            None => if ipv6 { v6 } else { v4 }.parse::<Prefix>(),
        };
        let ports = match self.dst_port {
            Some(ports) => ports,
            None => if kind == Kind::Udp { "9" } else { "80" }.parse()?,
        };
        let space = FlowSpace {
            sources: prefix(self.src, "198.18.0.0/16", "2001:2:0:1::/64")?,
            destinations: prefix(self.dst, "198.19.0.1", "2001:2:0:2::1")?,
            source_ports: self.src_port,
            destination_ports: ports,
        };
        let tags = self.tags()?;
        let template = wire::Template { destination: self.dst_mac, source: self.dst_mac, tags, kind };
        let sizes = match (&self.sizes[..], self.imix) {
            (_, true) => {
                // The least frame of the mix grows where the headers need it.
                IMIX.iter().map(|&s| s.max(template.min_size(ipv6))).collect()
            }
            ([], false) => vec![template.min_size(ipv6)],
            (sizes, false) => sizes.iter().map(|&s| FrameSize::with_fcs(s)).collect(),
        };
        let most = match (self.random_sources, sizes.len()) {
            (true, _) => 1,
            (false, 1) => FLOW_COUNT,
            (false, _) => FLOWS_MIXED,
        };
        let flows = self.flows.unwrap_or(usize::try_from(space.count()).unwrap_or(most).min(most));
        Ok(StreamConfig {
            kind,
            space,
            flows,
            random_sources: self.random_sources,
            sizes,
            destination: self.dst_mac,
            source: self.src_mac,
            tags,
        })
    }

    /// Warns where the kernel knows the one destination's MAC address and the frames bear another: its owner drops them.
    fn warn_of_neighbour(&self, plan: &Plan) {
        let Some(to) = self.dst.filter(|prefix| prefix.count() == 1).map(|prefix| prefix.first()) else { return };
        let neighbours =
            Netlink::open(SockProtocol::NetlinkRoute).and_then(|mut netlink| route::neighbours(&mut netlink));
        let known = neighbours.unwrap_or_default().into_iter().find(|neighbour| {
            neighbour.ifindex == plan.interface.index && neighbour.address == to && neighbour.is_usable()
        });
        let Some(mac) = known.and_then(|neighbour| Some(Mac(*neighbour.lladdr.first_chunk()?))) else { return };
        if mac != self.dst_mac {
            note(format_args!(
                "warning: {to} has MAC address {mac}, and the frames go to {}: its kernel drops them; --dst-mac {mac} reaches it",
                self.dst_mac
            ));
        }
    }

    fn tags(&self) -> Result<[Option<Tag>; 2], Failure> {
        if let Some(id) = self.vlan.iter().find(|&&id| id > 4094) {
            return Err(Failure::usage(anyhow!("VLAN {id} is beyond the highest possible, 4094")));
        }
        let tag = |protocol, control| Some(Tag { protocol, control });
        match self.vlan[..] {
            [] => Ok([None, None]),
            [id] => Ok([tag(ether_type::VLAN, id), None]),
            [outer, inner] => Ok([tag(ether_type::SERVICE_VLAN, outer), tag(ether_type::VLAN, inner)]),
            _ => Err(Failure::usage(anyhow!("{} VLAN tags, but two are the most", self.vlan.len()))),
        }
    }
}

fn text(r: &GenReport) -> String {
    let mut out = format!("backend     {} ({})\n", r.backend, r.backend_reason);
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<12}{value}\n"));
    if let (Some(to), Some(port), Some(mac)) = (&r.destination, &r.destination_port, &r.destination_mac) {
        line("to", format!("{to} port {port}, MAC {mac}"));
    }
    line(
        "frames",
        format!(
            "{} different ones in turn, {}{:.0} bytes with FCS on average",
            units::grouped(r.cycle_frames),
            if r.random_sources { "sources drawn anew for each, " } else { "" },
            r.mean_frame_bytes
        ),
    );
    let achieved = match (r.offered_pps, r.pacing_error) {
        (Some(offered), Some(error)) => {
            format!(
                "{} of {} offered (error {})",
                units::pps(r.achieved_pps),
                units::pps(offered),
                signed_percent(error)
            )
        }
        (Some(_), None) if r.submitted > 0 => format!(
            "{}, the first {} of {} packets at the file's own times",
            units::pps(r.achieved_pps),
            units::grouped(r.submitted),
            units::grouped(r.cycle_frames)
        ),
        (Some(offered), None) => format!("{} of {} offered", units::pps(r.achieved_pps), units::pps(offered)),
        (None, _) => format!("{}, the most that was possible", units::pps(r.achieved_pps)),
    };
    line("achieved", achieved);
    line(
        "",
        format!(
            "{} of layer 2, {} of layer 1",
            units::bits_per_second(r.achieved_l2_bps),
            units::bits_per_second(r.achieved_l1_bps)
        ),
    );
    if let (Some(pacing), Some(reason)) = (&r.pacing, &r.pacing_reason) {
        let bursts = match (r.burst_mean, r.burst_max) {
            (Some(mean), Some(max)) => format!(", bursts of {mean:.1} frames on average, {max} at most"),
            _ => String::new(),
        };
        line("pacing", format!("{pacing} ({reason}){bursts}"));
    }
    let share: f64 = r.senders.iter().map(|s| s.cpu_share).sum();
    line("CPU time", format!("{:.1} % of a core", share * 100.0));
    let early = if r.stopped { ", stopped early" } else { "" };
    line("handed over", format!("{} frames in {:.3} s{early}", units::grouped(r.submitted), r.elapsed_s));
    let counted = r.device_sent + r.device_dropped;
    let note = match counted.cmp(&r.submitted) {
        Ordering::Greater => " (it counts what others send too)".to_owned(),
        Ordering::Less => {
            let why = if r.backend == Backend::XdpLive.name() { " (of a veth: its peer ran no NAPI then)" } else { "" };
            format!(", {} neither: refused by the driver{why}", units::grouped(r.submitted - counted))
        }
        Ordering::Equal => String::new(),
    };
    line(
        "interface",
        format!("{} sent, {} dropped{note}", units::grouped(r.device_sent), units::grouped(r.device_dropped)),
    );
    if r.senders.len() > 1 {
        for s in &r.senders {
            let cpu = s.cpu.map_or("-".to_owned(), |c| c.to_string());
            line(
                &format!("  CPU {cpu}"),
                format!("{} frames, {}", units::grouped(s.submitted), units::pps(s.submitted_pps)),
            );
        }
    }
    let skipped: f64 = r.senders.iter().map(|s| s.skipped_s).sum();
    // Less than this is what a sender that sleeps leaves between its last look and the end.
    if skipped >= 0.001 {
        let senders = r.senders.len();
        let of = if senders > 1 { format!(" of {senders} senders together") } else { String::new() };
        let frames = r.offered_pps.map_or(String::new(), |pps| {
            format!(", some {} frames", units::grouped((skipped * pps / senders as f64) as u64))
        });
        line(
            "given up",
            format!(
                "{skipped:.3} s of the schedule{of}{frames}: the senders were too slow for this rate, or kept from running"
            ),
        );
    }
    out
}

/// A deviation in thousandths of a percent; one that is less than half of that has no sign.
fn signed_percent(ratio: f64) -> String {
    let thousandths = (ratio * 100_000.0).round();
    if thousandths == 0.0 { "0.000 %".to_owned() } else { format!("{:+.3} %", thousandths / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign() {
        assert_eq!(signed_percent(-1e-9), "0.000 %");
        assert_eq!(signed_percent(4e-6), "0.000 %");
        assert_eq!(signed_percent(-1e-5), "-0.001 %");
        assert_eq!(signed_percent(0.0125), "+1.250 %");
    }
}
