//! `keep` in a guest, by the command of its unit: a boot, the reset of a driver, a rename, a clock at 1970.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use guest::{Accel, Card, Guest, Kernel, Nic, Root, Settings};
use serde_json::Value;
use testbed::{Bed, guest_kernel, turn, wait_up_to};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
/// Limit on one wait. Emulated guests are slow, all the more beside others.
const PATIENCE: Duration = Duration::from_secs(300);
const MAC: &str = "52:54:00:ec:00:01";
const KEPT: &str = "/etc/evenkeel/keep.d/spread-eth0.toml";

struct Machine {
    guest: Guest,
    _bed: Bed,
}

/// Boots a guest with a card of two queues, which is down.
fn boot(bed: Bed, kernel: &Kernel) -> Machine {
    let space = bed.space("box");
    space.output("ip tuntap add ekkg0 mode tap multi_queue");
    space.output("ip link set ekkg0 up");
    let nic = Nic::VirtioMq;
    let programs: Vec<PathBuf> = ["/usr/bin/sh", "/usr/bin/date", "/usr/bin/setpriv"].map(PathBuf::from).to_vec();
    let root = Root::with(kernel, &nic, Path::new(EVENKEEL), (&programs, &[])).unwrap();
    let settings = Settings {
        nic,
        cards: vec![Card { tap: "ekkg0".into(), mac: MAC.into() }],
        accel: Accel::Emulation,
        cpus: 2,
        memory_mib: 1024,
        traced: false,
        namespace: Some(PathBuf::from(format!("/run/netns/{}", space.name()))),
        within: Vec::new(),
        disk: None,
    };
    let guest = Guest::start(&settings, kernel, &root, PATIENCE).unwrap();
    Machine { guest, _bed: bed }
}

impl Machine {
    fn run(&mut self, line: &str, code: i32) -> String {
        let ran = self.guest.run(&line.split_whitespace().collect::<Vec<_>>(), PATIENCE).unwrap();
        assert_eq!(ran.code, code, "{line}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    fn shell(&mut self, script: &str) {
        let ran = self.guest.run(&["sh", "-c", script], PATIENCE).unwrap();
        assert_eq!(ran.code, 0, "{script}: {}{}", ran.stdout, ran.stderr);
    }

    /// Runs the command of the unit, with the unit's capabilities.
    fn start_unit(&mut self) {
        let unit = self.run("evenkeel keep unit", 0);
        let value =
            |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{unit}"));
        let rights = value("CapabilityBoundingSet=").to_lowercase().replace("cap_", "+").replace(' ', ",");
        let command = value("ExecStart=");
        self.shell(&format!("setpriv --bounding-set=-all,{rights} {command} >/tmp/keep.log 2>&1 &"));
    }

    fn status(&mut self) -> Value {
        let ran = self.guest.run(&["evenkeel", "keep", "status", "--json"], PATIENCE).unwrap();
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", ran.stdout, ran.stderr))
    }

    /// Waits until `keep run` has written settings for `cause`, and prints the time that this took.
    fn wait_set(&mut self, cause: &str) {
        let mut last = Value::Null;
        wait_up_to(PATIENCE, cause, || {
            let events = self.status()["events"].as_array().cloned().unwrap_or_default();
            let is_it = |event: &&Value| event["event"] == "set" && event["message"].as_str().unwrap().contains(cause);
            last = events.iter().rev().find(is_it).cloned().unwrap_or_default();
            last.is_object()
        });
        println!("{last}");
    }
}

impl Machine {
    /// Waits until every file is kept. Returns the number of settings.
    fn wait_kept(&mut self) -> u64 {
        let mut status = Value::Null;
        wait_up_to(PATIENCE, "all is kept", || {
            status = self.status();
            status["files"][0]["state"] == "kept"
        });
        status["files"][0]["settings"].as_u64().unwrap()
    }
}

#[test]
fn what_is_kept_holds_after_a_boot_a_reset_of_the_driver_and_a_rename() {
    let Some(_alone) = turn() else { return };
    let Some(bed) = Bed::new("keepg", &["box"]) else { return };
    let kernel = Kernel::open(Some(&guest_kernel("6.1"))).unwrap();
    let mut first = boot(bed, &kernel);
    first.run("ip link set eth0 up", 0);
    first.run("evenkeel spread apply eth0 --cpus 1 --keep", 0);
    let text = first.guest.read(KEPT).unwrap();
    drop(first);

    // The next boot has the same /etc and no settings. The file names the card's address, so that the card may be renamed.
    let text = text.replace("interfaces = [\"eth0\"]", &format!("mac = \"{MAC}\""));
    let mut machine = boot(Bed::new("keeph", &["box"]).unwrap(), &kernel);
    machine.run("evenkeel keep add spread eth0", 0);
    machine.guest.write(KEPT, &text).unwrap();
    machine.run("evenkeel keep status", 1);
    machine.start_unit();
    machine.run("ip link set eth0 up", 0);
    machine.wait_set("all files were read");
    let settings = machine.wait_kept();

    // A new bind of the driver makes another device with other interrupts and no settings.
    let device = "for it in /sys/bus/virtio/drivers/virtio_net/virtio*; do echo ${it##*/}; done";
    let device = machine.guest.run(&["sh", "-c", device], PATIENCE).unwrap().stdout.trim().to_owned();
    machine.guest.write("/sys/bus/virtio/drivers/virtio_net/unbind", &device).unwrap();
    machine.guest.write("/sys/bus/virtio/drivers/virtio_net/bind", &device).unwrap();
    machine.run("ip link set eth0 up", 0);
    machine.wait_set("eth0 ");
    assert_eq!(machine.wait_kept(), settings);

    machine.run("ip link set eth0 down", 0);
    machine.run("ip link set eth0 name lan0", 0);
    machine.run("ip link set lan0 up", 0);
    assert_eq!(machine.wait_kept(), settings);

    // Clocks without a battery start in 1970.
    machine.run("date -s @1000", 0);
    let find = "for it in /proc/irq/*/virtio0-input.0; do echo ${it%/*}; done";
    let irq = machine.guest.run(&["sh", "-c", find], PATIENCE).unwrap().stdout.trim().to_owned();
    let affinity = &format!("{irq}/smp_affinity_list");
    assert_eq!(machine.guest.read(affinity).unwrap().trim(), "1");
    machine.guest.write(affinity, "0").unwrap();
    wait_up_to(PATIENCE, "it is set back in 1970", || machine.guest.read(affinity).unwrap().trim() == "1");
    machine.run("evenkeel keep off spread-eth0", 0);
    assert_eq!(machine.guest.read(affinity).unwrap().trim(), "0");
    assert_eq!(machine.status()["files"], Value::Array(vec![]));
}
