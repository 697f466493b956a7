//! A setting of the machine: how to read it, write it, and print it as a shell command.

mod change;
mod ethtool;
mod live;
mod mark_rules;

use std::fmt;

use model::CpuSet;
use serde::{Deserialize, Serialize};

pub use change::{Change, Plan};
pub use live::{KnobError, Live, Store};
pub use mark_rules::{ABSENT as MARK_RULES_ABSENT, lines as mark_rules};

use crate::ssh::quoted;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Rx,
    Tx,
}

impl Direction {
    /// `rx` or `tx`, as ethtool spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        }
    }
}

/// A setting of interrupt coalescing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoalesceField {
    /// Adaptive receive moderation (`on`, `off`).
    AdaptiveRx,
    /// Adaptive transmit moderation (`on`, `off`).
    AdaptiveTx,
    /// Microseconds to wait after a received frame.
    RxUsecs,
    /// Received frames to wait for.
    RxFrames,
    /// Microseconds to wait after a transmitted frame.
    TxUsecs,
    /// Transmitted frames to wait for.
    TxFrames,
}

impl CoalesceField {
    pub const ALL: [Self; 6] =
        [Self::AdaptiveRx, Self::AdaptiveTx, Self::RxUsecs, Self::RxFrames, Self::TxUsecs, Self::TxFrames];

    /// The name that `ethtool -C` uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AdaptiveRx => "adaptive-rx",
            Self::AdaptiveTx => "adaptive-tx",
            Self::RxUsecs => "rx-usecs",
            Self::RxFrames => "rx-frames",
            Self::TxUsecs => "tx-usecs",
            Self::TxFrames => "tx-frames",
        }
    }
}

/// Reads a setting of interrupt coalescing, such as `rx-usecs=50`.
///
/// # Errors
/// The error in the text, with the correct form.
pub fn coalescing(text: &str) -> Result<(CoalesceField, String), String> {
    let names = || CoalesceField::ALL.map(CoalesceField::as_str).join(", ");
    let (name, value) = text.split_once('=').ok_or("it should read NAME=VALUE, such as rx-usecs=50")?;
    let field = CoalesceField::ALL
        .into_iter()
        .find(|f| f.as_str() == name.trim())
        .ok_or_else(|| format!("there is no `{name}`; there are {}", names()))?;
    let value = value.trim().to_owned();
    let is_switch = matches!(field, CoalesceField::AdaptiveRx | CoalesceField::AdaptiveTx);
    match is_switch {
        true if value != "on" && value != "off" => Err(format!("`{value}` is neither on nor off")),
        false if value.parse::<u32>().is_err() => Err(format!("`{value}` is not a number")),
        _ => Ok((field, value)),
    }
}

/// A number in a file of an interface in sysfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NicFile {
    /// The time that packets are held back for merging with the interrupt off, in nanoseconds.
    GroFlushTimeout,
    /// Empty polls before the interrupt is enabled again.
    NapiDeferHardIrqs,
    /// The length of the transmit queue in packets.
    TxQueueLen,
}

impl NicFile {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GroFlushTimeout => "gro_flush_timeout",
            Self::NapiDeferHardIrqs => "napi_defer_hard_irqs",
            Self::TxQueueLen => "tx_queue_len",
        }
    }
}

