//! The tester of real ports: one sender for both directions, a receiver on each port.
//!
//! ```text
//! pace     what was ordered, as the sender takes it
//! sending  the sender's thread, and what is done meanwhile
//! drain    what comes after the end of sending, until the box is empty
//! judge    whether the trial may be believed
//! ```

mod drain;
mod judge;
mod pace;
mod sending;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    ops::Deref,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use bpf::{
    XdpMode, XmitDrops,
    bench_rx::{BenchReceiver, BenchRxConfig, BenchRxCounts, Echo},
    bench_tx::{BenchEntry, BenchPace, BenchRings, BenchSender, BenchTxCounts},
};
use lab::boxes::PortCounters;
use model::{
    bench::{Counts, Direction, Drop, FrameSpec, Observation, Pacing, Trial},
    run::Sharing,
};

use crate::{
    BenchError, Cores, Dut, Load, Meanwhile, Observer, Order, Stamping, TestPort, Tester,
    frames::{self, Traffic},
    histogram,
};

use rig::others::Tasks;

use drain::Drained;
use judge::TesterRecord;

/// In trials of throughput one unit in this many is stamped: a prime, so that no flow or size is left out for long.
pub const STAMPED_ONE_IN: u32 = 31;

/// Below this share of the sender's core a program disturbs nobody.
const OTHERS_MIN: f64 = 0.01;

/// Settings of all trials of a tester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TesterConfig {
    /// Different flows of each direction.
    pub flows: u32,
    /// True if units go both ways at once; otherwise from the first port only.
    pub both_ways: bool,
}

/// Sends on the ports of a box and counts what arrives there.
pub struct RealTester<'d, D = &'d Dut> {
    cpu: u32,
    rings: Option<BenchRings>,
    sharing: Sharing,
    traffic: Traffic,
    observer: Option<Box<dyn Observer + 'd>>,
    loaded: Option<Loaded>,
    receivers: Option<Receivers>,
    refused: [Option<XmitDrops>; 2],
    trials: u32,
    /// The tag of the trial before.
    tag: Option<u16>,
    /// The trial before was given up with units still on their way.
    full: bool,
    /// The trial before was void: who else has the core is worth a look.
    disturbed: bool,
    // What is attached goes before the box.
    dut: D,
}

/// A sender with its frames.
struct Loaded {
    frame: FrameSpec,
    sender: BenchSender,
    probe: BenchEntry,
    /// Flows of each direction, at least 1.
    flows: [u32; 2],
}

/// The receivers, by the direction that ends there, and how they were set.
struct Receivers {
    of: [BenchReceiver; 2],
    config: [BenchRxConfig; 2],
}

impl<'d, D: Deref<Target = Dut>> RealTester<'d, D> {
    /// Makes a tester for the ports of `dut`. Nothing is loaded before the first trial.
    ///
    /// # Errors
    /// A port is gone, or its refused frames cannot be counted.
    pub fn new(
        dut: D,
        cores: &Cores,
        config: TesterConfig,
        observer: Option<Box<dyn Observer + 'd>>,
    ) -> Result<Self, BenchError> {
        let [first, second] = dut.ports();
        let traffic = Traffic {
            targets: [first.target, second.target],
            flows: config.flows,
            both_ways: config.both_ways,
            mtu: dut.mtu()?,
        };
        dut.establish(&frames::flows_of(&traffic)?)?;
        let refused = [count_refused(first)?, count_refused(second)?];
        let (sharing, rings) = (cores.sharing(), dut.rings(cores));
        Ok(Self {
            dut,
            cpu: cores.sender,
            rings,
            sharing,
            traffic,
            observer,
            loaded: None,
            receivers: None,
            refused,
            trials: 0,
            tag: None,
            full: false,
            disturbed: false,
        })
    }

