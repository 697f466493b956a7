//! Boxes of known answer: what the bench has to find out about each is known beforehand, and holds on the real data path.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses some of them")]

pub mod relay;

use std::time::Duration;

use bench::{Cores, Drain, Dut, Load, Order, Stamping};
use lab::{
    BoxKind, BoxSpec, Lab, TestBox,
    boxes::{Family, Napi},
};
use model::{bench::FrameSpec, run::Sharing};
use testbed::Space;

pub use relay::{Faults, RelayBox};

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

/// Sends `pps` packets of `frame_len` bytes (in memory, without FCS) per second out of its second port, and keeps `packets` more waiting.
/// Frames of the way back are not held up.
///
/// A burst of n units that comes much faster loses nothing while n is at most `packets`, what leaves meanwhile, and one or two that the
/// bucket lets go at once.
pub fn token_bucket(lab: &Lab, family: Family, pps: u64, frame_len: u64, packets: u64) -> Dut {
    let made = router(lab, family);
    let exit = made.inside().unwrap().exit.as_ref().unwrap().name.clone();
    let (rate, limit) = (format!("{}bit", pps * frame_len * 8), format!("{}", packets * frame_len));
    let qdisc = format!("tc qdisc add dev {exit} root tbf rate {rate} burst {} limit {limit}", 2 * frame_len);
    Space::of(&made.inside().unwrap().namespace).output(&qdisc);
    Dut::from_box(made).unwrap()
}

/// An order of units that are all stamped.
pub fn order(frame: FrameSpec, load: Load, duration: Duration) -> Order {
    Order {
        purpose: "test".into(),
        frame,
        load,
        duration,
        probes: None,
        stamping: Stamping::Every,
        drain: Drain { quiet: Duration::from_millis(50), longest: Duration::from_secs(2), slack: 0.03 },
        observe: false,
    }
}
