//! The real boxes of a run, with a tester at their ports and somebody who watches them.

use std::{fs, path::Path, str::FromStr, sync::Arc, time::Duration};

use bpf::XdpMode;
use lab::{
    Lab,
    boxes::{Family, NOBODY, Target},
};
use model::bench::{Setup, Stamps};

use crate::{
    BenchError,
    dut::{Cores, Dut, DutKind, DutOptions, TestPort},
    frames::{self, Traffic},
    guest,
    methods::Settling,
    observer::{BoxObserver, Watched},
    outside::{Addressing, are_there, check_ports, connect_with},
    run::{Benches, Boxes, Request, ResetWay, Settings, StandingBox, TAPS},
    tester::{RealTester, STAMPED_ONE_IN, TesterConfig},
};

/// The time that a reset leaves the box down.
const DOWN_TIME: Duration = Duration::from_secs(1);
/// The MTU of the lab's links.
const LAB_MTU: u32 = 1500;

/// Builds the boxes that were asked for.
pub struct RealBenches {
    request: Request,
    settle: Duration,
    cores: Cores,
    lab: Option<Lab>,
    threaded: bool,
}

impl RealBenches {
    /// Splits the cores, and makes the lab if the boxes are of one.
    pub fn new(request: &Request, settings: &Settings) -> Result<Self, BenchError> {
        Self::on(request, settings, Cores::split(&request.cpus)?)
    }

    /// Benches on cores that are split already.
    pub fn on(request: &Request, settings: &Settings, cores: Cores) -> Result<Self, BenchError> {
        let lab = match request.boxes {
            Boxes::Lab(_) | Boxes::Guests(_) => Some(Lab::new("bench")?),
            Boxes::Ports(..) => None,
        };
        Ok(Self { request: request.clone(), settle: settings.preset.settle, cores, lab, threaded: false })
    }

    /// The same with the boxes' receive work in threads of NAPI, which can be moved to other cores.
    pub fn threaded(self, threaded: bool) -> Self {
        Self { threaded, ..self }
    }

    fn dut(&self, key: &str) -> Result<Dut, BenchError> {
        let request = &self.request;
        match (&request.boxes, &self.lab) {
            (Boxes::Guests(guests), _) if key == TAPS || key.contains(':') => {
                let (rules, order) = (request.rules, request.rule_order);
                let options = DutOptions { family: family(request), rules, order, cores: &self.cores, threaded: false };
                guest::dut(guests, key, &options)
            }
            (Boxes::Lab(_) | Boxes::Guests(_), Some(lab)) => {
                let (rules, order) = (request.rules, request.rule_order);
                let options =
                    DutOptions { family: family(request), rules, order, cores: &self.cores, threaded: self.threaded };
                Dut::lab(lab, DutKind::from_str(key)?, &options)
            }
            (Boxes::Ports(a, b), _) => connect_with([a, b], &addressing(request)),
            (Boxes::Lab(_) | Boxes::Guests(_), None) => Err(BenchError::Panicked("lab")),
        }
    }
}

impl Benches for RealBenches {
    fn build(&mut self, key: &str) -> Result<StandingBox, BenchError> {
        let dut = Arc::new(self.dut(key)?);
        let config = TesterConfig { flows: self.request.flows, both_ways: !self.request.one_way };
        let observer = BoxObserver::open(watched(&dut, &self.cores))?;
        let tester = RealTester::new(Arc::clone(&dut), &self.cores, config, Some(Box::new(observer)))?;
        let tester = Settling::new(tester, self.settle);
        let resets = dut.resets().into_iter().map(|kind| {
            let dut = Arc::clone(&dut);
            ResetWay { what: dut.reset_in_words(kind), act: Box::new(move || dut.reset(kind, DOWN_TIME)) }
        });
        Ok(StandingBox {
            identity: dut.identity().clone(),
            ports: dut.ports().into_iter().map(port_words).collect(),
            addressing: match self.request.boxes {
                Boxes::Lab(_) | Boxes::Guests(_) => {
                    "static addresses, routes and neighbours, written before the first frame".to_owned()
                }
                Boxes::Ports(..) if self.request.bridged => "none: the box forwards by MAC address".to_owned(),
                Boxes::Ports(..) => {
                    let (how, box_side) =
                        (if self.request.ipv6 { "neighbour discovery" } else { "ARP" }, addressing(&self.request));
                    format!("the box's addresses asked for by {how}; the box needs: {}", box_side.set_up().join("; "))
                }
            },
            resets: resets.collect(),
            tester: Box::new(tester),
        })
    }
}

fn family(request: &Request) -> Family {
    if request.ipv6 { Family::V6 } else { Family::V4 }
}

/// True if the ports that are named can be used, before anything is made or said.
pub fn check(request: &Request) -> Result<(), BenchError> {
    match &request.boxes {
        Boxes::Lab(_) | Boxes::Guests(_) => Ok(()),
        Boxes::Ports(a, b) => check_ports([a, b], family(request)),
    }
}

