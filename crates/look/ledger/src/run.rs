//! Reads the live machine again and again and makes a report of what happened in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

use bpf::{
    RingSocket, RingSockets, RouteLook,
    drop_reasons::{DropReasons, ReasonSource},
    drops::{DropError, DropOptions, DropRead, DropTrace},
};
use host::{
    Root,
    interface::{Link, NoInterface},
    stack::{StackCounters, StackReader},
    symbols::KernelSymbols,
};
use model::{
    route::RouteTotals,
    stations::{LedgerReport, TraceShown},
};

use crate::{
    convert::{self, Machine},
    filter::Filter,
    input::{Interval, Netfilter, Routed, Trace},
    others::Others,
    trace::{self, Names},
    verdict::{Head, report},
};

/// Readings may shift against each other by so much at least (the time between two netlink dumps).
const SKEW_MIN: Duration = Duration::from_micros(200);

/// Details are kept of so many flows at once: 3 MB.
const FLOWS_MAX: u32 = 8_192;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error("interface {0} was removed: the ledger ends")]
    Gone(String),
    #[error("cannot read the counters of the network stack: {0}; the ledger needs a mounted /proc and netlink")]
    Counters(String),
    #[error(transparent)]
    Trace(#[from] DropError),
}

model::classified!(LedgerError: Lacking; within: Trace);

/// Options of a ledger.
#[derive(Debug, Default)]
pub struct Options {
    /// The interfaces to show one by one; empty: all.
    pub interfaces: Vec<String>,
    /// Trace the kernel's drop reasons.
    pub trace: bool,
    /// Tell whose packets were dropped, with one of them and the kernel's way to the drop.
    pub details: bool,
    /// Filter of the packets that are counted; none: all.
    pub filter: Option<Filter>,
}

/// Everything read at one moment.
struct Reading {
    at: Instant,
    elapsed: Duration,
    stack: StackCounters,
    machine: Machine,
    drops: Option<DropRead>,
    others: Option<BTreeMap<u16, u64>>,
    rings: Option<Vec<RingSocket>>,
    /// Counters of the fast path, by interface's index.
    routed: BTreeMap<u32, FastPath>,
}

/// The fast path of one port at one moment.
struct FastPath {
    id: u32,
    queues: Option<u32>,
    done: Routed,
}

