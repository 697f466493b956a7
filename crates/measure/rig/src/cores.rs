//! The CPUs of a measurement, and who has which.

use host::{Host, picture::Cpu};
use model::{CpuSet, run::CoreRole};
use nix::{sched, unistd::Pid};

use crate::MeasureError;

/// The CPUs that were asked for; without a wish all that are online, not isolated, and allowed to this process: a container may have fewer
/// than are online.
pub fn usable(host: &Host, wanted: Option<&CpuSet>) -> Result<CpuSet, MeasureError> {
    let set = sched::sched_getaffinity(Pid::from_raw(0)).map_err(|e| MeasureError::Affinity(e.into()))?;
    let allowed = (0..sched::CpuSet::count() as u32).filter(|&cpu| set.is_set(cpu as usize).unwrap_or(false));
    choose(&host.cpus, wanted, &allowed.collect())
}

fn choose(cpus: &[Cpu], wanted: Option<&CpuSet>, allowed: &CpuSet) -> Result<CpuSet, MeasureError> {
    let Some(wanted) = wanted else {
        let free = cpus.iter().filter(|c| c.online && !c.isolated).map(|c| c.id).collect::<CpuSet>();
        return Ok(free.intersection(allowed));
    };
    let online = cpus.iter().filter(|c| c.online).map(|c| c.id).collect::<CpuSet>().intersection(allowed);
    let missing = wanted.difference(&online);
    match (wanted.is_empty(), missing.is_empty()) {
        (true, _) => Err(MeasureError::NoCpus { online }),
        (false, false) => Err(MeasureError::MissingCpus { missing, online }),
        (false, true) => Ok(wanted.clone()),
    }
}

/// The role of some CPUs in an arrangement.
pub fn role(cpus: &[u32], does: &str) -> CoreRole {
    CoreRole { cpus: cpus.iter().copied().collect(), role: does.to_owned() }
}

#[cfg(test)]
mod tests {
    use host::picture::FULL_CAPACITY;

    use super::*;

    #[test]
    fn isolated_cpus_are_taken_only_if_named() {
        let cpu = |id, online, isolated| Cpu {
            id,
            package: 0,
            core: id,
            siblings: [id].into_iter().collect(),
            node: 0,
            online,
            isolated,
            capacity: FULL_CAPACITY,
        };
        let cpus = vec![cpu(0, true, false), cpu(1, true, true), cpu(2, false, false), cpu(3, true, false)];
        let list = |text: &str| text.parse::<CpuSet>().unwrap();
        let chosen = |wanted: Option<&str>| choose(&cpus, wanted.map(list).as_ref(), &list("0-2"));
        assert_eq!(chosen(None).unwrap(), list("0"), "online, not isolated, allowed");
        assert_eq!(chosen(Some("0-1")).unwrap(), list("0-1"));
        assert!(
            matches!(chosen(Some("1-3")), Err(MeasureError::MissingCpus { missing, .. }) if missing == list("2-3"))
        );
        assert!(matches!(chosen(Some("")), Err(MeasureError::NoCpus { .. })));
    }
}