    /// Loads the frames of `order`, unless they are loaded.
    fn load(&mut self, frame: &FrameSpec, pace: &BenchPace) -> Result<(), BenchError> {
        if self.loaded.as_ref().is_some_and(|l| l.frame == *frame) {
            return Ok(());
        }
        // The table may be large: not two at a time.
        self.loaded = None;
        let entries = frames::lay_out(frame, &self.traffic)?;
        let probe = frames::probe(&self.traffic, Direction::Forward)?;
        let flows = [0, 1].map(|way| {
            entries.iter().filter(|e| e.direction == way).map(|e| e.flow.saturating_add(1)).max().unwrap_or(1)
        });
        // With room for a probe, whether this trial has one or not.
        let roomy = BenchPace { probe: Some(pace::probe(&probe, Duration::MAX, Duration::MAX)), ..pace.clone() };
        let mut sender = BenchSender::load_behind(self.rings, &entries, roomy)?;
        for (direction, port) in self.dut.ports().into_iter().enumerate() {
            port.run(|| sender.set_device(direction, &port.interface))??;
        }
        self.loaded = Some(Loaded { frame: frame.clone(), sender, probe, flows });
        Ok(())
    }

    /// Makes the receivers ready for another trial; attaches them if they must be set otherwise.
    fn receive(&mut self, order: &Order, flows: [u32; 2], tag: u16) -> Result<(), BenchError> {
        let config = Direction::ALL.map(|direction| {
            let port = self.dut.receiver(direction);
            BenchRxConfig {
                tag: tag | direction.index() as u16,
                before: self.tag,
                flows: flows[direction.index()],
                fragments: order.frame.frames_per_unit(),
                echo: (direction == Direction::Forward)
                    .then_some(Echo { source: port.mac, destination: port.target.mac }),
                silence: order.stamping == Stamping::Every,
                gap_times: matches!(order.load, Load::Steps(_)),
            }
        });
        self.tag = Some(tag);
        let untagged = |c: &BenchRxConfig| BenchRxConfig { tag: 0, before: None, ..*c };
        let same = |a: &BenchRxConfig, b: &BenchRxConfig| untagged(a) == untagged(b);
        if let Some(receivers) = &self.receivers
            && receivers.config.iter().zip(&config).all(|(a, b)| same(a, b))
        {
            for (receiver, config) in receivers.of.iter().zip(&config) {
                receiver.rearm(config.tag)?;
            }
            return Ok(());
        }
        self.receivers = None;
        let attach = |direction: Direction| -> Result<BenchReceiver, BenchError> {
            let port = self.dut.receiver(direction);
            let config = &config[direction.index()];
            Ok(port.run(|| BenchReceiver::attach(&port.interface, XdpMode::Native, config))??)
        };
        self.receivers = Some(Receivers { of: [attach(Direction::Forward)?, attach(Direction::Backward)?], config });
        Ok(())
    }

    /// After a trial that was given up with units still on their way: waits for them once more, so that they do not disturb this one. Should they
    /// never end, this trial counts them, and is void.
    fn wait_until_empty(&mut self, order: &Order, stop: &AtomicBool) -> Result<(), BenchError> {
        if let Some(receivers) = self.receivers.as_ref().filter(|_| self.full) {
            self.full = !drain::empty(&receivers.of, &order.drain, Instant::now(), stop)?.empty;
        }
        Ok(())
    }

    /// Frames that the threads of the receive rings have handed to the ports so far, or the port to itself; zeros without rings.
    fn taken_by_ports(&self) -> Result<[u64; 2], BenchError> {
        let mut taken = [0; 2];
        if self.rings.is_some() {
            for (taken, port) in taken.iter_mut().zip(self.dut.ports()) {
                let counters = port.run(|| PortCounters::read(&port.interface))??;
                *taken = counters.tx_packets + counters.tx_dropped;
            }
        }
        Ok(taken)
    }

    /// Frames that did not come out of the receive rings: they were full.
    fn lost_in_rings(
        &self,
        before: [u64; 2],
        sent: &BenchTxCounts,
        arrived: &[BenchRxCounts; 2],
    ) -> Result<Option<Drop>, BenchError> {
        let Some(rings) = self.rings else { return Ok(None) };
        let after = self.taken_by_ports()?;
        // Probes go forward; the far port sends them back itself.
        let given = [sent.frames[0] + sent.probes, sent.frames[1] + arrived[0].probes_echoed];
        let packets = (0..2).map(|way| given[way].saturating_sub(after[way] - before[way])).sum();
        let place = format!("receive ring: its {} frames are full", rings.frames);
        Ok((packets > 0).then_some(Drop { place, packets }))
    }

