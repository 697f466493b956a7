//! Trials of the kernel's parts outside its packet paths.

use std::{fs, path::Path, process::Command, sync::mpsc, thread, time::Duration};

use bpf::{
    CpuProfile, ProfileOptions,
    drops::{DropOptions, DropTrace},
    probe,
};
use nix::sys::signal::SigSet;
use sys::{
    privilege::Capability,
    seccomp_notify::{Answer, Call, Filter, start},
};

use crate::{
    Place, process,
    trial::{CALL, LAB, Need, Tried, words},
};

const BPF: &[Capability] = &[Capability::CAP_BPF];
const TRACING: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_PERFMON];
const BPFFS: &str = "/sys/fs/bpf";
/// Size of a map that counts against the limit on locked memory.
const MAP_BYTES: u32 = 8 << 20;
/// Time within which a program ends that does nothing.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which a clock of 99 Hz ticks.
const SAMPLING_TIME: Duration = Duration::from_millis(100);

pub(super) const NEEDS: &[Need] = &[
    Need {
        name: "BTF",
        verbs: &["ledger", "profile", "shield", "route", "capture", "link"],
        capabilities: &[],
        trial: |_| probe::types().map(|()| Tried::works("")).map_err(words),
        fix: "boot a kernel with CONFIG_DEBUG_INFO_BTF, as those of distributions are",
    },
    Need {
        name: CALL,
        verbs: &["ledger", "profile", "capture", "shield", "route", "link", "gen"],
        capabilities: BPF,
        trial: |place| place.bpf.clone().map(|()| Tried::works("")),
        fix: "run it outside of the container, or let its seccomp filter pass bpf(2); see lockdown in kernel_lockdown(7)",
    },
    Need {
        name: "memory of maps (8 MiB)",
        verbs: &["shield", "route"],
        capabilities: BPF,
        trial: |_| probe::map(MAP_BYTES).map(|()| Tried::works("")).map_err(words),
        fix: "raise the limit on locked memory (`ulimit -l unlimited`, LimitMEMLOCK=infinity)",
    },
    Need {
        name: "BPF file system",
        verbs: &["shield", "route"],
        capabilities: BPF,
        trial: bpffs,
        fix: "mount -t bpf -o mode=700 bpf /sys/fs/bpf",
    },
    Need {
        name: LAB,
        verbs: &["bench", "demo", "link run"],
        capabilities: &[Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN],
        trial: |place| place.bed().map(|_| Tried::works("")),
        fix: "boot a kernel with CONFIG_NET_NS and CONFIG_VETH (modprobe veth), outside of a container",
    },
    Need {
        name: "perf events",
        verbs: &["profile"],
        capabilities: TRACING,
        trial: perf,
        fix: "boot a kernel with CONFIG_PERF_EVENTS; a container's seccomp filter may forbid perf_event_open",
    },
    Need {
        name: "tracepoint skb:kfree_skb",
        verbs: &["ledger", "profile"],
        capabilities: TRACING,
        trial: drops,
        fix: "boot a kernel with BTF and tracepoints",
    },
    Need {
        name: "seccomp user notification",
        verbs: &["link run"],
        capabilities: &[],
        trial: seccomp,
        fix: "boot a kernel with CONFIG_SECCOMP_FILTER; without it static programs and those in Go stay on TCP",
    },
    Need {
        name: "control groups",
        verbs: &["bench --neighbour"],
        capabilities: &[Capability::CAP_SYS_ADMIN],
        trial: groups,
        fix: "mount -t cgroup2 none /sys/fs/cgroup",
    },
    Need {
        name: "KVM",
        verbs: &["bench"],
        capabilities: &[],
        trial: |_| {
            Ok(match sys::kvm::exit_ns() {
                Ok(ns) => Tried::works(format!("an exit takes {ns:.0} ns")),
                Err(e) => {
                    Tried::limited(words(e), "expect emulated guests: `bench --dut guest` counts in place of measuring")
                }
            })
        },
        fix: "",
    },
];

fn bpffs(_: &Place<'_>) -> Result<Tried, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(words)?;
    let is_bpf = |line: &str| line.split(' ').nth(1) == Some(BPFFS) && line.split(' ').nth(2) == Some("bpf");
    if !mounts.lines().any(is_bpf) {
        return Err(format!("{BPFFS} is not mounted"));
    }
    let path = Path::new(BPFFS).join(host::owner::name("selftest", "pin"));
    probe::pin(&path).map(|()| Tried::works("")).map_err(words)
}

fn perf(_: &Place<'_>) -> Result<Tried, String> {
    let mut profile = CpuProfile::open(&ProfileOptions::of([0])).map_err(words)?;
    std::thread::sleep(SAMPLING_TIME);
    let count = profile.read().map_err(words)?.len();
    match count {
        0 => Err("the clock of CPU 0 does not tick".into()),
        count => Ok(Tried::works(format!("{count} stacks of CPU 0"))),
    }
}

fn drops(_: &Place<'_>) -> Result<Tried, String> {
    let trace = DropTrace::open(&DropOptions::default()).map_err(words)?;
    trace.read().map_err(words)?;
    Ok(match trace.unavailable() {
        [] => Tried::works(""),
        lacking => Tried::limited(
            format!("it lacks {}", lacking.join(", ")),
            "boot a newer kernel; on this one such losses stay unexplained",
        ),
    })
}

fn seccomp(_: &Place<'_>) -> Result<Tried, String> {
    let filter = Filter::new(&[Call::Getsockname.into()]).map_err(words)?;
    let (mut child, listener) = start(Command::new("true"), filter, SigSet::empty()).map_err(words)?;
    let (sender, ended) = mpsc::channel();
    // Before Linux 6.11 the listener ends only after wait(2) for the program. If it never ends, this thread stays.
    thread::spawn(move || {
        let hear = || -> Result<(), String> {
            while let Some(heard) = listener.receive().map_err(words)? {
                listener.answer(heard.id, Answer::Continue).map_err(words)?;
            }
            Ok(())
        };
        let _ = sender.send(hear());
    });
    child.wait().map_err(words)?;
    ended.recv_timeout(END_TIMEOUT).map_err(|_| "the end of a program is not heard".to_owned())??;
    Ok(Tried::works(""))
}

fn groups(_: &Place<'_>) -> Result<Tried, String> {
    let group = lab::Group::new("selftest", "group").map_err(words)?;
    let mut sleeping = Command::new("sh");
    sleeping.args(["-c", &format!("{} && echo moved && exec sleep 30", group.enter())]);
    let mut sleeping = process::Running::start(&mut sleeping).map_err(words)?;
    if !sleeping.has_printed("moved", END_TIMEOUT) || group.processes().is_empty() {
        return Err(format!("no process can be moved: {}", sleeping.end(Duration::ZERO).last_words()));
    }
    let is_v2 = group.enter().contains("/unified/") || Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    Ok(Tried::works(if is_v2 { "version 2" } else { "version 1" }))
}
