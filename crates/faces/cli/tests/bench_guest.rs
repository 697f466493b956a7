//! `evenkeel bench --dut guest`, and a guest that panics.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use guest::{Accel, Guest, GuestError, Kernel, Nic, Root, Settings};
use serde_json::Value;
use testbed::{ended, guest_kernel, json, printed, privileged, refused, words};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

fn bench(args: &[&str]) -> Output {
    Command::new(EVENKEEL).args(["bench", "--dut", "guest"]).args(args).output().unwrap()
}

#[test]
fn what_a_card_model_asks_for_is_counted_and_verbs_work_on_it() {
    let Some(()) = privileged() else { return };
    let (kernel, folder) = (guest_kernel("6.1"), tempfile::tempdir().unwrap());
    let page = folder.path().join("page.html");
    let ran = bench(&words(&format!(
        "--guest-kernel {} --nic virtio-mq,passthrough=00:1f.6 --repeats 1 --json --html {}",
        kernel.display(),
        page.display()
    )));
    let run = json(&ran);
    // One of a verb that fails has the exit code 1: all of them are looked at.
    let cards = run["cards"].as_array().unwrap();
    assert_eq!(cards.len(), 1, "{run}");
    for card in cards {
        for verb in card["verbs"].as_array().unwrap() {
            assert_eq!(verb["outcome"], "works", "{}: {verb}", card["nic"]);
        }
        let bursts = card["bursts"].as_array().unwrap();
        let accesses = |burst: &Value| {
            let of = |name: &str| burst["median"][name].as_f64().unwrap();
            of("reads") + of("writes") + of("notifications")
        };
        let [one, eight] = [&bursts[0], &bursts[1]].map(accesses);
        assert!(one > 0.5 && eight < one, "{}: frames that come together share accesses: {one} {eight}", card["nic"]);
        assert!(bursts[0]["median"]["interrupts"].as_f64() > Some(0.5), "{card}");
        assert_eq!(bursts[0]["lost"], 0);
    }
    // Two queues of two cards each way were on one CPU.
    let spread = cards[0]["verbs"].as_array().unwrap().iter().find(|verb| verb["command"] == "spread apply, undo");
    let printed = spread.unwrap()["message"].as_str().unwrap();
    assert!(printed.starts_with("moved 4 of") && printed.ends_with("exactly as before again"), "{printed}");
    assert!(cards[0]["libvirt"].as_str().unwrap().contains("queues='2'"), "{}", cards[0]);
    let drawn = fs::read_to_string(&page).unwrap();
    // Where KVM measures no exit and nobody gave one, there is nothing to model with.
    let exit_known = run["exit_ns"].is_number() || run["measured_exit_ns"]["Ok"].is_number();
    assert!(drawn.contains("guest-accesses") && drawn.contains("no measurement") == exit_known, "{drawn}");
    let saved = folder.path().join("run.json");
    fs::write(&saved, &ran.stdout).unwrap();
    let shown = Command::new(EVENKEEL).args(["report", "show", "--json"]).arg(&saved).output().unwrap();
    assert_eq!(json(&shown), run);
    let both = Command::new(EVENKEEL).args(["report", "compare"]).args([&saved, &saved]).output().unwrap();
    refused(&both, 2, &["run of guests", "report show"]);
    assert!(cards[0]["native_xdp"]["Ok"].is_null() && cards[0]["native_xdp"].get("Ok").is_some(), "{}", cards[0]);
    assert!(run["skipped"][0].as_str().unwrap().contains("passthrough=00:1f.6"), "{run}");
    assert!(!run["emulation_reason"].as_str().unwrap().is_empty());
    // Nothing that emulation cannot know.
    let mut own = run.clone();
    own.as_object_mut().unwrap().remove("sources");
    let text = own.to_string();
    assert!(["pps", "latency", "delay_ns"].iter().all(|word| !text.contains(&format!("\"{word}"))), "{text}");
    ended(&ran, 0);
}

#[test]
fn a_guest_that_panics_shows_its_last_words() {
    let Some(()) = privileged() else { return };
    let image = guest_kernel("6.1");
    let emulated = ["--guest-kernel", image.to_str().unwrap(), "--emulated"];
    refused(&bench(&[&emulated[..], &["--neighbour", "cpu"]].concat()), 3, &["--neighbour", "has no rate"]);
    refused(&bench(&[&emulated[..], &["--save", "run.json"]].concat()), 2, &["--json > FILE"]);
    let kernel = Kernel::open(Some(&image)).unwrap();
    let root = Root::make(&kernel, &Nic::Virtio, Path::new(EVENKEEL)).unwrap();
    let settings = Settings {
        nic: Nic::Virtio,
        cards: Vec::new(),
        accel: Accel::Emulation,
        cpus: 1,
        memory_mib: 1024,
        traced: false,
        namespace: None,
        within: Vec::new(),
        disk: None,
    };
    let mut guest = Guest::start(&settings, &kernel, &root, Duration::from_secs(120)).unwrap();
    let patience = Duration::from_secs(60);
    let ran = guest.run(&["evenkeel", "--version"], patience).unwrap();
    assert!(ran.code == 0 && ran.stdout.starts_with("evenkeel "), "{ran:?}");
    assert!(matches!(guest.run(&["nothing"], patience), Err(GuestError::Refused(_))));
    assert!(guest.read("/proc/version").unwrap().contains(&guest.release));
    let crash = || guest.write("/proc/sysrq-trigger", "c");
    let message = { crash }().unwrap_err().to_string();
    assert!(message.contains("Kernel panic") && message.contains("sysrq"), "{message}");
}

#[test]
fn what_cannot_be_is_named() {
    refused(&bench(&["--guest-kernel", "/nowhere/vmlinuz-1"]), 3, &["/nowhere/vmlinuz-1", "--guest-kernel"]);
    refused(&bench(&["--nic", "rtl8139"]), 2, &["rtl8139", "vmxnet3"]);
    let both = Command::new(EVENKEEL).args(["bench", "--dut", "guest,bridge"]).output().unwrap();
    assert!(both.status.code() == Some(2) && printed(&both).contains("bridge is not measured"), "{}", printed(&both));
}
