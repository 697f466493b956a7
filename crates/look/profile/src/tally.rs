//! Adds classed stacks up, and makes a profile of the sums: pure.

use std::collections::{BTreeMap, HashMap};

use model::profile::{Class, ClassShare, CoreProfile, Excluded, LockCaller, Named, PacketBase, Profile};

use crate::{
    classify::{LockUse, classify},
    rules::{Rule, Rules},
};

/// Functions kept per class and in every list.
const FUNCTIONS_MAX: usize = 40;

/// The function that takes the frames of an interface without NAPI.
const BACKLOG: &str = "process_backlog";
/// Packet work that is nobody's own: soft interrupts of the network, and NAPI in a kernel thread.
const PACKETS: [&str; 4] = ["net_rx_action", "net_tx_action", "napi_threaded_poll", "napi_threaded_poll_loop"];

/// Something that was seen a number of times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen<'a> {
    /// A thread of this process had its turn.
    pub ours: bool,
    pub cpu: u32,
    pub comm: &'a str,
    /// The functions of the kernel's stack, innermost first; an empty name where there is no symbol.
    pub frames: Vec<&'a str>,
    /// The program itself ran, in user mode.
    pub user: bool,
    pub samples: u64,
}

/// A party that shares a core with the measured work, and belongs to no class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A generator of live frames on this machine.
    Generator,
    /// The end of a lab that takes what came through.
    Receiver,
    /// Programs that have nothing to do with the measurement, and the kernel's work for them.
    Others,
}

/// The samples that are set apart from the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetApart {
    #[default]
    Nobody,
    /// The own work of a generator of live frames (see [`is_generator`]).
    Generator,
    /// Everything that is not the box of a lab.
    Lab {
        /// Frames end behind the box on the same core: its interface runs no NAPI, so that the backlog takes them.
        receiver: bool,
    },
}

impl SetApart {
    fn words(self) -> &'static str {
        match self {
            Self::Nobody => "nothing",
            Self::Generator => "the traffic generator",
            Self::Lab { .. } => "the lab around the box, and other programs",
        }
    }

    /// The party of the stack; none: it is measured.
    fn party(self, seen: &Seen<'_>, class: Class) -> Option<Party> {
        let has = |names: &[&str]| seen.frames.iter().any(|f| names.contains(&crate::rules::bare(f)));
        match self {
            Self::Nobody => None,
            Self::Generator => is_generator(&seen.frames).then_some(Party::Generator),
            Self::Lab { .. } if seen.ours && is_generator(&seen.frames) => Some(Party::Generator),
            Self::Lab { receiver: true } if has(&[BACKLOG]) => Some(Party::Receiver),
            Self::Lab { .. } if seen.ours || class == Class::Idle || has(&PACKETS) => None,
            Self::Lab { .. } => Some(Party::Others),
        }
    }
}

/// The time of a core by the kernel's own count, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StatTime {
    pub idle_percent: f64,
    /// Taken by the hypervisor.
    pub steal_percent: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Tally {
    set_apart: SetApart,
    keep_stacks: bool,
    cores: BTreeMap<u32, BTreeMap<Class, u64>>,
    left_out: BTreeMap<u32, BTreeMap<Party, u64>>,
    top: HashMap<(Class, String), u64>,
    locks: HashMap<(String, Class), (u64, u64)>,
    functions: HashMap<String, u64>,
    unnamed: HashMap<String, u64>,
    attributed_to_caller: u64,
    stacks: HashMap<String, u64>,
}

impl Tally {
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps these samples out of the classes.
    #[must_use]
    pub fn setting_apart(self, set_apart: SetApart) -> Self {
        Self { set_apart, ..self }
    }

    /// Keeps whole stacks, for a flame graph.
    #[must_use]
    pub fn keeping_stacks(self) -> Self {
        Self { keep_stacks: true, ..self }
    }

    /// Adds samples of a party that whoever samples has recognised.
    pub fn add_apart(&mut self, cpu: u32, party: Party, samples: u64) {
        self.cores.entry(cpu).or_default();
        *self.left_out.entry(cpu).or_default().entry(party).or_default() += samples;
    }

