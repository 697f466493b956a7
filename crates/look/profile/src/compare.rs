//! Two profiles, class by class: pure.

use model::profile::{Class, ClassDifference, Comparison, Profile};

/// Lays two profiles side by side. What differs by less than the sampling error is marked so.
pub fn compare((a_name, a): (&str, &Profile), (b_name, b): (&str, &Profile)) -> Comparison {
    let mut classes: Vec<ClassDifference> = Class::ALL
        .into_iter()
        .filter(|&class| a.class(class).is_some() || b.class(class).is_some())
        .map(|class| difference(class, a, b))
        .collect();
    let size = |d: &ClassDifference| (d.b_percent - d.a_percent).abs();
    classes.sort_by(|x, y| y.class.is_busy().cmp(&x.class.is_busy()).then(size(y).total_cmp(&size(x))));
    Comparison {
        a: a_name.to_owned(),
        b: b_name.to_owned(),
        a_packets: a.packets.clone(),
        b_packets: b.packets.clone(),
        classes,
        notes: notes(a, b),
    }
}

fn difference(class: Class, a: &Profile, b: &Profile) -> ClassDifference {
    let (one, other) = (a.class(class), b.class(class));
    // A class that a profile lacks may have been there and never been hit: as many as one sample.
    let error = |profile: &Profile| {
        let known = profile.class(class).map_or(0.0, |c| c.error);
        if class == Class::Steal { 0.0 } else { known.max(200.0 / profile.samples.max(1) as f64) }
    };
    let (a_percent, b_percent) = (a.percent(class), b.percent(class));
    let percent_error = error(a).hypot(error(b));
    let ns_of = |profile: &Profile| {
        let packets = profile.packets.as_ref().filter(|p| p.packets > 0)?;
        let core_ns = profile.seconds * 1e9 * profile.cores.len() as f64;
        class.is_busy().then_some(core_ns / packets.packets as f64 / 100.0)
    };
    let (a_scale, b_scale) = (ns_of(a), ns_of(b));
    let a_ns = a_scale.map(|_| one.and_then(|c| c.ns_per_packet).unwrap_or(0.0));
    let b_ns = b_scale.map(|_| other.and_then(|c| c.ns_per_packet).unwrap_or(0.0));
    let ns_error = a_scale.zip(b_scale).map(|(x, y)| (x * error(a)).hypot(y * error(b)));
    let ns_differs = a_ns.zip(b_ns).zip(ns_error).map(|((x, y), e)| (x - y).abs() > e);
    ClassDifference {
        class,
        a_percent,
        b_percent,
        percent_error,
        percent_differs: (a_percent - b_percent).abs() > percent_error,
        a_ns,
        b_ns,
        ns_error,
        ns_differs,
    }
}

fn notes(a: &Profile, b: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differs = |what: &str, a: &str, b: &str| {
        if a != b {
            notes.push(format!("the {what} differs: {a} and {b}"));
        }
    };
    differs("machine", &a.machine.hostname, &b.machine.hostname);
    differs("kernel", &a.machine.kernel, &b.machine.kernel);
    differs("number of CPUs", &a.cores.len().to_string(), &b.cores.len().to_string());
    if let (Some(x), Some(y)) = (&a.packets, &b.packets) {
        differs("count of packets", &x.what, &y.what);
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{profile::PacketBase, run::Machine};

    use super::*;
    use crate::tally::{Seen, Tally};

    fn profile(counts: &[(&str, u64)], packets: Option<u64>) -> Profile {
        let mut tally = Tally::new();
        for &(function, samples) in counts {
            tally.add(&Seen { frames: vec![function], samples, ..Seen::default() });
        }
        let packets = packets.map(|n| PacketBase { what: "received by eth0".into(), packets: n, pps: n as f64 });
        tally.profile(1.0, &BTreeMap::new(), packets, Profile::new(String::new(), Machine::default(), 99))
    }

    fn of(comparison: &Comparison, class: Class) -> &ClassDifference {
        comparison.classes.iter().find(|d| d.class == class).unwrap()
    }

    #[test]
    fn only_what_exceeds_the_sampling_error_differs() {
        let a = profile(&[("kfree", 250), ("ip_rcv", 300), ("do_idle", 450)], Some(1_000_000));
        let b = profile(&[("kfree", 10), ("ip_rcv", 310), ("do_idle", 680)], Some(2_000_000));
        let got = compare(("a", &a), ("b", &b));
        let memory = of(&got, Class::Memory);
        assert_eq!((memory.a_percent, memory.b_percent, memory.percent_differs), (25.0, 1.0, true));
        assert_eq!((memory.a_ns, memory.b_ns, memory.ns_differs), (Some(250.0), Some(5.0), Some(true)));
        let ip = of(&got, Class::Ip);
        assert!(!ip.percent_differs && (4.0..4.3).contains(&ip.percent_error));
        // Half the cost per packet at the same share: that does differ.
        assert_eq!(ip.ns_differs, Some(true));
        assert_eq!(of(&got, Class::Idle).a_ns, None);
        assert_eq!(got.classes.first().unwrap().class, Class::Memory);
    }

    #[test]
    fn a_class_that_one_lacks_is_compared_with_nothing() {
        let (a, b) = (profile(&[("nft_do_chain", 1), ("ip_rcv", 999)], None), profile(&[("ip_rcv", 1000)], None));
        let got = compare(("a", &a), ("b", &b));
        let netfilter = of(&got, Class::Netfilter);
        assert!(!netfilter.percent_differs, "one sample of a thousand is chance");
        assert_eq!((netfilter.b_percent, netfilter.ns_differs), (0.0, None));
        assert!(got.notes.is_empty());
        let mut other = b.clone();
        other.machine.kernel = "6.1".into();
        assert_eq!(compare(("a", &b), ("b", &other)).notes.len(), 1);
    }
}
