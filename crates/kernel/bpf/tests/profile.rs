//! The sampler against what the kernel accounts by itself.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bpf::{CpuProfile, ProfileError, ProfileOptions, StackCount};
use model::{Classified, ErrorClass};
use testbed::privileged;

fn options(frequency_hz: u32, cpus: &[u32]) -> ProfileOptions {
    ProfileOptions { frequency_hz, cpus: cpus.to_vec() }
}

/// A CPU of this machine that this process may use.
fn a_cpu() -> u32 {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    (0..nix::sched::CpuSet::count()).rev().find(|&c| set.is_set(c).unwrap()).unwrap() as u32
}

fn samples<'a>(counts: impl IntoIterator<Item = &'a StackCount>) -> u64 {
    counts.into_iter().map(|c| c.samples).sum()
}

/// Runs `work` under a name, on a CPU, until the clock there has ticked often enough.
fn busy(name: &str, cpu: u32, profile: &CpuProfile, mut work: impl FnMut() + Send) {
    let body = || {
        sys::affinity::pin_current_thread(cpu).unwrap();
        while profile.counts().unwrap().samples < 500 {
            (0..20).for_each(|_| work());
        }
    };
    thread::scope(|scope| {
        thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body).unwrap().join().unwrap();
    });
}

/// The samples are those the clock took: all but the lost ones and what it ticked since.
#[track_caller]
fn assert_whole(all: &[StackCount], profile: &CpuProfile) {
    let counts = profile.counts().unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let seen = samples(all);
    assert!((500..=counts.samples).contains(&seen), "{seen} samples of {counts:?}");
}

#[test]
fn a_loop_in_user_space_is_seen_as_user_time_of_its_name_on_its_cpu() {
    let Some(()) = privileged() else { return };
    let (cpu, hz) = (a_cpu(), 997);
    let mut profile = CpuProfile::open(&options(hz, &[cpu])).unwrap();
    busy("ek-spins", cpu, &profile, || {
        for i in 0..100_000u64 {
            std::hint::black_box(i);
        }
    });
    let all = profile.read().unwrap();
    let ours: Vec<_> = all.iter().filter(|c| c.comm == "ek-spins").collect();
    assert!(ours.iter().all(|c| c.cpu == cpu && c.pid == std::process::id() && !c.idle_task), "{ours:?}");
    assert_whole(&all, &profile);
    let user = samples(ours.iter().copied().filter(|c| c.user));
    assert!(user * 2 > samples(ours.iter().copied()), "{ours:?}");
    assert!(all.iter().all(|c| c.cpu == cpu && c.user == c.kernel.is_empty()));
}

#[test]
fn a_loop_of_system_calls_is_seen_in_the_kernel_with_its_stacks() {
    let Some(()) = privileged() else { return };
    let (cpu, hz) = (a_cpu(), 997);
    let mut profile = CpuProfile::open(&options(hz, &[cpu])).unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![0u8; 1 << 20];
    busy("ek-reads", cpu, &profile, move || {
        std::io::Read::read_exact(&mut &zero, &mut buffer).unwrap();
    });
    let all = profile.read().unwrap();
    let ours: Vec<_> = all.iter().filter(|c| c.comm == "ek-reads").collect();
    let kernel: Vec<_> = ours.iter().copied().filter(|c| !c.user).collect();
    assert_whole(&all, &profile);
    assert!(samples(kernel.iter().copied()) * 2 > samples(ours.iter().copied()), "{ours:?}");
    // From the function that fills the buffer out to the entry of the system call.
    let depth = kernel.iter().map(|c| c.kernel.len()).max().unwrap();
    assert!(depth >= 4, "{depth} frames");
    // One key, one stack: nothing is there twice.
    let keys: BTreeSet<_> = all.iter().map(|c| (c.cpu, c.pid, &c.comm, &c.kernel, c.user)).collect();
    assert_eq!(keys.len(), all.len());
}

#[test]
fn readings_are_what_came_since_the_one_before_and_lose_nothing() {
    let Some(()) = privileged() else { return };
    static STOP: AtomicBool = AtomicBool::new(false);
    let cpu = a_cpu();
    let spinner = thread::spawn(move || {
        sys::affinity::pin_current_thread(cpu).unwrap();
        while !STOP.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    // Ticks fast enough that many fall into the readings.
    let mut profile = CpuProfile::open(&options(20_000, &[cpu])).unwrap();
    let mut read = 0;
    for _ in 0..20 {
        let before = profile.counts().unwrap();
        let new = samples(&profile.read().unwrap());
        read += new;
        let after = profile.counts().unwrap();
        assert!(read <= after.samples - after.lost(), "{read} read of {after:?}");
        assert!(read >= before.samples - after.lost(), "{read} read, {before:?} were there before");
        thread::sleep(Duration::from_millis(5));
    }
    STOP.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
    assert!(read > 0);
}

#[test]
fn the_idle_task_is_reported() {
    let Some(()) = privileged() else { return };
    let cpus = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).unwrap().unwrap() as u32;
    let online: Vec<u32> = (0..cpus).collect();
    let mut profile = CpuProfile::open(&ProfileOptions::of(online)).unwrap();
    thread::sleep(Duration::from_millis(300));
    for count in profile.read().unwrap() {
        assert_eq!(count.idle_task, count.comm.starts_with("swapper/"), "{count:?}");
        assert!(!(count.idle_task && count.user), "{count:?}");
    }
}

#[test]
fn an_absent_cpu_and_no_frequency_are_refused() {
    let Some(()) = privileged() else { return };
    let absent = CpuProfile::open(&options(99, &[0, 4095])).unwrap_err();
    assert!(matches!(absent, ProfileError::Clock(_)), "{absent}");
    assert_eq!(absent.class(), ErrorClass::Usage);
    assert!(absent.to_string().contains("CPU 4095"), "{absent}");
    for hz in [0, 100_001, u32::MAX] {
        let error = CpuProfile::open(&options(hz, &[0])).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Usage, "{error}");
    }
    // No CPU at all: nothing to see, and no error.
    assert_eq!(CpuProfile::open(&options(99, &[])).unwrap().read().unwrap(), []);
}

#[test]
fn without_privilege_the_refusal_says_what_it_takes() {
    let Some(()) = privileged() else { return };
    let error = thread::spawn(|| {
        sys::privilege::drop_all_but(&[]).unwrap();
        CpuProfile::open(&options(99, &[0])).unwrap_err()
    })
    .join()
    .unwrap();
    assert_eq!(error.class(), ErrorClass::Lacking);
    assert!(error.to_string().contains("run as root"), "{error}");
    eprintln!("{error}");
}
