//! Input of the checks: the picture of the machine, its files, and a short watch of its counters.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use host::{
    Host, HostError, Root,
    counters::{self, Counters, CpuTime, Interrupts, Sampler, Softnet, TaskTime, task_times},
    journal::Journal,
    knob::Change,
    picture::Nic,
    placement, setting,
};
use model::{
    doctor::{Role, Verdict},
    top::TopSample,
};

use crate::{
    ack::{self, Accepted, Acknowledged, Since},
    outcome::Outcome,
    rewritten, role,
};

/// IFF_LOOPBACK.
const IFF_LOOPBACK: u32 = 8;

/// The least time for which the counters of a live machine are watched: what does not grow meanwhile is of the past ([`Evidence::counts`]).
pub const WATCH_TIME_MIN: Duration = Duration::from_secs(1);

/// Two readings of the counters of a live machine.
#[derive(Debug)]
pub struct Watched {
    pub before: Counters,
    pub after: Counters,
    pub rates: TopSample,
}

/// The threads of a live machine over the same interval.
#[derive(Debug, Default)]
pub struct WatchedTasks {
    pub before: BTreeMap<u32, TaskTime>,
    pub after: BTreeMap<u32, TaskTime>,
    pub window_ns: u64,
}

/// Input of the checks.
#[derive(Debug)]
pub struct Evidence {
    pub host: Host,
    /// Source of its files.
    pub root: Root,
    pub role: Role,
    pub role_guessed: bool,
    /// Reasons for the guess.
    pub role_reasons: Vec<String>,
    /// The counters of a live machine over a short interval; none for a saved copy, or where they cannot be read.
    pub watched: Option<Watched>,
    /// The threads of a live machine over that interval; none for a saved copy.
    pub tasks: Option<WatchedTasks>,
    /// Files of counters as they stood when the watch began ([`Self::grown`]); none for a saved copy.
    pub earlier: Option<Root>,
    /// Settings that this program made and somebody has written since; empty for a saved copy.
    pub rewritten: Vec<String>,
    /// Start of acknowledged counts; none: at boot.
    since: Option<Since>,
    /// Findings that somebody has set aside.
    accepted: Vec<Accepted>,
    unreadable: RefCell<BTreeMap<String, String>>,
}

impl Evidence {
    /// Looks at the machine behind `root`, and watches its counters when that is the live one. Without a role, guesses it.
    pub fn gather(root: &Root, role: Option<Role>) -> Result<Self, HostError> {
        let unreadable = RefCell::default();
        let tasks = root.is_live().then(|| (Instant::now(), task_times(root)));
        let mut watch = root.is_live().then(|| Watch::begin(&unreadable)).flatten();
        let earlier = watch.is_some().then(|| counted(root));
        let host = Host::read(root)?;
        for nic in &host.nics {
            for why in &nic.unanswered {
                unreadable.borrow_mut().insert(format!("ethtool answers of {}", nic.name), why.clone());
            }
        }
        let guess = role::guess(root, &host);
        let watched = watch.as_mut().and_then(|watch| watch.end(&host, &unreadable));
        let tasks = tasks.map(|(at, before)| WatchedTasks {
            before,
            after: task_times(root),
            window_ns: at.elapsed().as_nanos() as u64,
        });
        Ok(Self {
            root: root.clone(),
            role: role.unwrap_or(guess.role),
            role_guessed: role.is_none(),
            role_reasons: if role.is_none() { guess.why } else { Vec::new() },
            rewritten: if root.is_live() { rewritten::lines(&Journal::at(None)) } else { Vec::new() },
            host,
            watched,
            tasks,
            earlier,
            since: None,
            accepted: Vec::new(),
            unreadable,
        })
    }

    /// Takes into account what somebody has acknowledged.
    pub fn acknowledge(&mut self, acknowledged: &Acknowledged) {
        self.since = acknowledged.since();
        self.accepted.clone_from(&acknowledged.accepted);
    }

    /// Turns settings that nobody can write here into advice.
    pub(crate) fn without_read_only(&self, mut outcome: Outcome) -> Outcome {
        let is_read_only = |change: &Change| change.knob.file().is_some_and(|file| self.root.is_read_only(&file));
        let (read_only, changes) = outcome.changes.into_iter().partition(is_read_only);
        outcome.changes = changes;
        outcome.advice.extend(read_only.iter().map(|change: &Change| {
            let command = change.knob.shell(&change.new);
            format!("{command} # in the first network namespace: it is read-only in this one")
        }));
        outcome
    }

