//! Floods of each class in a lab: seen, named, and ended by the rules that are made of them.

use std::{
    net::Ipv4Addr,
    thread,
    time::{Duration, Instant},
};

use bpf::{
    LivePace, LivePacket, LiveSender, XdpMode,
    filter::{Shield, ShieldConfig, ShieldLink, ShieldShared, Watch},
};
use model::shield_event::{AttackClass, Happened, Measure, ShieldEvent};
use rules::{
    Prefix, Rules,
    compile::{self, Counters, Now},
    detect::{DetectConfig, StepConfig},
};
use shield::detect::{self, Detection};
use testbed::End;

const TARGET: [u8; 4] = [198, 18, 0, 2];
/// How long anything may take before the test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A flooder and a target whose interface the shield is on.
struct Bed {
    // What is attached goes before the namespaces.
    link: ShieldLink,
    shared: ShieldShared,
    detection: Detection,
    counters: Counters,
    base: Rules,
    near: End,
    far: End,
    _bed: testbed::Bed,
}

impl Bed {
    fn new(tag: &str, steps: &[StepConfig]) -> Option<Self> {
        let (bed, [near, far]) = testbed::Bed::pair(tag)?;
        let mut config = DetectConfig { quiet_s: 0.5, ..DetectConfig::default() };
        config.threshold = [(Measure::Packets, 20_000.0)].into();
        for class in [
            AttackClass::FewSources,
            AttackClass::SynFlood,
            AttackClass::Reflection,
            AttackClass::Fragments,
            AttackClass::Unknown,
        ] {
            config.ladder.insert(class, steps.to_vec());
        }
        let protected = vec![Prefix { address: Ipv4Addr::from(TARGET).into(), len: 32 }];
        let base = Rules { protected: protected.clone(), ..Rules::default() };
        let detection = Detection::start(far.interface(), config, &protected, Watch::create(1).unwrap()).unwrap();
        let shared = ShieldShared::create().unwrap();
        let mut counters = Counters::new();
        let mut link = far.run(|| ShieldLink::take(far.interface(), XdpMode::Native)).unwrap();
        let shield = load(&base, &mut counters, &detection, &shared, &link);
        far.run(|| link.put(&shield)).unwrap();
        Some(Self { link, shared, detection, counters, base, near, far, _bed: bed })
    }

    /// Looks every 0.1 s, and does as the detection says, until `done`.
    fn watch(&mut self, done: impl Fn(&[ShieldEvent]) -> bool) -> Vec<ShieldEvent> {
        let start = Instant::now();
        let mut events = Vec::new();
        while !done(&events) {
            assert!(start.elapsed() < PATIENCE, "{events:#?}");
            thread::sleep(Duration::from_millis(100));
            let seen = self.detection.look(|| self.shared.counts(), &self.counters);
            assert!(seen.failures.is_empty(), "{:?}", seen.failures);
            if let Some(mitigations) = seen.rules {
                let took = Instant::now();
                let rules = detect::insert(&self.base, &mitigations);
                let shield = load(&rules, &mut self.counters, &self.detection, &self.shared, &self.link);
                self.link.put(&shield).unwrap();
                println!("{} ms to compile, load and replace", took.elapsed().as_millis());
            }
            events.extend(seen.events);
        }
        events
    }