    pub fn add(&mut self, seen: &Seen<'_>) {
        let (cpu, n) = (seen.cpu, seen.samples);
        self.cores.entry(cpu).or_default();
        let verdict = (!seen.user).then(|| classify(&seen.frames));
        let class = verdict.as_ref().map_or(Class::User, |v| v.class);
        if let Some(party) = self.set_apart.party(seen, class) {
            return self.add_apart(cpu, party, n);
        }
        let (class, name) = if let Some(verdict) = verdict {
            self.attributed_to_caller += if verdict.attributed_to_caller { n } else { 0 };
            if let Some(LockUse { waiting, owner }) = verdict.lock {
                let caller = verdict.function.unwrap_or("?").to_owned();
                let (all, waited) = self.locks.entry((caller, owner)).or_default();
                *all += n;
                *waited += if waiting { n } else { 0 };
            }
            (class, self.add_functions(seen, class))
        } else {
            (class, seen.comm)
        };
        *self.cores.entry(cpu).or_default().entry(class).or_default() += n;
        *self.top.entry((class, name.to_owned())).or_default() += n;
        if self.keep_stacks && class != Class::Idle {
            *self.stacks.entry(folded(seen)).or_default() += n;
        }
    }

    /// Notes the innermost function, and gives the innermost that is no helper.
    fn add_functions<'a>(&mut self, seen: &Seen<'a>, class: Class) -> &'a str {
        let rules = Rules::built_in();
        let named = |f: &&&str| !f.is_empty();
        let Some(innermost) = seen.frames.first().filter(named) else { return "(no symbol)" };
        if class != Class::Idle {
            *self.functions.entry((*innermost).to_owned()).or_default() += seen.samples;
        }
        if rules.rule(innermost).is_none() {
            *self.unnamed.entry((*innermost).to_owned()).or_default() += seen.samples;
        }
        seen.frames.iter().filter(named).find(|f| rules.rule(f) != Some(Rule::Caller)).unwrap_or(innermost)
    }

    pub fn samples(&self) -> u64 {
        let classed: u64 = self.cores.values().flat_map(BTreeMap::values).sum();
        classed + self.left_out.values().flat_map(BTreeMap::values).sum::<u64>()
    }

    /// Samples of one CPU, filled-in idle ones included.
    pub fn samples_of(&self, cpu: u32) -> u64 {
        self.cores.get(&cpu).map_or(0, |c| c.values().sum::<u64>()) + self.left_out_of(cpu)
    }

    /// The share of a core that `party` took, in percent of its time, of which `stat` says how much was stolen.
    pub fn percent_apart(&self, cpu: u32, party: Party, stat: &BTreeMap<u32, StatTime>) -> f64 {
        let n = self.left_out.get(&cpu).and_then(|parties| parties.get(&party)).copied().unwrap_or(0);
        self.percent_of(cpu, n, stat)
    }

    /// Adds the samples that a deeply sleeping CPU did not give: of `expected` per CPU those that are missing, as far as the kernel
    /// accounts the CPU idle beyond the idle samples that it gave.
    pub fn fill_idle(&mut self, expected: f64, stat: &BTreeMap<u32, StatTime>) {
        for (&cpu, time) in stat {
            let due = expected * (100.0 - time.steal_percent) / 100.0;
            let missing = due - self.samples_of(cpu) as f64;
            let core = self.cores.entry(cpu).or_default();
            let idle = core.get(&Class::Idle).copied().unwrap_or(0) as f64;
            let unseen = missing.min(expected * time.idle_percent / 100.0 - idle).round();
            if unseen >= 1.0 {
                *core.entry(Class::Idle).or_default() += unseen as u64;
            }
        }
    }

    /// The stacks that were kept, in the folded form of flame graphs (`outermost;…;innermost`) with their samples.
    pub fn stacks(&self) -> impl Iterator<Item = (&str, u64)> {
        self.stacks.iter().map(|(stack, &n)| (stack.as_str(), n))
    }

    /// The profile: `seconds` long, with what /proc/stat says about each sampled core and what there was of packets. Fields that
    /// tell of the circumstances are left as in `about`.
    pub fn profile(
        &self,
        seconds: f64,
        stat: &BTreeMap<u32, StatTime>,
        packets: Option<PacketBase>,
        about: Profile,
    ) -> Profile {
        let cores = self.core_profiles(stat);
        let of_all = |percent: f64| percent / cores.len().max(1) as f64;
        let total = self.samples();
        let core_ns = seconds * 1e9 * cores.len() as f64;
        let share = |class: Class| {
            let percent = of_all(cores.iter().filter_map(|c| c.percent.get(&class)).sum());
            let samples = self.cores.values().filter_map(|c| c.get(&class)).sum();
            let per_packet = |p: &PacketBase| percent / 100.0 * core_ns / p.packets as f64;
            ClassShare {
                class,
                samples,
                percent,
                error: if class == Class::Steal { 0.0 } else { error(percent, total) },
                ns_per_packet: packets.as_ref().filter(|p| p.packets > 0 && class.is_busy()).map(per_packet),
                top: listed(self.top.iter().filter(|((c, _), _)| *c == class).map(|((_, name), n)| (name.clone(), *n))),
            }
        };
        let mut classes: Vec<ClassShare> =
            Class::ALL.into_iter().map(share).filter(|c| c.percent > 0.0 || c.samples > 0).collect();
        let last = |c: &ClassShare| (c.class >= Class::Unclassified).then_some(c.class);
        classes.sort_by(|a, b| last(a).cmp(&last(b)).then(b.percent.total_cmp(&a.percent)));
        let left = self.samples() - self.cores.values().flat_map(BTreeMap::values).sum::<u64>();
        let left_percent =
            of_all(self.left_out.keys().map(|&cpu| self.percent_of(cpu, self.left_out_of(cpu), stat)).sum());
        Profile {
            seconds,
            samples: total,
            attributed_to_caller: self.attributed_to_caller,
            packets,
            classes,
            locks: self.lock_callers(),
            functions: listed(self.functions.clone()),
            unclassified_functions: listed(self.unnamed.clone()),
            excluded: (left > 0).then(|| Excluded { what: self.set_apart.words().into(), percent: left_percent }),
            cores,
            ..about
        }
    }

    /// Each core's time by class, with what /proc/stat says about it.
    pub fn core_profiles(&self, stat: &BTreeMap<u32, StatTime>) -> Vec<CoreProfile> {
        self.cores.iter().map(|(&cpu, counts)| self.core(cpu, counts, stat)).collect()
    }

    fn core(&self, cpu: u32, counts: &BTreeMap<Class, u64>, stat: &BTreeMap<u32, StatTime>) -> CoreProfile {
        let time = stat.get(&cpu).copied().unwrap_or_default();
        let idle = self.idle_percent(cpu, stat);
        let busy = counts.iter().filter(|(class, _)| class.is_busy());
        let mut percent: BTreeMap<Class, f64> =
            busy.map(|(&class, &n)| (class, self.percent_of(cpu, n, stat))).collect();
        if idle > 0.0 {
            percent.insert(Class::Idle, idle);
        }
        if time.steal_percent > 0.0 {
            percent.insert(Class::Steal, time.steal_percent);
        }
        CoreProfile {
            cpu,
            samples: counts.values().sum::<u64>() + self.left_out_of(cpu),
            percent,
            stat_idle_percent: time.idle_percent,
            stat_steal_percent: time.steal_percent,
        }
    }

    /// `n` busy samples of a core as a share of its time, in percent: they share what was neither stolen nor idle.
    fn percent_of(&self, cpu: u32, n: u64, stat: &BTreeMap<u32, StatTime>) -> f64 {
        let busy = self.samples_of(cpu) - self.idle_samples(cpu);
        let steal = stat.get(&cpu).map_or(0.0, |t| t.steal_percent);
        (100.0 - steal - self.idle_percent(cpu, stat)) * n as f64 / busy.max(1) as f64
    }

    /// The idle share of a core, in percent: that of the samples, but not less than the kernel accounts. A sample that comes due while a CPU is
    /// halted is taken when it wakes up, in the midst of work, so that samples alone show a CPU that often sleeps for a short time as
    /// busier than it is.
    fn idle_percent(&self, cpu: u32, stat: &BTreeMap<u32, StatTime>) -> f64 {
        let (idle, all) = (self.idle_samples(cpu), self.samples_of(cpu));
        let time = stat.get(&cpu).copied().unwrap_or_default();
        let awake = 100.0 - time.steal_percent;
        // Whoever was never seen busy was idle.
        if idle == all { awake } else { (awake * idle as f64 / all as f64).max(time.idle_percent).min(awake) }
    }

    fn idle_samples(&self, cpu: u32) -> u64 {
        self.cores.get(&cpu).and_then(|classes| classes.get(&Class::Idle)).copied().unwrap_or(0)
    }

    fn left_out_of(&self, cpu: u32) -> u64 {
        self.left_out.get(&cpu).map_or(0, |parties| parties.values().sum())
    }

    fn lock_callers(&self) -> Vec<LockCaller> {
        let caller = |((caller, class), (samples, waiting)): (&(String, Class), &(u64, u64))| LockCaller {
            caller: caller.clone(),
            class: *class,
            samples: *samples,
            waiting: *waiting,
        };
        let mut callers: Vec<LockCaller> = self.locks.iter().map(caller).collect();
        callers.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.caller.cmp(&b.caller)));
        callers.truncate(FUNCTIONS_MAX);
        callers
    }
}

