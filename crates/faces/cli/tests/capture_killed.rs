//! A capture that is killed leaves no kernel program behind.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bpf::xdp::attached;
use lab::Lab;

/// The capture, killed whatever happens.
struct Capture(Child);

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `is` answers yes; says `what` did not happen otherwise.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn kill_9_of_a_tap_leaves_no_program() {
    let lab = Lab::new("killed").and_then(|lab| Ok((lab.namespace("a")?, lab.namespace("b")?, lab)));
    let (a, b, lab) = match lab {
        Ok(lab) => lab,
        Err(e) => {
            assert!(std::env::var_os("CI").is_none(), "a lab is needed: {e}");
            eprintln!("skipped: {e}");
            return;
        }
    };
    let (out, into) = (lab.interface("ka"), lab.interface("kb"));
    lab.veth((&a, &out), (&b, &into), 1).unwrap();
    for mode in [&["--mode", "tap"][..], &["--mode", "tap", "--consume"], &["--mode", "xdp"]] {
        let start = || {
            Command::new(env!("CARGO_BIN_EXE_evenkeel"))
                .args(["capture", &into, "--quiet"])
                .args(mode)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut capture = Capture(b.run(start).unwrap());
        let program = || b.run(|| attached(&into).unwrap()).unwrap();
        wait_until("the attachment", || {
            assert!(capture.0.try_wait().unwrap().is_none(), "the capture with {mode:?} ended by itself");
            program().is_some()
        });
        let id = program().unwrap().id;
        capture.0.kill().unwrap();
        capture.0.wait().unwrap();
        // The kernel takes a link of a dead process away a moment later, and its program after a grace period.
        wait_until("the detachment", || program().is_none());
        wait_until("the program's end", || {
            let shown = Command::new("bpftool").args(["prog", "show", "id", &id.to_string()]).output();
            !shown.expect("bpftool is installed").status.success()
        });
        let promiscuous = b.run(|| fs::read_to_string(format!("/sys/class/net/{into}/flags")).unwrap()).unwrap();
        let flags = u32::from_str_radix(promiscuous.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(flags & 0x100, 0, "IFF_PROMISC stays set after {mode:?}");
    }
}
