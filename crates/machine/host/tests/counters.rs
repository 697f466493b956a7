//! The sampler against the kernel's own text files, on the machine the tests run on.

use std::collections::BTreeMap;

use host::counters::Sampler;

/// Received packets and bytes by interface, from /proc/net/dev.
fn proc_net_dev() -> BTreeMap<String, (u64, u64)> {
    let text = std::fs::read_to_string("/proc/net/dev").expect("/proc is mounted");
    text.lines()
        .filter_map(|line| {
            let (name, counters) = line.split_once(':')?;
            let mut words = counters.split_ascii_whitespace().filter_map(|w| w.parse().ok());
            let (bytes, packets) = (words.next()?, words.next()?);
            Some((name.trim().to_owned(), (packets, bytes)))
        })
        .collect()
}

#[test]
fn interface_counters_lie_between_two_looks_at_proc_net_dev() {
    let mut sampler = Sampler::open().expect("rates can be read here");
    sampler.read().expect("a first reading");
    let before = proc_net_dev();
    let counters = sampler.read().expect("a second reading, with what was kept open");
    let after = proc_net_dev();
    assert!(!counters.links.is_empty(), "no interface at all");
    for link in counters.links.values() {
        let (Some(b), Some(a)) = (before.get(&link.name), after.get(&link.name)) else { continue };
        let s = &link.stats;
        assert!((b.0..=a.0).contains(&s.rx_packets), "{}: {} not in {b:?}..={a:?}", link.name, s.rx_packets);
        assert!((b.1..=a.1).contains(&s.rx_bytes), "{}: {} not in {b:?}..={a:?}", link.name, s.rx_bytes);
    }
}

#[test]
fn every_table_has_the_cpus_that_are_online() {
    let counters = Sampler::open().and_then(|mut s| s.read()).expect("rates can be read here");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("/sys is mounted");
    let online = model::CpuSet::parse_list(&online).expect("a list of CPUs");
    let cpus: Vec<u32> = online.iter().collect();
    assert_eq!(counters.cpus.keys().copied().collect::<Vec<_>>(), cpus);
    assert_eq!(counters.softnet.keys().copied().collect::<Vec<_>>(), cpus);
    assert_eq!(counters.interrupts.cpus, cpus);
    assert!(cpus.iter().all(|cpu| counters.softirqs.contains_key(cpu)));
}

#[test]
fn a_queue_never_counts_more_than_its_interface() {
    let counters = Sampler::open().and_then(|mut s| s.read()).expect("rates can be read here");
    for link in counters.links.values().filter(|l| l.name != "lo") {
        let received: u64 = link.queues.values().filter_map(|q| q.rx_packets).sum();
        // The interface was read first: what came since is all that the queues may have more.
        assert!(received <= link.stats.rx_packets + 10_000, "{}: {received} > {:?}", link.name, link.stats);
    }
}