    /// Floods with `frames`, over and over, while the detection watches; gives its events, and those from then to the end.
    fn flood(&mut self, frames: &[Vec<u8>]) -> Vec<ShieldEvent> {
        let header_len = frames[0].len().min(64);
        let cycle: Vec<LivePacket<'_>> =
            frames.iter().map(|f| LivePacket { headers: &f[..header_len], frame_len: f.len() }).collect();
        let pace =
            LivePace { pps: Some(100_000.0), count: None, duration: 2 * PATIENCE, nap: Some(Duration::from_millis(5)) };
        let load = || LiveSender::load(self.near.interface(), frames[0].clone(), &cycle, None, pace);
        let sender = self.near.run(load).unwrap();
        let began = Instant::now();
        let mut events = thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run());
            let events = self.watch(|events| mitigation(events).is_some());
            println!("{} ms from the first frame to a rule that acts", began.elapsed().as_millis());
            let before = self.shared.counts().totals.dropped;
            testbed::wait("it drops", || self.shared.counts().totals.dropped > before + 1000);
            sender.stop();
            sending.join().unwrap().unwrap();
            events
        });
        events.extend(self.watch(|events| events.iter().any(|e| matches!(e.what, Happened::Ended { .. }))));
        assert!(self.detection.detector().rules().is_empty(), "withdrawn");
        events
    }

    /// A frame of IPv4 to the target.
    fn frame(&self, source: u32, protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
        let mut frame = [self.far.link.mac.0, self.near.link.mac.0].concat();
        let len = (20 + transport.len()) as u16;
        let mut header = vec![8, 0, 0x45, 0];
        header.extend(len.to_be_bytes());
        header.extend([0, 0]);
        header.extend(fragment.to_be_bytes());
        header.extend([64, protocol, 0, 0]);
        header.extend(source.to_be_bytes());
        header.extend(TARGET);
        frame.extend(header);
        frame.extend(transport);
        frame.resize(frame.len().max(64), 0);
        frame
    }
}

fn load(
    rules: &Rules,
    counters: &mut Counters,
    detection: &Detection,
    shared: &ShieldShared,
    link: &ShieldLink,
) -> Shield {
    let tables = compile::tables(rules, counters, Now::read()).unwrap();
    let config =
        ShieldConfig { watch: Some(detection.watch().clone()), seats: vec![link.maps()], ..ShieldConfig::default() };
    Shield::load(&tables, &config, shared).unwrap()
}

fn mitigation(events: &[ShieldEvent]) -> Option<&ShieldEvent> {
    events.iter().find(|e| matches!(e.what, Happened::Mitigating { shadow: false, .. }))
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes(), 26u16.to_be_bytes(), [0, 0]].concat();
    header.resize(26, 0);
    header
}

fn tcp_syn(from: u16) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), 80u16.to_be_bytes()].concat();
    header.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
    header
}

/// An address that is as good as random.
fn spread(i: u32) -> u32 {
    0x0b00_0000 | (i.wrapping_mul(0x9e37_79b9) >> 8)
}

fn holds(tag: &str, class: AttackClass, step: StepConfig, frame: impl Fn(&Bed, u32) -> Vec<u8>) {
    let Some(mut bed) = Bed::new(tag, &[step]) else { return };
    let frames: Vec<Vec<u8>> = (0..4096).map(|i| frame(&bed, i)).collect();
    let events = bed.flood(&frames);
    assert_eq!(events[0].what.word(), "began");
    assert_eq!(events[0].class, class, "{events:#?}");
    assert_eq!(events[0].prefix, "198.18.0.2/32");
    let Happened::Began(picture) = &events[0].what else { panic!("{events:#?}") };
    assert!(picture.sources >= if class == AttackClass::FewSources { 1.0 } else { 500.0 }, "{picture:?}");
}

#[test]
fn a_few_sources() {
    let source = |bed: &Bed, i: u32| bed.frame(0x0b00_0001 + i % 3, 17, 0, &udp(1000 + i as u16, 9));
    holds("few", AttackClass::FewSources, StepConfig::DropSources {}, source);
}

#[test]
fn a_syn_flood() {
    let syn = |bed: &Bed, i: u32| bed.frame(spread(i), 6, 0, &tcp_syn(i as u16));
    holds("syn", AttackClass::SynFlood, StepConfig::LimitPerSource { pps: 1, burst: Some(1) }, syn);
}

#[test]
fn a_reflection() {
    let answer =
        |bed: &Bed, i: u32| bed.frame(spread(i), 17, 0, &udp(if i.is_multiple_of(2) { 53 } else { 123 }, i as u16));
    holds("refl", AttackClass::Reflection, StepConfig::DropPorts {}, answer);
}

#[test]
fn fragments() {
    let later = |bed: &Bed, i: u32| bed.frame(spread(i), 17, 0x00b9, &[0; 26]);
    holds("frag", AttackClass::Fragments, StepConfig::DropFragments {}, later);
}

#[test]
fn something_else() {
    let gre = |bed: &Bed, i: u32| bed.frame(spread(i), 47, 0, &[0; 26]);
    holds("other", AttackClass::Unknown, StepConfig::Limit { pps: 1000, burst: None }, gre);
}
