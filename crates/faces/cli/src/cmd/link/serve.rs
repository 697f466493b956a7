//! `link serve`: the broker of a node.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, anyhow};
use bpf::XdpMode;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use link::{
    Paths, Receive, UdpSettings,
    broker::{BrokerOptions, BrokerService, BrokerSettings},
    rights,
    sockets::Allow,
};
use model::{Classified, visible::visible_plain};
use nix::unistd::{Group, gethostname};
use sys::privilege::{self, Capability};

use crate::{
    failure::{Failure, Outcome, json_line},
    numbers::bytes,
    output::{Output, Who, end_soon},
    shown,
};

/// Answer other nodes, and give the programs of this one their ports. Ends at Ctrl-C.
///
///     evenkeel link serve eth0
///
///     evenkeel link serve eth0.7 --name db1 --receive /srv/incoming
///
/// Frames of the programs pass the broker by. When it ends, connections of root's programs go on.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Interface to the other nodes. For one VLAN name its interface, such as eth0.7.
    #[arg(value_name = "INTERFACE", value_parser = crate::args::interface)]
    pub(super) interface: String,
    /// Name of this node [default: the host's].
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    pub(super) name: Option<String>,
    /// Carrier of the frames, the same on all nodes.
    #[arg(long, value_name = "CARRIER", value_enum, default_value = "ethernet", help_heading = "Node")]
    pub(super) over: Over,
    /// IP address of a node that no broadcast reaches, with --over udp. May be given several times.
    ///
    /// Name the other end on both of two nodes that a router parts.
    #[arg(long, value_name = "ADDRESS", help_heading = "Node", hide_short_help = true)]
    pub(super) peer: Vec<IpAddr>,
    /// Prefix that `link run` reaches over link.
    ///
    /// May be given several times.
    #[arg(long, value_name = "PREFIX", help_heading = "Programs")]
    pub(super) cluster: Vec<IpNet>,
    /// Source and ports let in over link, past the firewall.
    ///
    /// A prefix and one port or a range of ports, such as 10.0.0.0/24:7000-7999. May be given several times.
    ///
    /// These connections bypass every firewall of this machine (nftables, iptables, shield): their frames are no IP. Without --allow every address of
    /// --cluster may connect so to the ports 1024 to 65535; ports below are let in only when named. What is not let in goes by TCP, which the firewall
    /// judges.
    #[arg(long, value_name = "PREFIX:PORTS", requires = "cluster", help_heading = "Programs")]
    pub(super) allow: Vec<Allow>,
    /// Folder below which files of other nodes are written.
    ///
    /// Any node on this Ethernet can then write there: nothing proves who it is.
    #[arg(long, value_name = "PATH", help_heading = "Programs")]
    pub(super) receive: Option<PathBuf>,
    /// Bytes of its file system that files of other nodes leave free [default: a tenth, at most 4 GiB].
    ///
    /// A file for which there is no such room is refused, and one with which files of its node would take more than half of it. A tenth of the inodes stays
    /// free, too.
    #[arg(long, value_name = "BYTES", requires = "receive", value_parser = bytes::<u64>, help_heading = "Programs")]
    pub(super) receive_free: Option<u64>,
    /// Group whose programs may have ports, too.
    ///
    /// Programs of other users than root send only in the name of their own ports: their frames are guarded. Needs Linux 6.6.
    #[arg(long, value_name = "GROUP", help_heading = "Programs")]
    pub(super) group: Option<String>,
    /// Way of frames to programs: rings out of the XDP hook in that mode, or packet sockets (off).
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value = "auto",
        help_heading = "Node",
        hide_short_help = true
    )]
    pub(super) xdp_mode: Mode,
    /// Print what happens as JSON (schema evenkeel.link.event/1), one document per line.
    #[arg(long, help_heading = "Node")]
    pub(super) json: bool,
}

/// Carrier of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Over {
    /// Plain Ethernet, EtherType 0x88B5.
    Ethernet,
    /// UDP, port 885: where a network drops unknown EtherTypes, or routes.
    Udp,
}

/// Receive path of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Native if the driver runs programs, else off.
    Auto,
    /// The driver runs the program.
    Native,
    /// The kernel runs it, behind the driver.
    Generic,
    /// Packet sockets.
    Off,
}

impl From<Mode> for Receive {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Native => Self::Xdp(XdpMode::Native),
            Mode::Generic => Self::Xdp(XdpMode::Generic),
            Mode::Off => Self::Sockets,
        }
    }
}