    /// Frames that the ports have refused so far, where that is the tester's fault.
    fn refused(&self) -> Result<[u64; 2], BenchError> {
        let mut refused = [0; 2];
        for (refused, counter) in refused.iter_mut().zip(&self.refused) {
            *refused = counter.as_ref().map_or(Ok(0), XmitDrops::refused)?;
        }
        Ok(refused)
    }
}

impl<D: Deref<Target = Dut>> Tester for RealTester<'_, D> {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        self.wait_until_empty(order, stop)?;
        let tag = draw_tag();
        let mut pace = pace::pace(order, tag, None)?;
        self.load(&order.frame, &pace)?;
        let Some(loaded) = &mut self.loaded else { return Err(BenchError::Panicked("sender")) };
        pace.probe = order.probes.map(|p| pace::probe(&loaded.probe, p.every, p.after));
        loaded.sender.rearm(pace)?;
        let flows = loaded.flows;
        self.receive(order, flows, tag)?;
        let (Some(loaded), Some(receivers)) = (&self.loaded, &self.receivers) else {
            return Err(BenchError::Panicked("receiver"));
        };
        let refused_before = self.refused()?;
        let given_before = self.taken_by_ports()?;
        let look = self.disturbed.then(Tasks::read);
        let watching = order.observe.then_some(()).and(self.observer.as_mut());
        let mut ended = None;
        if let Some(observer) = watching {
            observer.begin()?;
            ended = Some(observer);
        }
        let sent = sending::send(&loaded.sender, self.cpu, also, stop);
        let arrived = sent.and_then(|(sent, ended)| {
            let seconds = sent.elapsed_ns as f64 / 1e9;
            Ok((sent, drain::wait(&receivers.of, order, (ended, seconds), stop)?))
        });
        // Whatever happened, what was begun is ended.
        let observed = ended.map_or(Ok(Observation::default()), |observer| observer.end());
        let (sent, drained) = arrived?;
        self.full = drained.after.undrained;
        let arrived = &drained.counts;
        let mut observed = observed?.of_sending(sent.elapsed_ns as f64 / 1e9);
        if let Some((port, _)) =
            self.dut.ports().into_iter().rev().zip(&receivers.of).find(|(_, r)| r.link().is_some_and(|l| !l.is_alive()))
        {
            return Err(BenchError::Machine(format!("the port {} is gone", port.interface)));
        }
        if let Some(what) = receivers.of.iter().find_map(|receiver| receiver.link()?.put_back()) {
            return Err(BenchError::Machine(format!("the trial counts for nothing: {what}")));
        }
        if order.observe {
            observed.drops.extend(self.lost_in_rings(given_before, &sent, arrived)?);
            observed.drops.sort_by_key(|d| std::cmp::Reverse(d.packets));
        }
        let refused_after = self.refused()?;
        let refused = [0, 1].map(|way| refused_after[way] - refused_before[way]);
        self.trials += 1;
        let mut trial = to_trial(order, &sent, &drained, receivers)?;
        trial.number = self.trials;
        trial.observed = observed;
        // As fast as it goes is faster than a port can be: what it refused was not sent.
        let (frames, forgiven) = (order.frame.frames_per_unit(), matches!(order.load, Load::Max | Load::Burst(_)));
        if forgiven && frames == 1 {
            for (counts, refused) in trial.counts.iter_mut().zip(refused) {
                counts.sent = counts.sent.saturating_sub(refused);
            }
            trial.offered_pps = per_second(trial.total().sent, trial.seconds);
        }
        let kept = TesterRecord {
            sent: &sent,
            refused: if forgiven && frames == 1 { 0 } else { refused.iter().sum() },
            counts: trial.total(),
            leftover: trial.after.leftover,
            sharing: self.sharing,
            others: &look.map_or_else(String::new, |look| look.since(&[self.cpu], OTHERS_MIN)),
        };
        trial.invalid = judge::judge(&order.load, &trial.pacing, &kept);
        self.disturbed = trial.invalid.is_some();
        Ok(trial)
    }
}