/// Two standard errors of a share of `percent` out of `samples` independent samples, in percentage points.
fn error(percent: f64, samples: u64) -> f64 {
    let p = (percent / 100.0).clamp(0.0, 1.0);
    if samples == 0 { 0.0 } else { 200.0 * (p * (1.0 - p) / samples as f64).sqrt() }
}

fn listed(names: impl IntoIterator<Item = (String, u64)>) -> Vec<Named> {
    let mut names: Vec<Named> = names.into_iter().map(|(name, samples)| Named { name, samples }).collect();
    names.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.name.cmp(&b.name)));
    names.truncate(FUNCTIONS_MAX);
    names
}

/// True if a generator of XDP live frames (BPF_PROG_TEST_RUN) was at its own work: making frames, handing them to its interface, and
/// (a kernel worker does that) waiting for the last pages of a run that is over. Packet work that soft interrupts do on top of it is not
/// its own, and neither is what receivers do to give its pages back.
pub fn is_generator(frames: &[&str]) -> bool {
    const MAKES: [&str; 5] = [
        "xdp_test_run_batch",
        "bpf_test_run_xdp_live",
        "bpf_prog_test_run_xdp",
        "bpf_test_run",
        "page_pool_release_retry",
    ];
    const SERVES: [&str; 5] = ["handle_softirqs", "__do_softirq", "net_rx_action", "irq_exit_rcu", "__irq_exit_rcu"];
    let is_one_of = |names: &[&str], f: &str| names.contains(&crate::rules::bare(f));
    frames.iter().find(|f| is_one_of(&MAKES, f) || is_one_of(&SERVES, f)).is_some_and(|f| is_one_of(&MAKES, f))
}

