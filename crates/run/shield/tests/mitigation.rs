//! A shield with many prefixes under a flood: how soon a mitigation acts, and that nothing gets through while rules are reloaded.

use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpf::{LivePace, LivePacket, LiveSender, XdpMode, filter::ShieldShared};
use model::{
    shield::{Fail, Totals},
    shield_event::Happened,
};
use rules::requester::Requester;
use shield::run::{Control, Paths, Settings, Source, Xdp, xdp};
use testbed::{Wire, wait, wait_for};

const TARGET: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Longest time in which packets are sent.
const SENDING_TIMEOUT: Duration = Duration::from_secs(20);

/// Rules with a set of so many prefixes of 10.0.0.0/8 and behind it, which are dropped.
fn rules(wire: &Wire, prefixes: u32, more: &str) {
    let mut set = String::new();
    for n in 0..prefixes {
        // Every second /29: they do not merge.
        let _ = writeln!(set, "{}/29", Ipv4Addr::from(0x0a00_0000 + n * 16));
    }
    wire.bed.file("bad.txt", set);
    let text = format!(
        "protect = [\"{TARGET}/32\"]\n{more}\n[sets.bad]\nfile = \"bad.txt\"\nprefixes = [\"192.0.2.0/24\"]\n\n\
         [[rule]]\nname = \"bad\"\naction = \"drop\"\nsource = [\"@bad\"]\n\n\
         [[rule]]\nname = \"good\"\naction = \"pass\"\nsource = \"201.0.0.1\"\n"
    );
    wire.bed.file("rules.toml", text);
}

/// Starts the shield; to be called in the target's namespace.
fn start(wire: &Wire) -> Tended {
    start_after(wire, || ())
}

/// Likewise, with something that happens when the rules have been read.
fn start_after(wire: &Wire, happens: impl FnOnce()) -> Tended {
    // The namespace has a /sys of its own, and so has this thread.
    let none = None::<&str>;
    nix::mount::mount(none, "/sys/fs/bpf", Some("bpf"), nix::mount::MsFlags::empty(), none).unwrap();
    let settings = Settings {
        interface: wire.receiver.interface().to_owned(),
        between: None,
        mode: XdpMode::Native,
        source: Source { file: Some(wire.bed.path("rules.toml")), ..Source::default() },
        fail: Fail::Open,
        fail_after: Duration::from_secs(5),
        paths: Paths::of(wire.receiver.interface()),
        sessions: Vec::new(),
    };
    let (paths, file) = (settings.paths.clone(), settings.source.read().unwrap());
    happens();
    Tended { guard: Some(xdp::start(&settings, &file).unwrap()), paths }
}

/// And waits until a program waits.
fn start_prepared(wire: &Wire) -> Tended {
    let mut tended = start(wire);
    wait("a program waits", || {
        tended.guard().look().unwrap();
        tended.guard().is_prepared()
    });
    tended
}

fn flood(wire: &Wire, sources: &[u32], from_port: u16, pps: f64, count: Option<u64>) -> LiveSender {
    let frames: Vec<Vec<u8>> = sources.iter().map(|&source| frame(wire, source, from_port)).collect();
    let cycle: Vec<LivePacket<'_>> =
        frames.iter().map(|frame| LivePacket { headers: frame, frame_len: frame.len() }).collect();
    let pace = LivePace { pps: Some(pps), count, duration: SENDING_TIMEOUT, nap: Some(Duration::from_millis(2)) };
    let load = || LiveSender::load(wire.sender.interface(), frames[0].clone(), &cycle, None, pace);
    wire.sender.run(load).unwrap()
}

/// UDP to the target.
fn frame(wire: &Wire, source: u32, from_port: u16) -> Vec<u8> {
    let mut frame = [wire.receiver.link.mac.0, wire.sender.link.mac.0].concat();
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend(TARGET.octets());
    frame.extend([from_port.to_be_bytes(), 9u16.to_be_bytes(), 26u16.to_be_bytes(), [0, 0]].concat());
    frame.resize(64, 0);
    frame
}

/// A shield that goes when the test does, whatever becomes of it.
struct Tended {
    guard: Option<Control<Xdp>>,
    paths: Paths,
}

impl Tended {
    fn guard(&mut self) -> &mut Control<Xdp> {
        self.guard.as_mut().unwrap()
    }
}

impl Drop for Tended {
    fn drop(&mut self) {
        drop(self.guard.take());
        let _ = self.paths.remove();
    }
}