/// True if the ports of a plan are there.
pub fn check_plan(request: &Request) -> Result<(), BenchError> {
    match &request.boxes {
        Boxes::Lab(_) | Boxes::Guests(_) => Ok(()),
        Boxes::Ports(a, b) => are_there([a, b]),
    }
}

/// The addresses around an outside box.
pub fn addressing(request: &Request) -> Addressing {
    if request.bridged { Addressing::bridged(family(request)) } else { Addressing::routed(family(request)) }
}

/// Of a box outside of this machine nothing can be watched but the tester's own cores.
fn watched(dut: &Dut, cores: &Cores) -> Watched {
    let ends = dut.ports().map(|p| p.interface.clone()).to_vec();
    let Some(made) = dut.lab_box() else {
        let cores = if dut.is_here() { cores.of_box.clone() } else { Vec::new() };
        return Watched { cores, inside: None, ends };
    };
    Watched { cores: cores.of_box.clone(), inside: made.inside().map(|i| i.namespace.handle()), ends }
}

/// The set-up of the run, as far as it is known before anything is made.
pub fn setup(request: &Request, settings: &Settings) -> Result<Setup, BenchError> {
    let cores = Cores::split(&request.cpus)?;
    Ok(Setup {
        preset: settings.name.clone(),
        goals: settings.preset.goals.clone(),
        bidirectional: !request.one_way,
        ip_version: if request.ipv6 { 6 } else { 4 },
        flows: request.flows,
        rules: request.rules,
        rule_order: request.rule_order.key().to_owned(),
        ports: Vec::new(),
        line_bits_per_s: line_rate(request),
        protocol: format!("UDP, destination port {} (RFC 2544, appendix C), checksums right", frames::ECHO_PORT),
        addressing: String::new(),
        arrangement: cores.arrangement(matches!(request.boxes, Boxes::Ports(..))),
        stamps: Stamps::default(),
    })
}

/// Measures the cost of the stamps on the sender's core.
pub fn stamps(request: &Request) -> Result<Stamps, BenchError> {
    let cpu = Cores::split(&request.cpus)?.sender;
    std::thread::scope(|scope| {
        let measured = scope.spawn(move || {
            sys::affinity::pin_current_thread(cpu).map_err(|e| {
                BenchError::Machine(format!("cannot run on CPU {cpu}: {e}; name other CPUs with --cpus"))
            })?;
            let clock = bpf::bench_rx::clock()?;
            Ok(Stamps { cost_ns: clock.cost_ns, resolution_ns: clock.resolution_ns, one_in: STAMPED_ONE_IN })
        });
        measured.join().unwrap_or(Err(BenchError::Panicked("measurement of the clock")))
    })
}

/// Traffic as it will be, with targets that stand for those which are known only when the box is there.
pub fn rehearsal(request: &Request) -> Traffic {
    let family = family(request);
    let (near, far) = (family.hosts_of_sender(), family.hosts_of_receiver());
    let target = |sources, destinations| Target { mac: NOBODY, source_mac: NOBODY, sources, destinations };
    let mtu = match &request.boxes {
        Boxes::Lab(_) | Boxes::Guests(_) => LAB_MTU,
        Boxes::Ports(a, b) => [a, b].into_iter().filter_map(|p| number_of(p, "mtu")).min().unwrap_or(LAB_MTU),
    };
    Traffic { targets: [target(near, far), target(far, near)], flows: 1, both_ways: !request.one_way, mtu }
}

fn number_of(interface: &str, what: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).ok()?.trim().parse().ok()
}

/// The line rate of the slower port; none for the lab's.
fn line_rate(request: &Request) -> Option<f64> {
    let Boxes::Ports(a, b) = &request.boxes else { return None };
    let megabits = number_of(a, "speed")?.min(number_of(b, "speed")?);
    Some(1e6 * f64::from(megabits))
}

/// A port in words: its interface, driver, speed, MTU, queues and how its frames are received. The tester takes no other mode than native.
fn port_words(port: &TestPort) -> String {
    let name = port.interface.clone();
    let look = move || {
        let base = format!("/sys/class/net/{name}");
        let driver = fs::read_link(format!("{base}/device/driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        let queues = fs::read_dir(format!("{base}/queues"))
            .map_or(0, |all| all.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("rx-")).count());
        let speed = number_of(&name, "speed").map_or_else(String::new, |s| format!(", {s} Mbit/s"));
        let mtu = number_of(&name, "mtu").unwrap_or_default();
        let driver = driver.unwrap_or_else(|| "virtual".into());
        let queues = if queues == 1 { "1 receive queue".to_owned() } else { format!("{queues} receive queues") };
        format!("{name}: {driver}{speed}, MTU {mtu}, {queues}, frames received by XDP in {} mode", XdpMode::Native)
    };
    port.run(look).unwrap_or_else(|e| format!("{}: {e}", port.interface))
}