/// A setting. Values are texts in the kernel's own notation (a mask for CPU sets of sysfs and procfs, a list for threads, a decimal number,
/// `on`/`off`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Knob {
    /// The CPUs an interrupt may go to; a mask.
    IrqAffinity { irq: u32 },
    /// Receive packet steering of one receive queue; a mask.
    RpsCpus { nic: String, queue: u32 },
    /// Entries of the flow table of one receive queue (receive flow steering).
    RpsFlowCnt { nic: String, queue: u32 },
    /// Entries of the machine's table of socket flows (net.core.rps_sock_flow_entries).
    RfsEntries,
    /// The CPUs that transmit through one transmit queue; a mask.
    XpsCpus { nic: String, queue: u32 },
    /// NAPI runs in kernel threads (0, 1).
    NapiThreaded { nic: String },
    /// The CPUs a NAPI kernel thread may run on; a list.
    NapiThreadAffinity { nic: String, napi: u32, pid: u32 },
    /// The nice value of a kernel thread that receives packets, known by its name: `ksoftirqd/3`, `napi/eth0-65`.
    ThreadNice { name: String, pid: u32 },
    /// The MTU in bytes.
    Mtu { nic: String },
    /// A number in a file of the interface in sysfs.
    NicFile { nic: String, file: NicFile },
    Sysctl {
        /// Its path under /proc/sys, such as `net/core/netdev_budget`.
        path: String,
    },
    /// The frequency governor of a CPU, by name.
    Governor { cpu: u32 },
    /// The time that a guest's CPU polls before it halts, in nanoseconds (haltpoll).
    GuestHaltPoll,
    /// The size of a ring in descriptors.
    Ring { nic: String, direction: Direction },
    /// The number of combined channels.
    Channels { nic: String },
    /// A setting of interrupt coalescing.
    Coalesce { nic: String, field: CoalesceField },
    /// An offload (`on`, `off`).
    Feature {
        nic: String,
        /// Its ethtool name, such as `rx-gro`.
        name: String,
    },
    /// The table from hash slot to receive queue; queue numbers separated by spaces.
    RssIndirection { nic: String },
    /// The rules of nftables that mark established connections for the router's fast path: the mark, or `absent`.
    MarkRules,
}

/// The folders of /proc/sys that knobs are in.
const SYSCTLS: [&str; 3] = ["kernel", "net", "vm"];
/// IFNAMSIZ of linux/if.h without the final zero.
const NAME_MAX: usize = 15;
/// More receive queues than any card has: a table that names a higher one is damaged.
const QUEUES_MAX: usize = 4096;

/// The notation of a value, by which it is compared and shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notation {
    Mask,
    List,
    Plain,
}

impl Knob {
    /// Refuses names that would lead out of the folders that knobs are in. What is read back from a journal or a copy is not believed.
    pub fn check(&self) -> Result<(), String> {
        if let Some(nic) = self.interface() {
            // dev_valid_name() in net/core/dev.c, and no control characters.
            let bad = |c: char| c == '/' || c == ':' || c.is_ascii_whitespace() || c.is_control();
            return match nic.is_empty() || nic.len() > NAME_MAX || matches!(nic, "." | "..") || nic.contains(bad) {
                true => Err(format!("`{nic}` is no name of an interface")),
                false => Ok(()),
            };
        }
        match self {
            Self::Sysctl { path } => {
                let mut parts = path.split('/');
                let known = parts.next().is_some_and(|first| SYSCTLS.contains(&first));
                let whole = path.contains('/') && parts.all(|part| !matches!(part, "" | "." | ".."));
                match known && whole && !path.chars().any(char::is_control) {
                    true => Ok(()),
                    false => Err(format!("`{path}` is no setting under /proc/sys/{{{}}}", SYSCTLS.join(","))),
                }
            }
            Self::ThreadNice { name, .. } => match receives(name) {
                true => Ok(()),
                false => Err(format!("`{name}` is no kernel thread that receives packets")),
            },
            _ => Ok(()),
        }
    }

