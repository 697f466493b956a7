//! The live machine, its copy, and what the copy says again.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
};

use host::{Host, Root, snapshot::Snapshot};

/// Removes all that may change between two readings.
fn still(mut host: Host) -> Host {
    for irq in &mut host.irqs {
        irq.counts = BTreeMap::new();
        irq.effective = None;
    }
    for nic in &mut host.nics {
        nic.operstate = String::new();
        nic.flags = 0;
    }
    // Other tests make and remove interfaces meanwhile.
    host.nics.retain(|nic| nic.bus.is_some() || nic.name == "lo");
    host
}

#[test]
fn a_process_with_the_name_of_a_receive_thread_is_none() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf napi/lo-1 > /proc/$$/comm; read line"]).stdin(Stdio::piped());
    let mut named = shell.spawn().unwrap();
    let comm = format!("proc/{}/comm", named.id());
    testbed::wait("it has the name", || fs::read_to_string(format!("/{comm}")).is_ok_and(|name| name == "napi/lo-1\n"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.tar");
    Snapshot::take().unwrap().save(&file).unwrap();
    assert!(!Root::open(&file).unwrap().exists(&comm));
    drop(named.stdin.take());
    named.wait().unwrap();
}

#[test]
fn a_copy_says_what_the_machine_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.tar");
    let snapshot = Snapshot::take().unwrap();
    snapshot.save(&file).unwrap();
    let live = Host::read(&Root::live()).unwrap();
    let copy = Host::read(&Root::open(&file).unwrap()).unwrap();
    assert_eq!(still(copy.clone()), still(live.clone()));
    assert!(!live.cpus.is_empty() && live.nic("lo").is_some());

    let unpacked = tempfile::tempdir().unwrap();
    tar::Archive::new(fs::File::open(&file).unwrap()).unpack(unpacked.path()).unwrap();
    assert_eq!(Host::read(&Root::open(unpacked.path()).unwrap()).unwrap(), copy);
    // The counters lie beside it.
    let root = Root::open(&file).unwrap();
    for rel in
        ["proc/stat", "proc/softirqs", "proc/net/softnet_stat", "proc/net/dev", "sys/class/net/lo/statistics/rx_bytes"]
    {
        assert!(!root.read(rel).unwrap().is_empty(), "{rel}");
    }
    assert!(!root.exists("proc/1/comm"), "processes are nobody's business");
}

#[test]
fn the_interfaces_agree_with_the_ip_program() {
    let Ok(output) = Command::new("ip").args(["-json", "link", "show", "lo"]).output() else {
        return eprintln!("skipped: the program `ip` is not installed");
    };
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let host = Host::read(&Root::live()).unwrap();
    let lo = host.nic("lo").unwrap();
    assert_eq!(links[0]["mtu"], lo.mtu);
    assert_eq!(links[0]["ifindex"], lo.index);
}

#[test]
fn the_root_is_read_as_the_kernel_shows_it() {
    let root = Root::live();
    assert_eq!(root.read_trimmed("sys/class/net/lo/ifindex").unwrap(), "1");
    assert!(root.link("sys/class/net/lo").unwrap().ends_with("virtual/net/lo"));
    assert!(root.read_opt("sys/class/net/lo/no-such-file").unwrap().is_none());
    assert!(root.read_opt("sys/class/net/lo/speed").unwrap().is_none(), "EINVAL counts as no answer");
    let error = root.read("proc/no-such-file").unwrap_err().to_string();
    assert_eq!(error, "/proc/no-such-file does not exist");
}