/// Counts what `port` refuses to send, unless it is the other end that refuses.
fn count_refused(port: &TestPort) -> Result<Option<XmitDrops>, BenchError> {
    if port.refused_by_peer {
        return Ok(None);
    }
    Ok(Some(port.run(|| XmitDrops::attach(&port.interface))??))
}

/// A tag that frames of earlier trials do not have, or only by chance.
fn draw_tag() -> u16 {
    (RandomState::new().build_hasher().finish() as u16) & !1
}

fn per_second(units: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { units as f64 / seconds } else { 0.0 }
}

/// Seconds that the sender kept its pace: without the time that it gave up.
fn active_s(order: &Order, sent: &BenchTxCounts) -> f64 {
    let given_up_ns = if matches!(order.load, Load::Pps(_) | Load::Steps(_)) { sent.given_up_ns } else { 0 };
    sent.elapsed_ns.saturating_sub(given_up_ns).max(1) as f64 / 1e9
}

/// The trial in the words of a run, not yet judged.
fn to_trial(
    order: &Order,
    sent: &BenchTxCounts,
    drained: &Drained,
    receivers: &Receivers,
) -> Result<Trial, BenchError> {
    let arrived = &drained.counts;
    let [forward, backward] = &receivers.of;
    let seconds = sent.elapsed_ns as f64 / 1e9;
    let active_s = active_s(order, sent);
    let counts = [0, 1].map(|way| {
        let a = &arrived[way];
        Counts {
            sent: sent.units[way],
            received: a.units,
            duplicated: a.duplicated,
            reordered: a.reordered,
            stale: a.stale,
            incomplete: a.incomplete,
            // They arrive where they were sent from.
            looped: arrived[1 - way].looped,
            stray: a.stray,
            late: drained.late[way],
        }
    });
    let total = counts[0].plus(&counts[1]);
    let one_way = |receiver: &BenchReceiver| -> Result<_, BenchError> {
        Ok(histogram::delays(&receiver.delays()?, receiver.jitter_ns()?))
    };
    let ipdv = |receiver: &BenchReceiver| -> Result<_, BenchError> { Ok(histogram::delays(&receiver.ipdv()?, None)) };
    // Probes go forward, and come back to where the other direction ends.
    let round_trips_ns = backward.round_trips();
    let changed = matches!(order.load, Load::Steps(_)).then_some(sent.switched_ns);
    Ok(Trial {
        number: 0,
        purpose: order.purpose.clone(),
        frame: order.frame.clone(),
        intended_pps: pace::wanted(&order.load),
        offered_pps: per_second(total.sent, active_s),
        received_pps: order.drain.rate(&total, active_s),
        seconds,
        counts,
        one_way: [one_way(forward)?, one_way(backward)?],
        ipdv: [ipdv(forward)?, ipdv(backward)?],
        round_trip: histogram::of_values(&round_trips_ns),
        probes: (sent.probes, arrived[1].probes_returned),
        round_trips_ns,
        max_gap_ns: arrived.each_ref().map(|a| a.longest_silence_ns),
        last_loss_after_ns: arrived.each_ref().map(|a| a.last_gap_ns?.checked_sub(changed?)),
        pacing: Pacing {
            error: pace::expected(&order.load, seconds)
                .map(|units| sent.units.iter().sum::<u64>() as f64 / (units * active_s / seconds) - 1.0),
            stalled: if seconds > 0.0 { 1.0 - active_s / seconds } else { 0.0 },
            max_lag_ns: sent.latest_ns,
            skipped_ns: sent.given_up_ns,
            idle_share: if sent.turns == 0 { 0.0 } else { sent.fillers as f64 / sent.turns as f64 },
        },
        after: drained.after,
        observed: Observation::default(),
        invalid: None,
    })
}