    /// The interface that the setting belongs to; none for a setting of the machine or the network namespace.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::RpsCpus { nic, .. }
            | Self::RpsFlowCnt { nic, .. }
            | Self::XpsCpus { nic, .. }
            | Self::NapiThreaded { nic }
            | Self::NapiThreadAffinity { nic, .. }
            | Self::Mtu { nic }
            | Self::NicFile { nic, .. }
            | Self::Ring { nic, .. }
            | Self::Channels { nic }
            | Self::Coalesce { nic, .. }
            | Self::Feature { nic, .. }
            | Self::RssIndirection { nic } => Some(nic),
            Self::IrqAffinity { .. }
            | Self::RfsEntries
            | Self::ThreadNice { .. }
            | Self::Sysctl { .. }
            | Self::Governor { .. }
            | Self::GuestHaltPoll
            | Self::MarkRules => None,
        }
    }

    /// The file that holds the value, relative to the root of the file system; none for threads and ethtool settings.
    pub fn file(&self) -> Option<String> {
        Some(match self {
            Self::IrqAffinity { irq } => format!("proc/irq/{irq}/smp_affinity"),
            Self::RpsCpus { nic, queue } => format!("sys/class/net/{nic}/queues/rx-{queue}/rps_cpus"),
            Self::RpsFlowCnt { nic, queue } => format!("sys/class/net/{nic}/queues/rx-{queue}/rps_flow_cnt"),
            Self::RfsEntries => "proc/sys/net/core/rps_sock_flow_entries".to_owned(),
            Self::XpsCpus { nic, queue } => format!("sys/class/net/{nic}/queues/tx-{queue}/xps_cpus"),
            Self::NapiThreaded { nic } => format!("sys/class/net/{nic}/threaded"),
            Self::Mtu { nic } => format!("sys/class/net/{nic}/mtu"),
            Self::NicFile { nic, file } => format!("sys/class/net/{nic}/{}", file.as_str()),
            Self::Sysctl { path } => format!("proc/sys/{path}"),
            Self::Governor { cpu } => format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
            Self::GuestHaltPoll => "sys/module/haltpoll/parameters/guest_halt_poll_ns".to_owned(),
            Self::NapiThreadAffinity { .. }
            | Self::ThreadNice { .. }
            | Self::Ring { .. }
            | Self::Channels { .. }
            | Self::Coalesce { .. }
            | Self::Feature { .. }
            | Self::RssIndirection { .. }
            | Self::MarkRules => return None,
        })
    }

    /// True if the knob belongs to a network namespace; interrupts, threads and socket flows are the machine's.
    pub fn is_of_netns(&self) -> bool {
        !matches!(
            self,
            Self::IrqAffinity { .. }
                | Self::NapiThreadAffinity { .. }
                | Self::ThreadNice { .. }
                | Self::RfsEntries
                | Self::Governor { .. }
                | Self::GuestHaltPoll
        )
    }

    /// True if some drivers make their queues, interrupts or NAPI threads anew when this is written, so that what was set on
    /// those is lost.
    pub fn resets_queues(&self) -> bool {
        matches!(
            self,
            Self::Ring { .. }
                | Self::Channels { .. }
                | Self::Coalesce { .. }
                | Self::Feature { .. }
                | Self::Mtu { .. }
                | Self::NapiThreaded { .. }
        )
    }

    fn notation(&self) -> Notation {
        match self {
            Self::IrqAffinity { .. } | Self::RpsCpus { .. } | Self::XpsCpus { .. } => Notation::Mask,
            Self::NapiThreadAffinity { .. } => Notation::List,
            _ => Notation::Plain,
        }
    }

    /// The value of this knob that stands for a set of CPUs: a mask or a list.
    pub fn cpus_value(&self, cpus: &CpuSet) -> String {
        match self.notation() {
            Notation::List => cpus.to_string(),
            Notation::Mask | Notation::Plain => cpus.to_mask(),
        }
    }

    /// The set of CPUs that a value stands for; none when this knob holds no CPUs.
    pub fn cpus(&self, value: &str) -> Option<CpuSet> {
        match self.notation() {
            Notation::Mask => CpuSet::parse_mask(value).ok(),
            Notation::List => CpuSet::parse_list(value).ok(),
            Notation::Plain => None,
        }
    }

    /// True if two values mean the same: CPU sets as sets, everything else as text without the white space around it.
    pub fn same(&self, one: &str, other: &str) -> bool {
        match (self.cpus(one), self.cpus(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one.split_whitespace().eq(other.split_whitespace()),
        }
    }

    /// A value for people: CPU sets as a list (`none` for the empty one), everything else as it is.
    pub fn shown(&self, value: &str) -> String {
        match self.cpus(value) {
            Some(set) if set.is_empty() => "none".to_owned(),
            Some(set) => set.to_string(),
            None => value.trim().to_owned(),
        }
    }

    /// A value within a sentence: `CPU 0`, `CPUs 0-7`, `no CPU`; everything else as it is.
    pub fn phrase(&self, value: &str) -> String {
        self.cpus(value).map_or_else(|| value.trim().to_owned(), |set| set.phrase())
    }

    /// The shell command that sets the knob to `value`. Names may be those of a saved machine, so they are quoted where the
    /// shell would see more in them.
    pub fn shell(&self, value: &str) -> String {
        let (raw, value) = (value, quoted(value.trim()));
        if let Some(file) = self.file() {
            return format!("echo {value} > {}", quoted(&format!("/{file}")));
        }
        match self {
            Self::NapiThreadAffinity { pid, .. } => format!("taskset -pc {value} {pid}"),
            Self::ThreadNice { pid, .. } => format!("renice -n {value} -p {pid}"),
            Self::Ring { nic, direction } => format!("ethtool -G {} {} {value}", quoted(nic), direction.as_str()),
            Self::Channels { nic } => format!("ethtool -L {} combined {value}", quoted(nic)),
            Self::Coalesce { nic, field } => format!("ethtool -C {} {} {value}", quoted(nic), field.as_str()),
            Self::Feature { nic, name } => format!("ethtool -K {} {} {value}", quoted(nic), quoted(name)),
            Self::RssIndirection { nic } => rss_shell(&quoted(nic), raw),
            Self::MarkRules => mark_rules::shell(raw.trim()),
            _ => unreachable!("every other knob is a file"),
        }
    }
}

