//! Control groups of a run, on this machine.

use std::{
    fs,
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

use lab::{Group, dead_groups};
use testbed::privileged;

fn burn(group: &Group) -> Child {
    let script = format!("{} && while :; do :; done", group.enter());
    Command::new("sh").args(["-c", &script]).spawn().unwrap()
}

#[test]
fn a_group_limits_what_runs_in_it_and_takes_it_away() {
    let Some(()) = privileged() else { return };
    let group = Group::new("groups", "limited").unwrap();
    group.limit_cpus(0.2).unwrap();
    let mut child = burn(&group);
    sleep(Duration::from_secs(1));
    let throttled = group.throttled();
    // A period is a tenth of a second, and a fifth of it is its own.
    assert!(throttled.periods >= 5 && throttled.held_back >= 4 && throttled.ns > 100_000_000, "{throttled:?}");
    assert_eq!(group.processes(), [child.id()]);
    let text = fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap();
    let ran_ns: u64 = text.split(' ').next().unwrap().parse().unwrap();
    assert!((100_000_000..350_000_000).contains(&ran_ns), "{ran_ns} of 1 s");
    group.confine(&"0".parse().unwrap()).unwrap();
    group.limit_memory(100 << 20).unwrap();

    let began = Instant::now();
    drop(group);
    assert!(!child.wait().unwrap().success() && began.elapsed() < Duration::from_secs(3), "it was killed");
    assert!(dead_groups().iter().all(|folder| !folder.display().to_string().contains("-groups-")), "nothing stays");
}