fn folded(seen: &Seen<'_>) -> String {
    let mut text = seen.comm.replace([';', ' '], "_");
    if seen.user {
        return text + ";[user mode]";
    }
    for frame in seen.frames.iter().rev() {
        text.push(';');
        text.push_str(if frame.is_empty() { "[unknown]" } else { frame });
    }
    text
}

#[cfg(test)]
mod tests {
    use model::run::Machine;

    use super::*;

    fn seen<'a>(cpu: u32, frames: &[&'a str], samples: u64) -> Seen<'a> {
        Seen { ours: false, cpu, comm: "napi/eth0-3", frames: frames.to_vec(), user: false, samples }
    }

    fn empty() -> Profile {
        Profile::new(String::new(), Machine::default(), 99)
    }

    #[test]
    fn shares_of_cores_add_up_with_what_was_stolen() {
        let mut tally = Tally::new();
        tally.add(&seen(0, &["fib_table_lookup"], 30));
        tally.add(&seen(0, &["pv_native_safe_halt", "do_idle"], 10));
        tally.add(&Seen { cpu: 1, comm: "iperf3", user: true, samples: 40, ..Seen::default() });
        let stat = BTreeMap::from([(1, StatTime { idle_percent: 0.0, steal_percent: 20.0 })]);
        let packets = PacketBase { what: "x".into(), packets: 1_000_000, pps: 5e5 };
        let profile = tally.profile(2.0, &stat, Some(packets), empty());
        let percent: f64 = profile.classes.iter().map(|c| c.percent).sum();
        assert!((percent - 100.0).abs() < 1e-9);
        assert_eq!(profile.percent(Class::Ip), 37.5);
        assert_eq!(profile.percent(Class::User), 40.0);
        assert_eq!(profile.percent(Class::Steal), 10.0);
        // 0.375 of two cores for two seconds, over a million packets.
        assert_eq!(profile.class(Class::Ip).unwrap().ns_per_packet, Some(1500.0));
        assert_eq!(profile.class(Class::Idle).unwrap().ns_per_packet, None);
        assert_eq!(profile.dearest(1), [(Class::User, 4000.0 / 77.5)]);
        assert_eq!(profile.class(Class::User).unwrap().top[0].name, "iperf3");
        let order: Vec<Class> = profile.classes.iter().map(|c| c.class).collect();
        assert_eq!(order, [Class::User, Class::Ip, Class::Idle, Class::Steal]);
    }

    #[test]
    fn a_cpu_that_sleeps_through_its_samples_is_idle() {
        let mut tally = Tally::new();
        tally.add(&seen(0, &["ip_rcv"], 10));
        let stat = |idle_percent| StatTime { idle_percent, steal_percent: 0.0 };
        tally.fill_idle(100.0, &BTreeMap::from([(0, stat(90.0)), (1, stat(100.0))]));
        let profile = tally.profile(1.0, &BTreeMap::new(), None, empty());
        assert_eq!((profile.percent(Class::Idle), profile.percent(Class::Ip)), (95.0, 5.0));
        // Not more than the kernel accounts.
        let mut tally = Tally::new();
        tally.add(&seen(0, &["ip_rcv"], 10));
        tally.fill_idle(100.0, &BTreeMap::from([(0, stat(10.0))]));
        assert_eq!(tally.samples_of(0), 20);
    }

    #[test]
    fn samples_that_were_due_in_a_halt_and_came_late_are_no_work() {
        let mut tally = Tally::new();
        tally.add(&seen(0, &["ip_rcv"], 45));
        tally.add(&seen(0, &["fib_table_lookup"], 15));
        tally.add(&seen(0, &["pv_native_safe_halt", "do_idle"], 20));
        let stat = BTreeMap::from([(0, StatTime { idle_percent: 60.0, steal_percent: 10.0 })]);
        tally.fill_idle(100.0, &stat);
        let profile = tally.profile(1.0, &stat, None, empty());
        assert_eq!((profile.percent(Class::Idle), profile.percent(Class::Ip)), (60.0, 30.0));
        assert_eq!(profile.cores[0].percent.values().sum::<f64>(), 100.0);
        assert_eq!(profile.samples, 90, "as many as were due");
    }

    #[test]
    fn locks_are_listed_by_who_takes_them() {
        let mut tally = Tally::new();
        tally.add(&seen(0, &["native_queued_spin_lock_slowpath", "_raw_spin_lock", "packet_rcv"], 5));
        tally.add(&seen(0, &["_raw_spin_lock", "packet_rcv"], 2));
        tally.add(&seen(0, &["frobnicate", "ip_rcv"], 1));
        let profile = tally.profile(1.0, &BTreeMap::new(), None, empty());
        let want = LockCaller { caller: "packet_rcv".into(), class: Class::Taps, samples: 7, waiting: 5 };
        assert_eq!(profile.locks, [want]);
        assert_eq!(profile.unclassified_functions, [Named { name: "frobnicate".into(), samples: 1 }]);
        assert_eq!(profile.attributed_to_caller, 1);
        assert_eq!(profile.functions[0], Named { name: "native_queued_spin_lock_slowpath".into(), samples: 5 });
    }

    #[test]
    fn a_generator_can_be_left_out() {
        let own = ["veth_xdp_xmit", "bq_xmit_all", "xdp_test_run_batch.constprop.0", "bpf_test_run_xdp_live"];
        let served = ["ip_rcv", "net_rx_action", "handle_softirqs", "xdp_test_run_batch.constprop.0"];
        assert!(is_generator(&own) && !is_generator(&served) && !is_generator(&["ip_rcv"]));
        let cleanup =
            ["mutex_spin_on_owner", "__mutex_lock", "page_pool_release", "page_pool_release_retry", "worker_thread"];
        assert!(
            is_generator(&cleanup) && !is_generator(&["page_pool_put_unrefed_netmem", "veth_xdp_rcv_one", "veth_poll"])
        );
        let mut tally = Tally::new().setting_apart(SetApart::Generator).keeping_stacks();
        tally.add(&seen(0, &own, 3));
        tally.add(&seen(0, &served, 1));
        let profile = tally.profile(1.0, &BTreeMap::new(), None, empty());
        assert_eq!((profile.samples, profile.percent(Class::Ip)), (4, 25.0));
        assert_eq!(profile.excluded.unwrap().percent, 75.0);
        let stacks: Vec<_> = tally.stacks().collect();
        assert_eq!(stacks, [("napi/eth0-3;xdp_test_run_batch.constprop.0;handle_softirqs;net_rx_action;ip_rcv", 1)]);
    }

    #[test]
    fn the_lab_itself_is_distinguished_from_the_box() {
        let lab = |receiver| Tally::new().setting_apart(SetApart::Lab { receiver });
        let ours = |frames: &[&'static str], samples| Seen { ours: true, ..seen(1, frames, samples) };
        let mut tally = lab(true);
        let of_box = ["fib_table_lookup", "ip_rcv", "veth_poll", "__napi_poll", "napi_threaded_poll_loop", "kthread"];
        tally.add(&seen(1, &of_box, 5));
        tally.add(&seen(1, &["ip_rcv_core", "process_backlog", "net_rx_action", "handle_softirqs"], 3));
        tally.add(&ours(&["veth_xdp_xmit", "xdp_test_run_batch", "bpf_test_run_xdp_live"], 2));
        tally.add(&Seen { user: true, ..ours(&[], 1) });
        tally.add(&Seen { user: true, ..seen(1, &[], 4) });
        tally.add(&seen(1, &["filemap_read", "ksys_read"], 4));
        tally.add(&seen(1, &["pv_native_safe_halt", "do_idle"], 1));
        let stat = BTreeMap::from([(1, StatTime { idle_percent: 4.0, steal_percent: 20.0 })]);
        let percent = |party| tally.percent_apart(1, party, &stat);
        assert_eq!([percent(Party::Generator), percent(Party::Receiver), percent(Party::Others)], [8.0, 12.0, 32.0]);
        let profile = tally.profile(1.0, &stat, None, empty());
        let want = [(Class::Ip, 20.0), (Class::User, 4.0), (Class::Idle, 4.0), (Class::Steal, 20.0)];
        assert_eq!(profile.cores[0].percent, BTreeMap::from(want));
        // Where nothing is behind the box, the backlog is its own.
        let mut tally = lab(false);
        tally.add(&seen(1, &["ip_rcv_core", "process_backlog", "net_rx_action"], 3));
        assert_eq!(tally.percent_apart(1, Party::Receiver, &stat), 0.0);
        assert_eq!(tally.percent_apart(7, Party::Receiver, &stat), 0.0);
    }
}