/// True for the name of a kernel thread that receives packets.
pub fn receives(thread: &str) -> bool {
    thread.starts_with("ksoftirqd/") || thread.starts_with("napi/")
}

/// `ethtool -X` takes weights per queue, so only a table dealt evenly over its first queues has a short command; any other
/// becomes weights, which keep the shares (the order of the slots is the driver's).
fn rss_shell(nic: &str, value: &str) -> String {
    let table: Vec<usize> = value.split_whitespace().filter_map(|q| q.parse().ok()).collect();
    let queues = table.iter().max().map_or(0, |max| max.saturating_add(1));
    if queues > QUEUES_MAX {
        return format!("# the RSS table of {nic} names queue {}, which no card has", queues - 1);
    }
    if queues > 0 && table.iter().enumerate().all(|(slot, &queue)| queue == slot % queues) {
        return format!("ethtool -X {nic} equal {queues}");
    }
    let mut weights = vec![0u32; queues];
    for &queue in &table {
        weights[queue] += 1;
    }
    let weights: Vec<String> = weights.iter().map(ToString::to_string).collect();
    format!("ethtool -X {nic} weight {}", weights.join(" "))
}

/// The knob for people: `IRQ 36 affinity`.
impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IrqAffinity { irq } => write!(f, "IRQ {irq} affinity"),
            Self::RpsCpus { nic, queue } => write!(f, "{nic} rx-{queue} RPS CPUs"),
            Self::RpsFlowCnt { nic, queue } => write!(f, "{nic} rx-{queue} RFS flows"),
            Self::RfsEntries => write!(f, "RFS socket flows"),
            Self::XpsCpus { nic, queue } => write!(f, "{nic} tx-{queue} XPS CPUs"),
            Self::NapiThreaded { nic } => write!(f, "{nic} threaded NAPI"),
            Self::NapiThreadAffinity { nic, napi, pid } => write!(f, "{nic} NAPI {napi} thread {pid}"),
            Self::ThreadNice { name, .. } => write!(f, "{name} nice value"),
            Self::Mtu { nic } => write!(f, "{nic} MTU"),
            Self::NicFile { nic, file } => write!(f, "{nic} {}", file.as_str()),
            Self::Governor { cpu } => write!(f, "CPU {cpu} frequency governor"),
            Self::GuestHaltPoll => write!(f, "guest_halt_poll_ns"),
            Self::Sysctl { path } => write!(f, "sysctl {}", path.replace('/', ".")),
            Self::Ring { nic, direction } => write!(f, "{nic} {} ring", direction.as_str()),
            Self::Channels { nic } => write!(f, "{nic} combined channels"),
            Self::Coalesce { nic, field } => write!(f, "{nic} {}", field.as_str()),
            Self::Feature { nic, name } => write!(f, "{nic} {name}"),
            Self::MarkRules => write!(f, "connection marks"),
            Self::RssIndirection { nic } => write!(f, "{nic} RSS table"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic() -> String {
        "eth0".to_owned()
    }

    #[test]
    fn knobs_print_as_shell_commands() {
        let eight = CpuSet::parse_list("0-1").unwrap();
        let irq = Knob::IrqAffinity { irq: 36 };
        assert_eq!(irq.shell(&irq.cpus_value(&eight)), "echo 3 > /proc/irq/36/smp_affinity");
        let thread = Knob::NapiThreadAffinity { nic: nic(), napi: 8193, pid: 77 };
        assert_eq!(thread.shell(&thread.cpus_value(&eight)), "taskset -pc 0-1 77");
        let coalesce = Knob::Coalesce { nic: nic(), field: CoalesceField::RxUsecs };
        assert_eq!(coalesce.shell("50"), "ethtool -C eth0 rx-usecs 50");
        assert_eq!(Knob::RssIndirection { nic: nic() }.shell("0 1 2 0 1 2"), "ethtool -X eth0 equal 3");
        assert_eq!(Knob::RssIndirection { nic: nic() }.shell("0 0 2"), "ethtool -X eth0 weight 2 0 1");
        assert_eq!(
            Knob::XpsCpus { nic: nic(), queue: 2 }.shell("4"),
            "echo 4 > /sys/class/net/eth0/queues/tx-2/xps_cpus"
        );
    }

    #[test]
    fn names_of_a_foreign_machine_are_data_for_the_shell() {
        let evil = |nic: &str| Knob::Ring { nic: nic.to_owned(), direction: Direction::Rx }.shell("64");
        assert_eq!(evil("x;reboot"), "ethtool -G 'x;reboot' rx 64");
        assert_eq!(evil("$(a)'b"), r"ethtool -G '$(a)'\''b' rx 64");
        let mtu = Knob::Mtu { nic: "a b`c`".into() };
        assert_eq!(mtu.shell("9000"), "echo 9000 > '/sys/class/net/a b`c`/mtu'");
        let change = Change { knob: mtu, old: "1500\nreboot".into(), new: "9000".into(), reason: "so\nreboot".into() };
        let script = Plan { changes: vec![change], warnings: vec!["x\nreboot".into()] }.to_shell();
        assert!(script.lines().all(|l| !l.starts_with("reboot")), "{script}");
        let weird = Knob::Sysctl { path: "net/core/x\ny".into() };
        assert_eq!(weird.shell("1"), "echo 1 > '/proc/sys/net/core/x\ny'", "a newline within quotes is data");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let sysctl = |path: &str| Knob::Sysctl { path: path.to_owned() };
        for good in ["net/core/rmem_max", "net/ipv4/conf/eth0.5/rp_filter", "vm/swappiness", "kernel/sched_x"] {
            sysctl(good).check().unwrap();
        }
        for bad in
            ["../../etc/passwd", "net/../../../etc/x", "net//x", "/etc/x", "", "net", "fs/x", "net/core/", "net/a\nb"]
        {
            assert!(sysctl(bad).check().is_err(), "{bad}");
        }
        for bad in ["", ".", "..", "../../../tmp/x", "a b", "a:b", "a\x1b", "sixteen-letters-"] {
            assert!(Knob::Mtu { nic: bad.to_owned() }.check().is_err(), "{bad}");
        }
        Knob::Mtu { nic: "enx0a1b2c3d4e5f".into() }.check().unwrap();
        let error = Live.write(&sysctl("../../tmp/ek-no-such"), "1").unwrap_err();
        assert!(matches!(error, KnobError::Name { .. }), "{error}");
    }

    #[test]
    fn a_table_of_a_hostile_copy_makes_no_huge_command() {
        let table = format!("0 {}", usize::MAX);
        assert!(Knob::RssIndirection { nic: nic() }.shell(&table).starts_with('#'));
        assert!(Knob::RssIndirection { nic: nic() }.shell("0 4000000000").len() < 200);
    }

    #[test]
    fn masks_compare_as_sets_and_the_rest_as_text() {
        let irq = Knob::IrqAffinity { irq: 36 };
        assert!(irq.same("00000000,00000003\n", "3"));
        assert!(!irq.same("3", "1"));
        let thread = Knob::NapiThreadAffinity { nic: nic(), napi: 1, pid: 1 };
        assert!(thread.same("0-2", "0,1,2"));
        assert!(Knob::Mtu { nic: nic() }.same("1500\n", "1500"));
        assert!(!Knob::Mtu { nic: nic() }.same("1500", "15"));
        assert_eq!(irq.shown("0"), "none");
        assert_eq!(["0", "1", "ff"].map(|mask| irq.phrase(mask)), ["no CPU", "CPU 0", "CPUs 0-7"]);
    }

    #[test]
    fn knobs_survive_json() {
        for knob in [
            Knob::RfsEntries,
            Knob::Coalesce { nic: nic(), field: CoalesceField::AdaptiveRx },
            Knob::Ring { nic: nic(), direction: Direction::Rx },
        ] {
            let text = serde_json::to_string(&knob).unwrap();
            assert_eq!(serde_json::from_str::<Knob>(&text).unwrap(), knob, "{text}");
        }
    }
}
