//! Power management of the CPUs: frequency governor and idle states.

use std::collections::BTreeMap;

use super::{Missing, number, text};
use crate::{picture::Host, root::Root};

const CPU: &str = "sys/devices/system/cpu";

/// An idle state of the CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    pub index: u32,
    /// Name of the state, such as `C6`.
    pub name: String,
    /// Microseconds to leave it.
    pub exit_latency_us: u64,
    /// True if it is switched off on the CPU that was read.
    pub disabled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// The driver, such as `intel_idle`; none when the kernel has none.
    pub driver: Option<String>,
    /// The governor, such as `menu` or `haltpoll`.
    pub governor: Option<String>,
    /// The states, of the first CPU that is online.
    pub states: Vec<IdleState>,
    /// The time that a guest polls before it halts, in nanoseconds, where the haltpoll governor is built in.
    pub guest_halt_poll_ns: Option<u64>,
}

/// The frequency governor of each CPU that has one.
pub fn governors(root: &Root, host: &Host) -> Result<BTreeMap<u32, String>, Missing> {
    let mut all = BTreeMap::new();
    for cpu in host.online().iter() {
        if let Some(governor) = text(root, &format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor"))? {
            all.insert(cpu, governor);
        }
    }
    Ok(all)
}

/// The frequency driver of the first CPU, such as `intel_pstate`.
pub fn frequency_driver(root: &Root, host: &Host) -> Result<Option<String>, Missing> {
    let first = host.online().first().unwrap_or(0);
    text(root, &format!("{CPU}/cpu{first}/cpufreq/scaling_driver"))
}

/// Idle driver, governor and states.
pub fn idle(root: &Root, host: &Host) -> Result<Idle, Missing> {
    let first = host.online().first().unwrap_or(0);
    let folder = format!("{CPU}/cpu{first}/cpuidle");
    let mut states = Vec::new();
    for index in 0.. {
        let state = format!("{folder}/state{index}");
        let Some(name) = text(root, &format!("{state}/name"))? else { break };
        states.push(IdleState {
            index,
            name,
            exit_latency_us: number(root, &format!("{state}/latency"))?.unwrap_or(0),
            disabled: number::<u32>(root, &format!("{state}/disable"))?.unwrap_or(0) != 0,
        });
    }
    let governor = text(root, &format!("{CPU}/cpuidle/current_governor"))?;
    Ok(Idle {
        driver: text(root, &format!("{CPU}/cpuidle/current_driver"))?.filter(|driver| driver != "none"),
        governor: governor.or(text(root, &format!("{CPU}/cpuidle/current_governor_ro"))?),
        states,
        guest_halt_poll_ns: number(root, "sys/module/haltpoll/parameters/guest_halt_poll_ns")?,
    })
}

pub(super) fn record(root: &Root, host: &Host) {
    let _ = governors(root, host);
    let _ = frequency_driver(root, host);
    let _ = idle(root, host);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};
    use crate::picture::Cpu;

    fn host() -> Host {
        let cpu = |id| Cpu {
            id,
            package: 0,
            core: id,
            siblings: [id].into_iter().collect(),
            node: 0,
            online: true,
            isolated: false,
            capacity: crate::picture::FULL_CAPACITY,
        };
        Host {
            hostname: String::new(),
            kernel: String::new(),
            cpus: vec![cpu(0), cpu(1)],
            nics: vec![],
            irqs: vec![],
            irqbalance_pid: None,
            distances: BTreeMap::new(),
            garbled_irqs: 0,
            fast_path: None,
        }
    }

    #[test]
    fn governors_and_states() {
        let root = machine(&[
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
            ("sys/devices/system/cpu/cpuidle/current_governor_ro", "menu\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n"),
        ]);
        assert_eq!(governors(&root, &host()).unwrap(), BTreeMap::from([(1, "powersave".to_owned())]));
        let idle = idle(&root, &host()).unwrap();
        assert_eq!((idle.driver.as_deref(), idle.governor.as_deref()), (Some("intel_idle"), Some("menu")));
        assert_eq!(
            idle.states.iter().map(|s| (s.exit_latency_us, s.disabled)).collect::<Vec<_>>(),
            [(0, false), (133, true)]
        );
        assert_eq!(idle.guest_halt_poll_ns, None);
    }
}