/// A program that waits takes the rules: from the first packet to the first that is dropped.
fn mitigates(tag: &str, prefixes: u32, ladder: &str, sources: &[u32], from_port: u16) {
    let Some(wire) = Wire::new(tag) else { return };
    rules(&wire, prefixes, &format!("[detection]\nquiet-s = 0.5\nthreshold = {{ packets = 20000 }}\n{ladder}"));
    let sender = flood(&wire, sources, from_port, 100_000.0, None);
    let work = || {
        let mut tended = start_prepared(&wire);
        let over = AtomicBool::new(false);
        let (shared, guard) = (ShieldShared::open(&Paths::of(wire.receiver.interface()).pins).unwrap(), tended.guard());
        let first = guard.status().program_id;
        let passed = || {
            let totals = shared.counts().totals;
            (totals.passed, totals.dropped)
        };
        thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run());
            let clock = scope.spawn(|| {
                let before = passed().0;
                let until = |done: &dyn Fn() -> bool| {
                    while !done() && !over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_micros(500));
                    }
                    Instant::now()
                };
                let began = until(&|| passed().0 > before + 50);
                (began, until(&|| passed().1 > 0))
            });
            let every = guard.look_every().unwrap();
            let mut reported = Instant::now();
            let events = wait_for("an attack", || {
                thread::sleep(every);
                reported = Instant::now();
                let seen = guard.look().unwrap();
                assert!(seen.failures.is_empty(), "{:?}", seen.failures);
                (!seen.events.is_empty()).then_some(seen.events)
            });
            let held = Instant::now();
            assert!(events.iter().any(|e| matches!(e.what, Happened::Mitigating { shadow: false, .. })), "{events:#?}");
            let filled = guard.status().program_id;
            assert_ne!(filled, first);
            wait("the program that was made for these rules follows", || {
                thread::sleep(every);
                guard.look().unwrap();
                guard.status().program_id != filled
            });
            assert!(guard.is_prepared(), "the next program waits");
            let before = passed();
            wait("the flood is dropped still", || passed().1 >= before.1 + 1000);
            assert!(passed().0 <= before.0 + 100, "{before:?}, then {:?}", passed());
            over.store(true, Ordering::Relaxed);
            sender.stop();
            sending.join().unwrap().unwrap();
            let (began, acts) = clock.join().unwrap();
            println!(
                "{prefixes} prefixes: first packet to look {:.0} ms, look to rules {:.0} ms, first packet to first drop {:.0} ms",
                (reported - began).as_secs_f64() * 1e3,
                (held - reported).as_secs_f64() * 1e3,
                (acts - began).as_secs_f64() * 1e3,
            );
        });
        drop(tended);
    };
    wire.receiver.run(work);
}

/// Prefixes beside which mitigations are made; an unoptimised build is slow with a million.
fn many() -> u32 {
    let given = std::env::var("EK_PREFIXES").ok().map(|text| text.parse().expect("EK_PREFIXES is a number"));
    given.unwrap_or(50_000)
}

/// Sources all over.
fn spread() -> Vec<u32> {
    (0..4096u32).map(|i| 0xc900_0000 | (i.wrapping_mul(0x9e37_79b9) >> 8)).collect()
}

#[test]
fn a_reflection_is_dropped_at_once() {
    mitigates("mitr", 0, "", &spread(), 53);
}

#[test]
fn a_reflection_is_dropped_at_once_beside_many_prefixes() {
    mitigates("mitm", many(), "", &spread(), 53);
}

#[test]
fn heavy_sources_are_dropped_at_once_beside_many_prefixes() {
    let ladder = "[detection.ladder]\nfew-sources = [{ do = \"drop-sources\" }]\n";
    mitigates("mits", many(), ladder, &[0xc901_0001, 0xc902_0002, 0xc903_0003], 5000);
}

/// No look of two takes as long as a program takes to load; what held before holds again.
#[test]
fn one_attack_after_the_other_is_met_at_once() {
    let Some(wire) = Wire::new("mitn") else { return };
    rules(&wire, 0, "[detection]\nquiet-s = 0.3\nthreshold = { packets = 20000 }\nbaseline = { learn = false }\n");
    let senders: Vec<LiveSender> = (0..2).map(|_| flood(&wire, &spread(), 53, 60_000.0, None)).collect();
    let work = || {
        let mut tended = start_prepared(&wire);
        let guard = tended.guard();
        let began = Instant::now();
        guard.reload(&Requester::default()).unwrap();
        let load = began.elapsed();
        let (calm, every) = (guard.status().program_id, guard.look_every().unwrap());
        wait("a program waits again", || {
            guard.look().unwrap();
            guard.is_prepared()
        });
        // And a second one, for the second attack.
        let second = Instant::now();
        while second.elapsed() < 3 * load {
            thread::sleep(every);
            guard.look().unwrap();
        }
        let mut longest = Duration::ZERO;
        for sender in &senders {
            let mut until = |guard: &mut Control<Xdp>, what: &str, is: &dyn Fn(&Happened) -> bool| {
                wait(what, || {
                    thread::sleep(every);
                    let began = Instant::now();
                    let seen = guard.look().unwrap();
                    longest = longest.max(began.elapsed());
                    seen.events.iter().any(|event| is(&event.what))
                });
            };
            thread::scope(|scope| {
                let sending = scope.spawn(|| sender.run());
                until(guard, "an attack", &|what| matches!(what, Happened::Mitigating { .. }));
                assert_ne!(guard.status().program_id, calm);
                sender.stop();
                sending.join().unwrap().unwrap();
            });
            until(guard, "its end", &|what| matches!(what, Happened::Ended { .. }));
            assert_eq!(guard.status().program_id, calm, "the program of before the attack");
        }
        println!("a program loads in {load:.0?}; the longest look took {longest:.0?}");
        let notes = guard.take_notes();
        assert!(longest < load / 2, "{longest:?} of {load:?}: {notes:?}");
        assert!(!notes.iter().any(|note| note.contains("to take effect")), "{notes:?}");
        drop(tended);
    };
    wire.receiver.run(work);
}