impl ServeArgs {
    /// The broker that is asked for.
    ///
    /// # Errors
    /// The arguments contradict each other; there is no such group.
    pub(super) fn settings(&self) -> Result<BrokerSettings, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => gethostname()
                .context("cannot read the host's name: give one by --name")
                .map_err(Failure::lacking)?
                .to_string_lossy()
                .into_owned(),
        };
        if name.is_empty() || name.len() > 255 || name.chars().any(|c| c.is_control() || c.is_whitespace() || c == ':')
        {
            return Err(Failure::usage(anyhow!("--name takes 1 to 255 bytes without blanks and colons, not {name:?}")));
        }
        let udp = udp(self)?;
        refuse_strange(self)?;
        let group = self.group.as_deref().map(group).transpose()?;
        Ok(BrokerSettings { interface: self.interface.clone(), name, group, xdp: self.xdp_mode.into(), udp })
    }
}

pub(super) fn run(args: &ServeArgs) -> Result<Outcome, Failure> {
    privilege::require(
        "a broker for messages between nodes",
        &[Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN, Capability::CAP_BPF],
    )?;
    if args.group.is_some() {
        privilege::require("a guard for programs of other users (`--group`)", &[Capability::CAP_SYS_ADMIN])?;
    }
    let options = BrokerOptions {
        broker: args.settings()?,
        cluster: args.cluster.clone(),
        allow: args.allow.clone(),
        receive: args.receive.clone(),
        receive_free: args.receive_free,
    };
    let settings = &options.broker;
    let held = Paths::here().lock()?;
    let mut server = shown::server()?;
    privilege::bound_to(&rights::of_start(settings, !args.cluster.is_empty(), args.receive.is_some()))?;
    // The broker does not wait for those who read its lines.
    let output =
        Arc::new(Output::start(&Who { name: "the broker", stop: "evenkeel link stop".to_owned() }, args.json)?);
    let say = {
        let output = Arc::clone(&output);
        move |line: String| output.message(&visible_plain(&line))
    };
    let notify = {
        let (say, output, is_json) = (say.clone(), Arc::clone(&output), args.json);
        move |what: String| match is_json {
            true => drop(json_line("link.event", serde_json::json!({ "what": what })).map(|line| output.show(line))),
            false => say(what),
        }
    };
    let service = BrokerService::open(held, &options, say.clone(), notify)?;
    privilege::drop_all_but(&rights::of_broker(settings))?;
    let carried = service.carried().to_owned();
    let broker = server.add(service)?;
    say(format!(
        "{}: node {} serves; delivery: {carried}{}",
        settings.interface,
        settings.name,
        args.receive.as_ref().map(|folder| format!("; files arrive in {}", folder.display())).unwrap_or_default()
    ));
    server.run(|failed| say(failed.to_string()));
    let ended = broker.ended().transpose();
    end_soon(ended.as_ref().err().map_or(0, |error| error.class().exit_code()));
    say("the broker has ended; connections of root's programs go on".to_owned());
    ended?;
    Ok(Outcome::Fine)
}

/// Nobody but nodes of the cluster comes over link.
fn refuse_strange(args: &ServeArgs) -> Result<(), Failure> {
    let is_of_cluster = |allow: &&Allow| args.cluster.iter().any(|prefix| prefix.contains(&allow.sources()));
    match args.allow.iter().find(|allow| !is_of_cluster(allow)) {
        Some(other) => {
            Err(Failure::usage(anyhow!("--allow {other} has no effect: {} is in no --cluster", other.sources())))
        }
        None => Ok(()),
    }
}

/// Settings over UDP; none: Ethernet.
fn udp(args: &ServeArgs) -> Result<Option<UdpSettings>, Failure> {
    if args.over == Over::Ethernet {
        return match args.peer.first() {
            Some(peer) => Err(Failure::usage(anyhow!("--peer {peer} needs --over udp: plain Ethernet asks all nodes"))),
            None => Ok(None),
        };
    }
    if matches!(args.xdp_mode, Mode::Native | Mode::Generic) {
        return Err(Failure::usage(anyhow!("--xdp-mode does not work with --over udp: leave it out")));
    }
    if args.group.is_some() {
        let why = "--group does not work with --over udp, which has no guard: leave it out";
        return Err(Failure::usage(anyhow!(why)));
    }
    if let Some(pair) = args.peer.windows(2).find(|pair| pair[0].is_ipv4() != pair[1].is_ipv4()) {
        let why = anyhow!("peers have addresses of one family, not {} and {}", pair[0], pair[1]);
        return Err(Failure::usage(why));
    }
    Ok(Some(UdpSettings { peers: args.peer.clone(), near: args.cluster.clone() }))
}

fn group(name: &str) -> Result<u32, Failure> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => Err(Failure::usage(anyhow!("there is no group {name}: make it with `groupadd {name}`"))),
    }
}
