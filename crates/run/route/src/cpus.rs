//! The CPUs that forward: which there are, the buckets assigned to each, and what works against them.

use bpf::{ROUTE_BUCKETS, XdpMode};
use host::Root;
use model::{CpuSet, route::Obstacle};

use crate::RouteError;

/// The CPU of each bucket.
pub(crate) type IndirectionTable = [u16; ROUTE_BUCKETS];

/// Assigns all buckets to `cpus` as evenly as possible. As few as possible move, since the flows of a bucket that moves may be reordered.
pub(crate) fn assign(before: &IndirectionTable, cpus: &CpuSet) -> IndirectionTable {
    let count = cpus.len().max(1);
    let (each, more) = (ROUTE_BUCKETS / count, ROUTE_BUCKETS % count);
    let had = |cpu: u32| before.iter().filter(|bucket| u32::from(**bucket) == cpu).count();
    // Those that have most already take one more where it does not come out even.
    let mut order: Vec<u32> = cpus.iter().collect();
    order.sort_by_key(|&cpu| std::cmp::Reverse(had(cpu)));
    let mut room: Vec<(u32, usize)> =
        order.into_iter().enumerate().map(|(n, cpu)| (cpu, each + usize::from(n < more))).collect();
    let mut buckets = *before;
    let mut loose = Vec::new();
    for (at, bucket) in buckets.iter().enumerate() {
        match room.iter_mut().find(|(cpu, left)| *cpu == u32::from(*bucket) && *left > 0) {
            Some((_, left)) => *left -= 1,
            None => loose.push(at),
        }
    }
    for at in loose {
        if let Some((cpu, left)) = room.iter_mut().max_by_key(|(_, left)| *left) {
            *left -= 1;
            buckets[at] = *cpu as u16;
        }
    }
    buckets
}

pub(crate) fn online() -> Result<CpuSet, RouteError> {
    read("sys/devices/system/cpu/online")
}

fn read(path: &str) -> Result<CpuSet, RouteError> {
    let failed = |why: String| RouteError::System { operation: "read the CPUs", source: std::io::Error::other(why) };
    let text = Root::live().read_trimmed(path).map_err(|e| failed(e.to_string()))?;
    CpuSet::parse_list(&text).map_err(|e| failed(format!("{path}: {e}")))
}

/// Refuses CPUs that are not there, and any for generic XDP: of 6.18 at least, the stack takes what comes out of a queue as a damaged header.
pub(crate) fn check(cpus: &CpuSet, xdp: XdpMode) -> Result<(), RouteError> {
    if xdp == XdpMode::Generic && !cpus.is_empty() {
        return Err(RouteError::CpusInGeneric);
    }
    let (present, online) = (read("sys/devices/system/cpu/present")?, online()?);
    if let Some(cpu) = cpus.difference(&present).first() {
        return Err(RouteError::NoSuchCpu { cpu, present });
    }
    match cpus.difference(&online).first() {
        Some(cpu) => Err(RouteError::OfflineCpu { cpu, online }),
        None => Ok(()),
    }
}

/// The CPUs to which RPS steers what an interface receives.
fn steered(interface: &str) -> CpuSet {
    let root = Root::live();
    let queues = root.list(&format!("sys/class/net/{interface}/queues")).unwrap_or_default();
    let mask = |queue: &String| {
        let text = root.read_trimmed(&format!("sys/class/net/{interface}/queues/{queue}/rps_cpus")).ok()?;
        CpuSet::parse_mask(&text).ok()
    };
    let masks = queues.iter().filter(|queue| queue.starts_with("rx-")).filter_map(mask);
    masks.fold(CpuSet::new(), |all, mask| all.union(&mask))
}

/// Notes on settings that work against the CPUs that forward: RPS on a port.
pub(crate) fn notes(ports: &[String]) -> Vec<Obstacle> {
    let note = |port: &String| {
        let cpus = steered(port);
        (!cpus.is_empty()).then(|| Obstacle {
            code: "rps".to_owned(),
            what: format!(
                "RPS on {port} steers to CPU {cpus} as well: packets that the kernel forwards change CPU twice, and may end on a third"
            ),
            remedy: format!("evenkeel spread apply {port}"),
        })
    };
    ports.iter().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    fn count(buckets: &IndirectionTable, cpu: u16) -> usize {
        buckets.iter().filter(|bucket| **bucket == cpu).count()
    }

    #[test]
    fn buckets_are_assigned_evenly_and_as_few_as_possible_move() {
        let two = assign(&[0; ROUTE_BUCKETS], &list("2-3"));
        assert_eq!((count(&two, 2), count(&two, 3)), (128, 128));
        let three = assign(&two, &list("2-4"));
        assert_eq!([2, 3, 4].map(|cpu| count(&three, cpu)).iter().sum::<usize>(), ROUTE_BUCKETS);
        assert!([2, 3, 4].map(|cpu| count(&three, cpu)).iter().all(|n| [85, 86].contains(n)));
        let moved = two.iter().zip(&three).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(_, after)| *after == 4) && moved.count() == count(&three, 4));
        // Who goes gives all he had, and nobody else moves.
        let back = assign(&three, &list("2,4"));
        assert!(three.iter().zip(&back).all(|(before, after)| *before == 3 || before == after));
        assert_eq!((count(&back, 2), count(&back, 4)), (128, 128));
        assert_eq!(assign(&back, &list("2,4")), back);
        let many: CpuSet = (0..300).collect();
        assert!((0..300).all(|cpu| count(&assign(&back, &many), cpu) <= 1));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_by_name() {
        assert!(matches!(check(&list("0,8191"), XdpMode::Native), Err(RouteError::NoSuchCpu { cpu: 8191, .. })));
        assert!(check(&list("0"), XdpMode::Native).is_ok() && check(&list(""), XdpMode::Generic).is_ok());
        assert!(matches!(check(&list("0"), XdpMode::Generic), Err(RouteError::CpusInGeneric)));
    }
}