/// Keeps the books of the network namespace in which it was opened. The same thread must read.
pub struct Ledger {
    root: Root,
    reader: StackReader,
    trace: Option<DropTrace>,
    names: Names,
    others: Option<Others>,
    rings: Option<RingSockets>,
    filter: Option<Filter>,
    /// Head of all reports: machine and namespace.
    head: Head,
    /// The interfaces that were asked for: their index, and their name then.
    wanted: BTreeMap<u32, String>,
    /// Unread sources, with the reasons.
    lacking: Vec<String>,
    last: Reading,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("netns", &self.head.netns).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Opens every source and takes the first reading. A source that this machine, kernel or privilege lacks is named in the
    /// notes of every report; the rest works.
    ///
    /// # Errors
    /// When an interface that was asked for does not exist, or the counters of the protocols cannot be read.
    pub fn open(options: Options) -> Result<Self, LedgerError> {
        let root = Root::live();
        let mut lacking = Vec::new();
        let trace = if options.trace { open_trace(options.details, &mut lacking) } else { None };
        let reasons = DropReasons::load();
        let mut symbols = None;
        if trace.is_some() {
            if let ReasonSource::Nowhere(why) = reasons.source() {
                lacking.push(format!("drop reasons are numbers: {why}"));
            }
            symbols = KernelSymbols::load(&root).map_err(|e| lacking.push(e.to_string())).ok();
        }
        let others = Others::open(&root)
            .map_err(|why| {
                lacking.push(format!("ARP and other protocols cannot be counted (they stay unexplained): {why}"));
            })
            .ok();
        let rings = RingSockets::open().map_err(|e| lacking.push(e.to_string())).ok();
        let head = Head {
            hostname: root.read_trimmed("proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: root.read_trimmed("proc/sys/kernel/osrelease").unwrap_or_default(),
            netns: host::namespace::own().map_or(0, |netns| netns as u32),
            ..Head::default()
        };
        let mut ledger = Self {
            reader: StackReader::open(),
            root,
            trace,
            names: Names { reasons, symbols },
            others,
            rings,
            filter: options.filter,
            head,
            wanted: BTreeMap::new(),
            lacking,
            last: Reading::nothing(),
        };
        ledger.last = ledger.read()?;
        for name in options.interfaces {
            let links = &ledger.last.stack.links;
            let Some((&index, link)) = links.iter().find(|(_, l)| l.name == name) else {
                return Err(NoInterface::among(&name, links.values().map(|l| l.name.as_str())).into());
            };
            ledger.wanted.insert(index, link.name.clone());
        }
        // What opening took is not to be part of the first interval.
        ledger.last = ledger.read()?;
        Ok(ledger)
    }

    /// Closes the books: the report of what happened since the last call, or since it was opened.
    ///
    /// # Errors
    /// When all interfaces that were asked for have gone away, or the counters can no longer be read.
    pub fn close(&mut self) -> Result<LedgerReport, LedgerError> {
        let now = self.read()?;
        let mut notes = self.lacking.clone();
        self.follow(&now, &mut notes)?;
        let interval = self.interval(&now, &mut notes);
        let head = Head {
            timestamp: time_text(),
            interfaces: self.wanted.values().cloned().collect(),
            trace: shown(self.last.drops.as_ref(), now.drops.as_ref(), &interval),
            notes,
            ..self.head.clone()
        };
        self.last = now;
        Ok(report(&interval, head))
    }

    fn read(&mut self) -> Result<Reading, LedgerError> {
        let begun = Instant::now();
        let drops = self.trace.as_ref().map(DropTrace::read).transpose()?;
        let stack = self.reader.read(&self.root);
        let routed = routed(&stack);
        if stack.protocols.all.is_empty() {
            return Err(LedgerError::Counters(stack.unread.join("; ")));
        }
        let elapsed = begun.elapsed();
        let others = self.others.as_mut().map(Others::read);
        let machine = Machine::read(&self.root, &stack);
        // Where the walk fails, this interval does without it.
        let rings = self.rings.as_ref().and_then(|r| r.read().ok());
        Ok(Reading { at: begun, elapsed, stack, machine, drops, others, rings, routed })
    }

    /// Interfaces that were renamed or went away.
    fn follow(&mut self, now: &Reading, notes: &mut Vec<String>) -> Result<(), LedgerError> {
        let mut gone = Vec::new();
        for (index, name) in &mut self.wanted {
            match now.stack.links.get(index) {
                Some(link) if link.name != *name => {
                    notes.push(format!("{name} is called {} now: its books go on", link.name));
                    name.clone_from(&link.name);
                }
                Some(_) => {}
                None => gone.push((*index, name.clone())),
            }
        }
        for (index, name) in gone {
            self.wanted.remove(&index);
            if self.wanted.is_empty() {
                return Err(LedgerError::Gone(name));
            }
            notes.push(format!("{name} went away"));
        }
        let names = |links: &BTreeMap<u32, host::interface::Link>| -> BTreeSet<u32> { links.keys().copied().collect() };
        for index in names(&self.last.stack.links).difference(&names(&now.stack.links)) {
            let name = &self.last.stack.links[index].name;
            notes.push(format!(
                "{name} went away during the interval: what it counted since the last reading is not known"
            ));
        }
        Ok(())
    }

    fn interval(&mut self, now: &Reading, notes: &mut Vec<String>) -> Interval {
        let before = &self.last;
        let stack = now.stack.since(&before.stack);
        notes.extend(stack.unread.iter().cloned());
        let ours = |inode: u32| self.others.as_ref().is_some_and(|o| o.owns(inode));
        let precision = precision(before.drops.as_ref(), now.drops.as_ref());
        let mut details = Vec::new();
        let drops = match (&now.drops, &before.drops) {
            (Some(now), Some(before)) => {
                notes.extend(trace::crowded(before, now));
                details = trace::details(before, now, self.head.netns, self.filter.as_ref(), &mut self.names);
                let raw = trace::drops(before, now, self.head.netns);
                Some(trace::named(&raw, &mut self.names))
            }
            _ => None,
        };
        let drops = drops.map(|d| d.into_iter().filter(|d| !ours(d.inode)).collect());
        let changed = now.elapsed.abs_diff(before.elapsed).max(SKEW_MIN);
        let (rules, uncounted) = convert::rules(&stack);
        let mut interval = Interval {
            seconds: now.at.duration_since(before.at).as_secs_f64(),
            interfaces: convert::interfaces(&stack, &before.stack, &now.machine, &self.wanted),
            netfilter: Netfilter { conntrack: stack.conntrack, rules, uncounted },
            full_listeners: convert::full_listeners(&now.stack),
            flow_limited: now.machine.flow_limited.saturating_sub(before.machine.flow_limited),
            others: convert::others(before.others.as_ref(), now.others.as_ref()),
            sockets: convert::sockets(&stack, &now.stack.links).into_iter().filter(|s| !ours(s.inode)).collect(),
            trace: Trace {
                drops,
                details,
                precision,
                weight: weight(before.drops.as_ref(), now.drops.as_ref()),
                ..Trace::default()
            },
            room: now.machine.room,
            skew_s: changed.as_secs_f64(),
            protocols: stack.protocols,
            ..Interval::default()
        };
        for interface in &mut interval.interfaces {
            let attached = || stack.links.get(&interface.index)?.xdp.first().map(|(_, id)| *id);
            let program = interface.xdp.done.and_then(|x| x.program).or_else(attached);
            interface.xdp.name = program.map(bpf::chain::judge_name).unwrap_or_default();
            interface.xdp.routed = now.routed.get(&interface.index).map(|FastPath { id, done, .. }| {
                // One that began meanwhile began with nothing.
                let earlier = before.routed.get(&interface.index).filter(|earlier| earlier.id == *id);
                let earlier = earlier.map_or_else(Routed::default, |earlier| earlier.done);
                Routed {
                    forwarded: done.forwarded.saturating_sub(earlier.forwarded),
                    handed: done.handed.saturating_sub(earlier.handed),
                }
            });
        }
        if let (Some(now_rings), Some(before)) = (&now.rings, &before.rings) {
            let rings = trace::rings(before, now_rings, self.head.netns, &now.stack.links);
            interval.sockets.retain(|s| !s.packet);
            interval.sockets.extend(rings.into_iter().filter(|s| !ours(s.inode)));
            interval.rings_known = true;
            if let Some(why) = self.rings.as_ref().and_then(RingSockets::forgets)
                && interval.sockets.iter().any(|s| s.packet)
            {
                notes.push(format!(
                    "losses of tcpdump and the like may be too low: the kernel resets that counter whenever its owner reads it ({why})"
                ));
            }
        }
        let routed = &now.routed;
        if let (Some(now), Some(before)) = (&now.drops, &before.drops) {
            let queues = |(index, path): (&u32, &FastPath)| Some((path.queues?, *index));
            let queues = self.last.routed.iter().chain(routed).filter_map(queues).collect();
            interval.trace.xdp_losses = trace::xdp_losses(before, now, self.head.netns, &interval.interfaces, &queues);
        }
        interval
    }
}

impl Reading {
    fn nothing() -> Self {
        Self {
            at: Instant::now(),
            elapsed: Duration::ZERO,
            stack: StackCounters::default(),
            machine: Machine::default(),
            drops: None,
            others: None,
            rings: None,
            routed: BTreeMap::new(),
        }
    }
}

/// Counters of the fast path of `evenkeel route`, where it runs.
fn routed(stack: &StackCounters) -> BTreeMap<u32, FastPath> {
    let of = |(&index, link): (&u32, &Link)| {
        let look = RouteLook::of(link.xdp.first()?.1)?;
        let RouteTotals { forwarded, enqueued: handed, .. } = look.totals().ok()?;
        Some((index, FastPath { id: look.id(), queues: look.queues(), done: Routed { forwarded, handed } }))
    };
    stack.links.iter().filter_map(of).collect()
}

fn open_trace(details: bool, lacking: &mut Vec<String>) -> Option<DropTrace> {
    match DropTrace::open(&DropOptions { details: if details { FLOWS_MAX } else { 0 }, ..DropOptions::default() }) {
        Ok(trace) => {
            let missing = trace.unavailable();
            if !missing.is_empty() {
                lacking.push(format!(
                    "this kernel lacks the tracepoints {}: XDP's losses are not all named",
                    missing.join(", ")
                ));
            }
            Some(trace)
        }
        Err(e) => {
            lacking.push(format!("causes are not named, and losses without a counter stay unexplained: {e}"));
            None
        }
    }
}

/// The share by which a number of the trace may be off, 95 times of 100: of `n` looks at drops of two kinds or more.
fn precision(before: Option<&DropRead>, now: Option<&DropRead>) -> f64 {
    let (Some(before), Some(now)) = (before, now) else { return 0.0 };
    let seen = now.cost.seen.saturating_sub(before.cost.seen);
    let events = now.cost.events.saturating_sub(before.cost.events);
    if seen >= events || seen == 0 { 0.0 } else { (1.96 / (seen as f64).sqrt()).min(1.0) }
}

/// Drops that one look stood for.
fn weight(before: Option<&DropRead>, now: Option<&DropRead>) -> f64 {
    let (Some(before), Some(now)) = (before, now) else { return 1.0 };
    let seen = now.cost.seen.saturating_sub(before.cost.seen);
    let events = now.cost.events.saturating_sub(before.cost.events);
    if seen == 0 { 1.0 } else { (events as f64 / seen as f64).max(1.0) }
}

fn shown(before: Option<&DropRead>, now: Option<&DropRead>, interval: &Interval) -> Option<TraceShown> {
    let seconds = interval.seconds;
    let (before, now) = (&before?.cost, &now?.cost);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let cost_ns = now.ns_total.saturating_sub(before.ns_total);
    let (events, examined) = (now.events.saturating_sub(before.events), now.seen.saturating_sub(before.seen));
    Some(TraceShown {
        events,
        in_namespace: interval.trace.drops.iter().flatten().map(|d| d.packets).sum::<u64>().min(events),
        examined,
        cost_ns,
        cost_share: if seconds > 0.0 { cost_ns as f64 / (seconds * 1e9 * cpus) } else { 0.0 },
        sampling: now.sampling.max(1),
        sampled: examined < events,
        precision: interval.trace.precision,
    })
}

fn time_text() -> String {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{now:.3}")
}