#[test]
fn a_million_prefixes_are_reloaded_under_a_flood() {
    let Some(wire) = Wire::new("mitl") else { return };
    rules(&wire, 1_000_000, "[detection]\nbaseline = { learn = false }\n");
    const EACH_COUNT: u64 = 60_000;
    // Of the last prefix of the set, and of none.
    let (bad, good) = (0x0a00_0000 + 999_999 * 16 + 3, 0xc900_0001);
    let sender = flood(&wire, &[bad, good], 5000, 40_000.0, Some(2 * EACH_COUNT));
    let work = || {
        let mut tended = start(&wire);
        let shared = ShieldShared::open(&Paths::of(wire.receiver.interface()).pins).unwrap();
        let guard = tended.guard();
        let count = |guard: &Control<Xdp>| -> ([u64; 2], Totals, u64) {
            let counts = shared.counts();
            let of = |name: &str| guard.memory().counters.count(name, &counts.rules).unwrap().packets;
            (["bad", "good"].map(of), counts.totals, wire.receiver.counter("IpInReceives"))
        };
        let before = count(guard);
        let mut programs = vec![guard.status().program_id];
        thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run());
            while !sending.is_finished() {
                // The last prefix stays, others go: the table is another one each time.
                rules_without(&wire, programs.len());
                let under_way = !sender.counts().done;
                guard.reload(&Requester::default()).unwrap();
                if under_way {
                    programs.push(guard.status().program_id);
                }
            }
            sending.join().unwrap().unwrap();
        });
        thread::sleep(Duration::from_millis(100));
        let (after, sent) = (count(guard), sender.counts().sent);
        println!("{} reloads under way", programs.len() - 1);
        assert!(programs.len() > 1 && programs.windows(2).all(|two| two[0] != two[1]));
        let [bad, good] = [0, 1].map(|rule| after.0[rule] - before.0[rule]);
        // The pair of interfaces has a short queue, and the sender is held up at times: what is lost there nobody sees.
        assert!(
            sent == 2 * EACH_COUNT && bad <= EACH_COUNT && good <= EACH_COUNT && bad + good > EACH_COUNT,
            "{bad}, {good} of {sent}"
        );
        let (dropped, passed) = (after.1.dropped - before.1.dropped, after.1.passed - before.1.passed);
        assert_eq!(dropped, bad, "what is dropped, the rule has dropped");
        // The namespace has a few words of its own to say (neighbour discovery).
        let (others, not_ip) = (after.1.by_default - before.1.by_default, after.1.not_ip - before.1.not_ip);
        assert_eq!(passed, good + others + not_ip, "what passed, the rule has let pass");
        assert!(others < 100, "{others} that no rule was there for");
        // Had there been a moment without a program, more would have come to the stack than has passed.
        assert_eq!(after.2 - before.2, good, "IPv4 packets that the stack has received");
        drop(tended);
    };
    wire.receiver.run(work);
}

#[test]
fn rules_that_change_while_the_shield_starts_hold_as_they_were_read() {
    let Some(wire) = Wire::new("mitc") else { return };
    rules(&wire, 1, "");
    let path = wire.bed.path("rules.toml");
    let work = || {
        let mut tended = start_after(&wire, || fs::write(&path, "default = \"drop\"\n").unwrap());
        let names =
            |guard: &Control<Xdp>| guard.memory().rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
        let held = names(tended.guard());
        assert!(["bad", "good"].iter().all(|name| held.iter().any(|held| held == name)), "{held:?}");
        assert_eq!(tended.guard().memory().default, "pass");
        tended.guard().reload(&Requester::default()).unwrap();
        assert_eq!(tended.guard().memory().default, "drop", "a reload reads them again");
        assert!(!names(tended.guard()).iter().any(|name| name == "bad"));
        drop(tended);
    };
    wire.receiver.run(work);
}

/// The same set without its n-th line.
fn rules_without(wire: &Wire, n: usize) {
    let path = wire.bed.path("bad.txt");
    let text = fs::read_to_string(&path).unwrap();
    let at = text.match_indices('\n').nth(n).map_or(0, |(at, _)| at + 1);
    let end = at + text[at..].find('\n').map_or(0, |end| end + 1);
    fs::write(&path, [&text[..at], &text[end..]].concat()).unwrap();
}
