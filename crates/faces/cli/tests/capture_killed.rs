//! A capture that is killed leaves no kernel program behind.

use std::process::Command;

use bpf::link::attached;
use testbed::{Bed, Running, wait};

#[test]
fn kill_9_of_a_tap_leaves_no_program() {
    let Some((_bed, [_, into])) = Bed::pair("killed") else { return };
    for mode in [&["--backend", "tap"][..], &["--backend", "tap", "--consume"], &["--backend", "xdp"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.args(["capture", into.interface(), "--quiet"]).args(mode);
        let mut capture = into.run(|| Running::silent(&mut command));
        let program = || into.run(|| attached(into.interface()).unwrap());
        wait("the attachment", || {
            assert!(capture.ended().is_none(), "the capture with {mode:?} ended by itself");
            program().is_some()
        });
        let id = program().unwrap().id;
        capture.kill();
        // The kernel takes a link of a dead process away a moment later, and its program after a grace period.
        wait("the detachment", || program().is_none());
        wait("the program's end", || {
            let shown = Command::new("bpftool").args(["prog", "show", "id", &id.to_string()]).output();
            !shown.expect("bpftool is installed").status.success()
        });
        let promiscuous = into.read(&format!("/sys/class/net/{}/flags", into.interface()));
        let flags = u32::from_str_radix(promiscuous.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(flags & 0x100, 0, "IFF_PROMISC stays set after {mode:?}");
    }
}