    /// A finding that was set aside, and is no graver than it was then, says so.
    pub(crate) fn set_aside(&self, check: &str, mut outcome: Outcome) -> Outcome {
        let is_it = |a: &&Accepted| a.check == check && a.object == outcome.object && a.verdict <= outcome.verdict;
        if outcome.verdict.is_finding() && self.accepted.iter().any(|a| is_it(&a)) {
            outcome.verdict = Verdict::Acknowledged;
        }
        outcome
    }

    /// A count since boot, or since it was acknowledged. One that is smaller than it was began anew.
    pub fn since(&self, count: impl Fn(&Root) -> Option<u64>) -> Option<u64> {
        let now = count(&self.root)?;
        let then = self.since.as_ref().and_then(|since| count(&since.root)).unwrap_or(0);
        Some(now.checked_sub(then).unwrap_or(now))
    }

    /// The start of the counts of [`Self::since`], for people.
    pub fn since_when(&self) -> String {
        self.since.as_ref().map_or_else(|| "since boot".to_owned(), Since::text)
    }

    /// The text of a file without white space at its ends; none when it is absent, or cannot be read: the report then says so.
    pub fn text(&self, rel: &str) -> Option<String> {
        match self.root.read_opt(rel) {
            Ok(text) => text,
            Err(e) => {
                self.unreadable(&format!("/{rel}"), &e.to_string());
                None
            }
        }
    }

    pub fn number(&self, rel: &str) -> Option<u64> {
        self.text(rel)?.parse().ok()
    }

    /// A sysctl by its path, such as `net/core/rmem_max`.
    pub fn sysctl(&self, path: &str) -> Option<String> {
        self.text(&format!("proc/sys/{path}"))
    }

    pub fn sysctl_number(&self, path: &str) -> Option<u64> {
        self.sysctl(path)?.parse().ok()
    }

    /// By how much a count grew while the machine was watched; none for a saved copy, where only its sum is known.
    pub fn grown(&self, count: impl Fn(&Root) -> Option<u64>) -> Option<u64> {
        let earlier = count(self.earlier.as_ref()?)?;
        Some(count(&self.root)?.saturating_sub(earlier))
    }

    /// A sum is a finding if it grew while the machine was watched. Where nobody watched (a saved copy), and since somebody acknowledged it, the sum
    /// alone is one; since boot it tells of any time, and of labs and settings long gone.
    pub fn counts(&self, grown: Option<u64>) -> bool {
        grown.is_none_or(|grown| grown > 0) || self.since.is_some()
    }

    /// The outcome of a check whose file is absent: the copy is an old one, or what `reason` says.
    pub fn lacking(&self, reason: &str) -> Outcome {
        Outcome::unknown(setting::kept(&self.root).map_or_else(|why| why.to_string(), |()| reason.to_owned()))
    }

    /// Notes something that could not be read, for the report.
    pub fn unreadable(&self, what: &str, why: &str) {
        self.unreadable.borrow_mut().insert(what.to_owned(), why.to_owned());
    }

    /// Unread sources so far, with the reasons.
    pub fn all_unreadable(&self) -> BTreeMap<String, String> {
        self.unreadable.borrow().clone()
    }

    /// The interfaces that are up and have hardware (or a hypervisor's device) behind them.
    pub fn ports(&self) -> impl Iterator<Item = &Nic> {
        placement::ports(&self.host).into_iter()
    }

    /// The interfaces that are up, virtual ones included, the loopback not.
    pub fn devices(&self) -> impl Iterator<Item = &Nic> {
        self.host.nics.iter().filter(|n| n.is_up() && n.flags & IFF_LOOPBACK == 0)
    }

    /// Counters of each CPU in `/proc/net/softnet_stat` ([`Self::since_when`]).
    pub fn softnet(&self) -> BTreeMap<u32, Softnet> {
        let parse = |text: &str| counters::softnet(text, self.host.online().iter());
        let mut table = parse(&self.text("proc/net/softnet_stat").unwrap_or_default());
        let before = self.counted("proc/net/softnet_stat").map(|text| parse(&text)).unwrap_or_default();
        for (cpu, before) in before {
            let Some(now) = table.get_mut(&cpu) else { continue };
            // They have 32 bits, and run over.
            now.processed = now.processed.wrapping_sub(before.processed);
            now.dropped = now.dropped.wrapping_sub(before.dropped);
            now.time_squeeze = now.time_squeeze.wrapping_sub(before.time_squeeze);
            now.flow_limited = now.flow_limited.wrapping_sub(before.flow_limited);
        }
        table
    }

