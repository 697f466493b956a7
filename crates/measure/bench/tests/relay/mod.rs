//! Boxes of known answer: what the bench has to find out about each is known beforehand, and holds on the real data path.
//!
//! One is in user space: two taps, and a thread that carries frames from each to the other, with manners of its own.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bench::{Dut, TestPort};
use lab::{
    BoxKind, BoxSpec, Lab, Mac, Namespace, TestBox,
    boxes::{Family, Napi, Target},
};
use model::run::Sharing;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sys::tun::Tap;
use testbed::Space;

use crate::cores::cores;

/// Frames that are read from one tap before the other has its turn.
const FRAMES_PER_TURN_MAX: usize = 32;
/// Taps made so far: their names must differ.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// Over which time the offered rate is taken.
const WINDOW_TIME: Duration = Duration::from_millis(10);

/// The faults of a relay.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Each is held so long.
    pub(crate) delay: Duration,
    /// Of so many of a direction, the last is overtaken by the one behind it.
    pub(crate) reorder_one_in: Option<u64>,
    /// Of so many of a direction, the last is sent twice.
    pub(crate) duplicate_one_in: Option<u64>,
    /// From so many frames per second on, both directions together, every other frame is lost, until so long after the last such moment.
    pub(crate) choke: Option<(u64, Duration)>,
    /// Each direction lets no more frames per second out, and holds all the others as long as it takes.
    pub(crate) pace: Option<u32>,
}

/// A relay between two ports. It goes away when it is dropped.
pub(crate) struct RelayBox {
    /// The box, to be tested.
    pub(crate) dut: Dut,
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _namespaces: [Namespace; 2],
}

#[derive(Default)]
pub(crate) struct Shared {
    stop: AtomicBool,
    dead: AtomicBool,
    /// Frames that came out so far, both directions together, those sent twice twice.
    pub(crate) carried: AtomicU64,
}

impl RelayBox {
    /// Starts a relay on the box's core.
    pub(crate) fn start(lab: &Lab, manners: Faults) -> Self {
        let labels = ["y", "z"].map(|side| format!("{side}{}", STARTED.fetch_add(1, Ordering::Relaxed) % 1000));
        let namespaces = [0, 1].map(|i| lab.namespace(&labels[i]).unwrap());
        let names = [0, 1].map(|i| lab.interface(&labels[i]));
        let taps: [Tap; 2] = [0, 1].map(|i| namespaces[i].run(|| tap(&names[i])).unwrap());
        let macs = [0, 1].map(|i| mac(&namespaces[i], &names[i]));
        let family = Family::V4;
        let hosts = [family.hosts_of_sender(), family.hosts_of_receiver()];
        let ports = [0, 1].map(|i| {
            let (mac, source_mac) = (macs[1 - i], macs[i]);
            let target = Target { mac, source_mac, sources: hosts[i], destinations: hosts[1 - i] };
            TestPort::within(namespaces[i].handle(), &names[i], macs[i], target)
        });
        let shared = Arc::new(Shared::default());
        let cpu = cores().of_box[0];
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                sys::affinity::pin_current_thread(cpu).unwrap();
                sys::affinity::set_nice_of_current_thread(-20).unwrap();
                carry(&taps, manners, &shared);
            })
        };
        Self { dut: Dut::from_ports(ports), shared, thread: Some(thread), _namespaces: namespaces }
    }

    /// Loses every frame for so long, as a box that starts anew.
    pub(crate) fn die_for(&self, time: Duration) {
        self.shared.dead.store(true, Ordering::Relaxed);
        thread::sleep(time);
        self.shared.dead.store(false, Ordering::Relaxed);
    }
}

