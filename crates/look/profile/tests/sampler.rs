//! Samples and names together, on real packets: what the kernel does for them is found by the names of its functions.

use std::{
    net::{Ipv4Addr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use bpf::{CpuProfile, ProfileOptions, StackCount};
use host::{
    Root,
    symbols::{KernelSymbols, SymbolError},
};
use model::{Classified, ErrorClass};
use testbed::{Bed, privileged};

/// Sends datagrams from one namespace to a socket in another that nobody reads, for a second, from one CPU.
fn flood(name: &'static str, cpu: u32) -> u64 {
    let (_bed, [a, b]) = Bed::pair("sampler").expect("root");
    let (from, to) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2));
    for (end, own, other, owner) in [(&a, from, to, &b), (&b, to, from, &a)] {
        end.address(&format!("{own}/24"));
        end.knows(&other.to_string(), owner);
    }
    let sink = b.run(|| UdpSocket::bind((to, 9)).unwrap());
    let source = a.run(|| UdpSocket::bind((from, 0)).unwrap());
    let sender = move || {
        sys::affinity::pin_current_thread(cpu).unwrap();
        let end = Instant::now() + Duration::from_secs(1);
        let mut sent = 0;
        while Instant::now() < end {
            for _ in 0..64 {
                sent += u64::from(source.send_to(&[0; 18], (to, 9)).is_ok());
            }
        }
        sent
    };
    let sent = thread::Builder::new().name(name.to_owned()).spawn(sender).unwrap().join().unwrap();
    drop(sink);
    sent
}

/// Samples in whose stack a function of this name lies.
fn within(all: &[StackCount], symbols: &KernelSymbols, function: &str) -> u64 {
    let has = |c: &&StackCount| symbols.stack(&c.kernel).iter().flatten().any(|s| s.function() == function);
    all.iter().filter(has).map(|c| c.samples).sum()
}

#[test]
fn a_flood_over_a_veth_is_seen_in_the_functions_that_carry_it() {
    if !privileged() {
        return;
    }
    let cpu = 0;
    let mut profile = CpuProfile::open(&ProfileOptions { frequency_hz: 1999, cpus: vec![cpu] }).unwrap();
    let sent = flood("ek-floods", cpu);
    assert!(sent > 0);
    let all = profile.read().unwrap();
    let symbols = KernelSymbols::load(&Root::live()).unwrap();
    let ours: Vec<StackCount> = all.iter().filter(|c| c.comm == "ek-floods").cloned().collect();
    let total: u64 = ours.iter().map(|c| c.samples).sum();
    for function in ["udp_sendmsg", "veth_xmit", "ip_rcv", "process_backlog", "udp_queue_rcv_one_skb"] {
        let found = within(&ours, &symbols, function);
        eprintln!("{function}: {found} of {total}");
        assert!(found > 0, "{function} in none of {total} samples");
    }
    // The receiving half runs in the soft interrupt, on top of the sender.
    let softirq = within(&ours, &symbols, "handle_softirqs") + within(&ours, &symbols, "__do_softirq");
    assert!(softirq >= within(&ours, &symbols, "ip_rcv"), "{softirq}");
    let unnamed: Vec<_> = all.iter().filter(|c| symbols.stack(&c.kernel).iter().any(Option::is_none)).collect();
    assert!(unnamed.is_empty(), "{unnamed:x?}");
    assert_eq!(profile.counts().unwrap().lost(), 0);
}

#[test]
fn a_bpf_program_that_came_later_is_in_the_table_read_again() {
    if !privileged() {
        return;
    }
    let mut symbols = KernelSymbols::load(&Root::live()).unwrap();
    let profile = CpuProfile::open(&ProfileOptions::of([0])).unwrap();
    let listed = std::fs::read_to_string("/proc/kallsyms").unwrap();
    // Another test may have one too, and end it meanwhile; ours stays.
    symbols.reload().unwrap();
    let named = |line: &&str| {
        let address = line.split(' ').next().and_then(|a| u64::from_str_radix(a, 16).ok()).unwrap();
        symbols
            .lookup(address)
            .is_some_and(|s| s.name.ends_with("_sample_cpu") && s.module == Some("bpf") && s.offset == 0)
    };
    let ours: Vec<&str> = listed.lines().filter(|l| l.contains("_sample_cpu\t[bpf]")).collect();
    assert!(ours.iter().any(named), "{ours:?}");
    drop(profile);
}

#[test]
fn without_privilege_the_hidden_table_is_an_error_that_says_so() {
    if !privileged() {
        return;
    }
    let loaded = thread::spawn(|| {
        sys::privilege::drop_all_but(&[]).unwrap();
        KernelSymbols::load(&Root::live()).map(|_| ())
    })
    .join()
    .unwrap();
    match loaded {
        Err(e @ SymbolError::Hidden { .. }) => {
            assert_eq!(e.class(), ErrorClass::Lacking);
            assert!(e.to_string().contains("run as root") || e.to_string().contains("as root, `sysctl"), "{e}");
            eprintln!("{e}");
        }
        Err(other) => panic!("{other}"),
        // A machine that shows them to everybody.
        Ok(()) => {
            let sysctl = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
            assert_eq!(sysctl("kptr_restrict").trim(), "0");
            assert!(sysctl("perf_event_paranoid").trim().parse::<i32>().unwrap() <= 1);
        }
    }
}
