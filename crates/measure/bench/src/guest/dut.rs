//! A guest as a box of bench, where KVM carries it, and QEMU without one.

use std::{fs, str::FromStr, time::Duration};

use guest::{Accel, Guest, Kernel, Nic, Patch, Root, Settings};
use lab::boxes::{Family, Ruleset, filter_text};
use sys::affinity::set_cpus;

use super::{
    bed::Bed,
    inside::{self, checked},
};
use crate::{
    BenchError, Dut, DutKind, DutOptions,
    dut::Identity,
    run::{GuestBoxes, TAPS},
};

/// A guest answers within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const MEMORY_MIB: u32 = 1024;
/// Path of the rules in the guest.
const RULES: &str = "/tmp/rules";

/// Builds what `key` names: [`TAPS`], or `CARD:KIND` with the kinds router, stateful, stateless.
///
/// # Errors
/// [`BenchError::Setting`] for other keys and for IPv6; what QEMU, the guest or the kernel says.
pub(crate) fn build(boxes: &GuestBoxes, key: &str, options: &DutOptions<'_>) -> Result<Dut, BenchError> {
    if options.family != Family::V4 {
        return Err(BenchError::Setting("guests forward IPv4: leave --ipv6 out".into()));
    }
    let cpus: Vec<String> = options.cores.of_box.iter().map(u32::to_string).collect();
    let cpu_list = cpus.join(",");
    let within = ["taskset", "-c", &cpu_list].map(str::to_owned);
    if key == TAPS {
        let bed = Bed::new(&Nic::Virtio)?;
        let [first, second] = &bed.taps;
        let patch = Patch::start([first, second], &bed.space.path(), &within)?;
        let identity = Identity {
            key: TAPS.into(),
            name: "no guest".into(),
            what: "QEMU without a guest carries each frame from one tap device to the other: what its own way costs."
                .into(),
            settings: vec![format!("taskset -c {cpu_list} qemu-system-x86_64 -machine none, a hub between two taps")],
        };
        return Ok(Dut::here(bed.ports(false)?, identity, Box::new((patch, bed))));
    }
    let unknown = || BenchError::Setting(format!("a guest is named as CARD:KIND, such as virtio:router, not `{key}`"));
    let (nic, kind) = key.rsplit_once(':').ok_or_else(unknown)?;
    let (nic, kind) = (Nic::from_str(nic)?, DutKind::from_str(kind)?);
    let kernel = Kernel::open(Some(&boxes.kernel))?;
    let root = Root::make(&kernel, &nic, &boxes.evenkeel)?;
    let bed = Bed::new(&nic)?;
    let settings = Settings {
        nic: nic.clone(),
        cards: bed.cards(),
        accel: if boxes.emulated { Accel::Emulation } else { Accel::Kvm },
        cpus: options.cores.of_box.len().max(1) as u32,
        memory_mib: MEMORY_MIB,
        traced: false,
        namespace: Some(bed.space.path()),
        within: within.into(),
        disk: None,
    };
    let mut guest = Guest::start(&settings, &kernel, &root, ANSWER_TIMEOUT)?;
    let [entry, exit] = inside::route(&mut guest, &bed)?;
    let stateful = kind == DutKind::Stateful;
    match kind {
        DutKind::Router => {}
        DutKind::Stateful | DutKind::Stateless => {
            let rules = Ruleset { rules: options.rules, stateful, form: options.order.form() };
            guest.write(RULES, &filter_text(&rules, &options.family.whole(), [&entry, &exit]))?;
            checked(&mut guest, &["nft", "-j", "-f", RULES])?;
        }
        _ => return Err(unknown()),
    }
    let pinned = pin(&guest, &options.cores.of_box)?;
    let identity = Identity {
        key: key.to_owned(),
        name: format!("{kind} in a guest, {nic}"),
        what: format!(
            "A guest of Linux {} with two cards of the model {nic}, which forwards between them as the {kind} does.",
            guest.release
        ),
        settings: [
            Guest::command_line(&settings, &kernel.image, "ROOT".as_ref(), "FOLDER".as_ref()).join(" "),
            format!("QEMU, its helpers and vhost on CPU {cpu_list}; {pinned}"),
        ]
        .into(),
    };
    Ok(Dut::here(bed.ports(true)?, identity, Box::new((std::sync::Mutex::new(guest), root, bed))))
}

/// Gives each processor of a guest a core of its own, and the host's threads of its cards the box's cores; what was done.
fn pin(guest: &Guest, cores: &[u32]) -> Result<String, BenchError> {
    let failed = |e: &dyn std::fmt::Display| BenchError::Machine(format!("cannot pin the threads of QEMU: {e}"));
    let pid = guest.pid();
    let mut done = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| failed(&e))?.flatten() {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let tid = thread.file_name().to_str().and_then(|tid| tid.parse::<u32>().ok());
        let number = name.strip_prefix("CPU ").and_then(|rest| rest.split('/').next()?.parse::<usize>().ok());
        if let (Some(tid), Some(number)) = (tid, number) {
            let core = cores[number % cores.len()];
            set_cpus(tid, [core]).map_err(|e| failed(&e))?;
            done.push(format!("virtual CPU {number} on CPU {core}"));
        }
    }
    let vhost = format!("vhost-{pid}");
    for (tid, task) in host::counters::task_times(&host::Root::live()) {
        if task.process == vhost {
            set_cpus(tid, cores.iter().copied()).map_err(|e| failed(&e))?;
        }
    }
    done.sort();
    Ok(done.join(", "))
}
