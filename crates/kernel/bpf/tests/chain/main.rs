//! Several programs on one interface, each in its place: filled, emptied and left while frames come.

mod frames;
mod owners;
mod put_back;
mod races;

use std::{
    env,
    net::UdpSocket,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use bpf::{
    Tap, TapPlace, TapReader, TapSettings, TapStamp, XdpError, XdpMode,
    filter::{Shield, ShieldConfig, ShieldLink, ShieldShared},
};
use model::verdict::Verdict;
use rules::tables::{Field, RuleAction};
use testbed::{Ends, filter::Tables};

/// Datagrams to the first port are dropped, to the second one passed by a rule, to all others by default.
const DROPPED: u16 = 7777;
const PASSED: u16 = 7778;
const OTHER: u16 = 7779;
/// The other process's part in a test.
const PART: &str = "EK_CHAIN_TEST_PART";

/// Times that places are filled and emptied, unless EK_CHAIN_TURNS sets it.
fn turns(usual: u64) -> u64 {
    env::var("EK_CHAIN_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(usual)
}

/// A shield in its place on ekB.
struct Filter {
    link: ShieldLink,
    shared: ShieldShared,
}

impl Filter {
    fn new() -> Self {
        let (mut link, shared) = (ShieldLink::take("ekB", XdpMode::Native).unwrap(), ShieldShared::create().unwrap());
        link.put(&program(&link, &shared)).unwrap();
        let names = link.rule_names().unwrap();
        names.set(0, "nothing-here");
        names.set(1, "welcome");
        Self { link, shared }
    }

    /// Packets that were dropped and passed by rule, and passed by default.
    fn counted(&self) -> [u64; 3] {
        let counts = self.shared.counts();
        [counts.rules[0].packets, counts.rules[1].packets, counts.totals.by_default]
    }
}

fn program(link: &ShieldLink, shared: &ShieldShared) -> Shield {
    let mut tables = Tables::new(2);
    tables.rule(0, RuleAction::Drop).when(Field::DestinationPort, &[DROPPED.into()]).set(|r| r.counter = 0);
    tables.rule(1, RuleAction::Pass).when(Field::DestinationPort, &[PASSED.into()]).set(|r| r.counter = 1);
    let config = ShieldConfig { slots: vec![link.maps()], ..ShieldConfig::default() };
    Shield::load(&tables.build(), &config, shared).unwrap()
}

fn tap(place: TapPlace) -> Result<(Tap, Vec<TapReader>), XdpError> {
    let settings = TapSettings {
        place,
        snaplen: 128,
        // A turn may take long beside other tests.
        ring_bytes: 16 << 20,
        consume: false,
        stamp: TapStamp::PerFrame,
        numa_node: None,
    };
    let mut tap = Tap::load("ekB", XdpMode::Native, settings, None)?;
    tap.attach()?;
    let readers = tap.take_readers();
    Ok((tap, readers))
}

/// The sender's number in each frame that the tap has seen, with its verdict.
fn read(readers: &mut [TapReader]) -> Vec<(u64, Option<Verdict>)> {
    let mut seen = Vec::new();
    for reader in readers {
        loop {
            let found = reader.read(usize::MAX, |frame| {
                assert_eq!(frame.lost_before, 0);
                let number = frame.data[42..50].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                seen.push((number, frame.verdict));
            });
            if found == 0 {
                break;
            }
        }
    }
    seen
}

fn send(port: u16, numbers: std::ops::Range<u64>) {
    let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
    for number in numbers {
        let mut payload = [0; 18];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&payload, ("198.18.0.2", port)).unwrap();
    }
}

/// Sends numbered datagrams to that port, in one go after the other, while `work` is done; gives how many.
fn beside_traffic(port: u16, work: impl FnOnce()) -> u64 {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let mut cpu = nix::sched::CpuSet::new();
            cpu.set(0).unwrap();
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpu).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let from = sent.load(Ordering::Relaxed);
                send(port, from..from + 50);
                sent.store(from + 50, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        // The sender ends also when the work fails.
        let _stop = Ends(&stop);
        work();
    });
    sent.into_inner()
}
