//! Guests as boxes of `evenkeel bench`.

use std::{sync::atomic::AtomicBool, time::Duration};

use ::bench::{
    Drain, Load, Order, RuleOrder, Stamping,
    benches::RealBenches,
    run::{self, Benches, Boxes, GuestBoxes, Request, TAPS, Test, WIRE},
};
use model::bench::FrameSpec;
use testbed::{guest_kernel, turn};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A run on emulated guests.
fn request(modes: Vec<String>) -> Request {
    let guests = GuestBoxes { modes, kernel: guest_kernel("6.1"), evenkeel: EVENKEEL.into(), emulated: true };
    Request {
        boxes: Boxes::Guests(guests),
        frames: vec![FrameSpec::Size { bytes: 64 }],
        tests: vec![Test::Throughput],
        preset: "quick".into(),
        loss_ratio: None,
        trial_s: None,
        repeats: None,
        one_way: false,
        flows: 1,
        ipv6: false,
        rules: 25,
        rule_order: RuleOrder::Study,
        bridged: false,
        cpus: [0, 1].into_iter().collect(),
    }
}

/// The way that KVM's owners go, with emulated guests: frames come through, and nothing is said of their rate.
#[test]
fn a_guest_is_a_box_of_bench() {
    let Some(_alone) = turn() else { return };
    let request = request(Vec::new());
    let mut benches = RealBenches::new(&request, &run::Settings::of(&request).unwrap()).unwrap();
    for key in [TAPS, "virtio:stateful", "e1000:router"] {
        let mut standing = benches.build(key).unwrap();
        assert_eq!(standing.identity.key, key);
        let order = Order {
            purpose: "test".into(),
            frame: request.frames[0].clone(),
            load: Load::Pps(500.0),
            duration: Duration::from_millis(500),
            probes: None,
            stamping: Stamping::Every,
            drain: Drain { quiet: Duration::from_millis(50), longest: Duration::from_secs(2), slack: 0.03 },
            observe: true,
        };
        let mut once = || standing.tester.trial(&order, &AtomicBool::new(false)).unwrap();
        // The first frames meet a link that has just come up.
        let mut trial = once();
        for _ in 1..10 {
            if trial.total().lost() > 0 {
                trial = once();
            }
        }
        let total = trial.total();
        assert!(total.sent > 100 && total.lost() == 0, "{key}: {trial:?}");
        assert!(!trial.observed.cores.is_empty(), "{key}: the cores of the host are watched: {trial:?}");
    }
    assert!(benches.build("virtio:bridge").is_err());
    assert!(benches.build(WIRE).is_ok());
}
