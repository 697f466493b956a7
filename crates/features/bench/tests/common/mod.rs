//! Boxes of known answer: what the bench has to find out about each is known beforehand, and holds on the real data path.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses some of them")]

pub mod relay;

use std::{
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bench::{Cores, Dut};
use lab::{
    BoxKind, BoxSpec, Lab, TestBox,
    boxes::{Family, Napi},
};
use model::run::Sharing;

pub use relay::{Manners, RelayBox};

/// Whether this may run; says why not, and fails in CI.
pub fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    assert!(root || std::env::var_os("CI").is_none(), "this test takes root, and CI must not skip it");
    if !root {
        eprintln!("skipped: namespaces and kernel programs take root");
    }
    root
}

/// One test at a time: all send from the same core.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cores of this machine.
pub fn cores() -> Cores {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    Cores::split(&model::CpuSet::parse_list(online.trim()).unwrap()).unwrap()
}

/// A router that has no rules yet.
fn router(lab: &Lab, family: Family) -> TestBox {
    let cores = cores();
    let napi = match cores.sharing() {
        Sharing::Apart => Napi::Threads(cores.of_box),
        Sharing::Inline => Napi::Inline,
    };
    TestBox::build(lab, &BoxSpec { family, napi, ..BoxSpec::new(BoxKind::Router) }).unwrap()
}

/// Runs a program inside of the box.
fn inside(of: &TestBox, program: &str, args: &[&str]) {
    let run = || Command::new(program).args(args).output();
    let output = of.inside().unwrap().namespace.run(run).unwrap().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Sends `pps` packets of `frame_len` bytes (in memory, without FCS) per second out of its second port, and keeps `packets` more waiting.
/// What comes back is not held up.
///
/// A burst of n units that comes much faster loses nothing while n is at most `packets`, what leaves meanwhile, and one or two that the
/// bucket lets go at once.
pub fn token_bucket(lab: &Lab, family: Family, pps: u64, frame_len: u64, packets: u64) -> Dut {
    let made = router(lab, family);
    let exit = made.inside().unwrap().exit.as_ref().unwrap().name.clone();
    let (rate, limit) = (format!("{}bit", pps * frame_len * 8), format!("{}", packets * frame_len));
    let bucket = (2 * frame_len).to_string();
    inside(
        &made,
        "tc",
        &["qdisc", "add", "dev", &exit, "root", "tbf", "rate", &rate, "burst", &bucket, "limit", &limit],
    );
    Dut::from_box(made).unwrap()
}