impl Drop for RelayBox {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A tap in the namespace of the calling thread, up and silent, that is read without waiting.
fn tap(name: &str) -> Tap {
    let tap = Tap::create(name).unwrap();
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
    lab::set_link(name, true).unwrap();
    fcntl(tap.file(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    tap
}

fn mac(namespace: &Namespace, name: &str) -> Mac {
    let path = format!("/sys/class/net/{name}/address");
    namespace.run(|| std::fs::read_to_string(path)).unwrap().unwrap().trim().parse().unwrap()
}

/// One direction.
#[derive(Default)]
struct Direction {
    came: u64,
    held: VecDeque<(Instant, Vec<u8>)>,
    /// A frame that waits to be overtaken.
    overtaken: Option<Vec<u8>>,
    /// The due time of the last frame that is held.
    last_due: Option<Instant>,
}

impl Direction {
    /// Takes a frame in; it is due at `due`.
    fn take(&mut self, frame: &[u8], due: Instant, manners: &Faults) {
        self.came += 1;
        let due = match (manners.pace, self.last_due) {
            (Some(pace), Some(last)) => due.max(last + Duration::from_secs(1) / pace),
            _ => due,
        };
        self.last_due = Some(due);
        let is_one_in = |n: Option<u64>| n.is_some_and(|n| self.came.is_multiple_of(n));
        let (reorder, duplicate) = (is_one_in(manners.reorder_one_in), is_one_in(manners.duplicate_one_in));
        if reorder && self.overtaken.is_none() {
            self.overtaken = Some(frame.to_vec());
            return;
        }
        self.held.push_back((due, frame.to_vec()));
        if duplicate {
            self.held.push_back((due, frame.to_vec()));
        }
        if let Some(late) = self.overtaken.take() {
            self.held.push_back((due, late));
        }
    }
}

/// Carries frames until told to stop. It never waits: a wake-up would take longer than some of the delays to be measured are exact.
fn carry(taps: &[Tap; 2], manners: Faults, shared: &Shared) {
    let mut directions = [Direction::default(), Direction::default()];
    let mut buffer = [0; 2048];
    let (mut window, mut in_window, mut choked, mut choked_frames) = (Instant::now(), 0, None, 0u64);
    while !shared.stop.load(Ordering::Relaxed) {
        let mut idle = true;
        for (from, direction) in directions.iter_mut().enumerate() {
            for _ in 0..FRAMES_PER_TURN_MAX {
                let read = match (&mut taps[from].file()).read(&mut buffer) {
                    Ok(read) => read,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => panic!("reading a tap: {e}"),
                };
                idle = false;
                let now = Instant::now();
                if now - window > WINDOW_TIME {
                    (window, in_window) = (now, 0);
                }
                in_window += 1;
                if let Some((pps, hold)) = manners.choke {
                    if f64::from(in_window) > pps as f64 * WINDOW_TIME.as_secs_f64() {
                        choked = Some(now + hold);
                    }
                    if choked.is_some_and(|until| now < until) {
                        choked_frames += 1;
                        if choked_frames.is_multiple_of(2) {
                            continue;
                        }
                    }
                }
                if !shared.dead.load(Ordering::Relaxed) {
                    direction.take(&buffer[..read], now + manners.delay, &manners);
                }
            }
            while direction.held.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                let Some((_, frame)) = direction.held.pop_front() else { break };
                idle = false;
                // A port that is down takes none: the frame is lost, as on a wire.
                if (&mut taps[1 - from].file()).write(&frame).is_ok() {
                    shared.carried.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if idle {
            thread::yield_now();
        }
    }
}

/// A router that has no rules yet.
fn router(lab: &Lab, family: Family) -> TestBox {
    let cores = cores();
    let napi = match cores.sharing() {
        Sharing::Apart => Napi::Threads(cores.of_box),
        Sharing::Inline => Napi::Inline,
    };
    TestBox::build(lab, &BoxSpec { family, napi, ..BoxSpec::new(BoxKind::Router) }).unwrap()
}

/// Sends `pps` packets of `frame_len` bytes (in memory, without FCS) per second out of its second port, and keeps `packets` more waiting.
/// Frames of the way back are not held up.
///
/// A burst of n units that comes much faster loses nothing while n is at most `packets`, what leaves meanwhile, and one or two that the
/// bucket lets go at once.
pub(crate) fn token_bucket(lab: &Lab, family: Family, pps: u64, frame_len: u64, packets: u64) -> Dut {
    let made = router(lab, family);
    let exit = made.inside().unwrap().exit.as_ref().unwrap().name.clone();
    let (rate, limit) = (format!("{}bit", pps * frame_len * 8), format!("{}", packets * frame_len));
    let qdisc = format!("tc qdisc add dev {exit} root tbf rate {rate} burst {} limit {limit}", 2 * frame_len);
    Space::of(&made.inside().unwrap().namespace).output(&qdisc);
    Dut::from_box(made).unwrap()
}