    /// By how much a count of `/proc/net/softnet_stat` grew on all CPUs ([`Self::grown`]).
    pub fn softnet_grown(&self, of: impl Fn(&Softnet) -> u32) -> Option<u64> {
        let parse = |root: &Root| {
            Some(counters::softnet(&root.read_opt("proc/net/softnet_stat").ok()??, self.host.online().iter()))
        };
        let (before, now) = (parse(self.earlier.as_ref()?)?, parse(&self.root)?);
        Some(now.iter().filter_map(|(cpu, now)| Some(u64::from(of(now).wrapping_sub(of(before.get(cpu)?))))).sum())
    }

    /// The CPU time of each CPU ([`Self::since_when`]).
    pub fn cpu_times(&self) -> BTreeMap<u32, CpuTime> {
        let mut table = self.text("proc/stat").map(|text| counters::cpu_times(&text)).unwrap_or_default();
        let before = self.counted("proc/stat").map(|text| counters::cpu_times(&text)).unwrap_or_default();
        for (cpu, before) in before {
            let Some(now) = table.get_mut(&cpu) else { continue };
            now.user = now.user.saturating_sub(before.user);
            now.system = now.system.saturating_sub(before.system);
            now.idle = now.idle.saturating_sub(before.idle);
            now.irq = now.irq.saturating_sub(before.irq);
            now.softirq = now.softirq.saturating_sub(before.softirq);
            now.steal = now.steal.saturating_sub(before.steal);
        }
        table
    }

    /// The start of the counters of an interface, for people.
    pub fn since_up(&self) -> String {
        self.since.as_ref().map_or_else(|| "since the interface came up".to_owned(), Since::text)
    }

    /// A file as it stood when its counts were acknowledged.
    fn counted(&self, path: &str) -> Option<String> {
        self.since.as_ref()?.root.read_trimmed(path).ok()
    }

    /// The interrupts of each CPU since boot.
    pub fn interrupts(&self) -> Interrupts {
        self.text("proc/interrupts").map(|text| counters::interrupts(&text)).unwrap_or_default()
    }

    /// A counter of an interface since it came up, or was acknowledged (`/sys/class/net/NIC/statistics/NAME`).
    pub fn statistic(&self, nic: &str, name: &str) -> Option<u64> {
        let path = ack::statistic(nic, name);
        self.since(|root| root.read_opt(&path).ok()??.parse().ok())
    }
}

/// Files that hold counters and the limits that their readers want beside them.
const COUNTED: [&str; 13] = [
    "proc/sys/net/ipv4/ip_forward",
    "proc/sys/net/ipv4/neigh/default/gc_thresh2",
    "proc/sys/net/ipv4/neigh/default/gc_thresh3",
    "proc/sys/net/ipv6/neigh/default/gc_thresh2",
    "proc/sys/net/ipv6/neigh/default/gc_thresh3",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "proc/sys/net/netfilter/nf_conntrack_max",
    "proc/net/stat/arp_cache",
    "proc/net/stat/ndisc_cache",
    "proc/net/stat/nf_conntrack",
    "proc/net/netstat",
    "proc/net/snmp",
    "proc/net/softnet_stat",
];

/// A copy of the files of [`COUNTED`].
fn counted(root: &Root) -> Root {
    let read = |rel: &&str| Some(((*rel).to_owned(), root.read_opt(rel).ok()??));
    Root::from_files(COUNTED.iter().filter_map(read).collect())
}

struct Watch {
    sampler: Sampler,
    before: Counters,
    begun: Instant,
}

impl Watch {
    fn begin(unreadable: &RefCell<BTreeMap<String, String>>) -> Option<Self> {
        let begun = Instant::now();
        let started = Sampler::open().and_then(|mut sampler| Ok((sampler.read()?, sampler)));
        match started {
            Ok((before, sampler)) => Some(Self { sampler, before, begun }),
            Err(e) => {
                unreadable.borrow_mut().insert("live counters".to_owned(), e.to_string());
                None
            }
        }
    }

    fn end(&mut self, host: &Host, unreadable: &RefCell<BTreeMap<String, String>>) -> Option<Watched> {
        thread::sleep(WATCH_TIME_MIN.saturating_sub(self.begun.elapsed()));
        match self.sampler.read() {
            Ok(after) => {
                let before = std::mem::take(&mut self.before);
                let rates = counters::delta(host, &before, &after);
                for why in &after.unread {
                    unreadable.borrow_mut().insert("live counters of queues".to_owned(), why.clone());
                }
                Some(Watched { before, after, rates })
            }
            Err(e) => {
                unreadable.borrow_mut().insert("live counters".to_owned(), e.to_string());
                None
            }
        }
    }
}
