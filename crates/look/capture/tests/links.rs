//! An interface that goes down, comes up, or is removed while it is captured.

mod common;

use std::{path::Path, time::Duration};

use capture::{
    open::Tuning,
    plan::Backend,
    run::{Notice, Report, RunError},
};
use common::{Notices, limits, mixture, read_pcapng, sources};
use model::{Classified, ErrorClass};
use port::PortError;
use testbed::{Wire, wait, write_pcap};

/// Captures from `interfaces` of the receiver into `file` while `meanwhile` runs, then stops.
fn capture(
    wire: &Wire,
    backend: Backend,
    interfaces: &[&str],
    file: &Path,
    meanwhile: impl FnOnce(&Notices) + Send,
) -> (Report, Vec<Notice>) {
    // Without the multicast of IPv6 when an interface comes up.
    let open = |interface: &&str| sources(interface, backend, 1, &Tuning::default(), "not ether multicast");
    let make = || interfaces.iter().flat_map(open).collect();
    common::capture(wire, make, file, limits(), meanwhile)
}

/// One more interface of the receiver, and its peer.
fn add_pair(wire: &Wire) {
    for line in ["add ekgone type veth peer name ekpeer", "set ekgone up", "set ekpeer up"] {
        wire.receiver.output(&format!("ip link {line}"));
    }
}

#[test]
fn an_interface_that_goes_down_is_captured_again_when_it_is_up() {
    let Some(wire) = Wire::new("downup") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    write_pcap(&file, mixture(100));
    let interface = wire.receiver.interface();
    for backend in
        [Backend::Packet, Backend::PacketFanout, Backend::Ring, Backend::RingFanout, Backend::Tap, Backend::Xdp]
    {
        let ours = dir.path().join(format!("{backend}.pcapng"));
        let (report, notices) = capture(&wire, backend, &[interface], &ours, |notices| {
            wire.sender.replay(&file, 10_000);
            wire.receiver.link_set("down");
            wait("the notice that it is down", || !notices.lock().unwrap().is_empty());
            wire.receiver.link_set("up");
            wait("the notice that it is up", || notices.lock().unwrap().len() > 1);
            wire.sender.replay(&file, 10_000);
        });
        assert!(report.failure.is_none(), "{backend}: {:?}", report.failure);
        let expected = [Notice::Down(interface.to_owned()), Notice::Up(interface.to_owned())];
        assert_eq!(notices, expected, "{backend}");
        assert_eq!(read_pcapng(&ours).len(), 200, "{backend}");
    }
}

#[test]
fn a_removed_interface_ends_its_capture_alone() {
    let Some(wire) = Wire::new("removed") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    write_pcap(&file, mixture(100));
    let interface = wire.receiver.interface();
    for backend in [Backend::Packet, Backend::Ring, Backend::Tap, Backend::Xdp] {
        let ours = dir.path().join(format!("{backend}.pcapng"));
        add_pair(&wire);
        let (report, notices) = capture(&wire, backend, &[interface, "ekgone"], &ours, |notices| {
            let ended = || notices.lock().unwrap().iter().any(|notice| matches!(notice, Notice::Ended(_)));
            wire.sender.replay(&file, 10_000);
            wire.receiver.output("ip link del ekgone");
            wait("the notice that it is gone", ended);
            wire.sender.replay(&file, 10_000);
        });
        assert!(report.failure.is_none(), "{backend}: {:?}", report.failure);
        let ended: Vec<_> = notices.iter().filter(|notice| matches!(notice, Notice::Ended(_))).collect();
        let [Notice::Ended(reason)] = ended[..] else { panic!("{backend}: {notices:?}") };
        assert!(reason.contains("ekgone"), "{backend}: {reason}");
        assert_eq!(read_pcapng(&ours).len(), 200, "{backend}");
    }
}

#[test]
fn the_removal_of_the_last_interface_is_the_failure_and_leaves_a_whole_file() {
    let Some(wire) = Wire::new("vanish") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    write_pcap(&file, mixture(100));
    for (backend, first) in [(Backend::Packet, "down"), (Backend::Ring, "up"), (Backend::RingFanout, "up")] {
        let ours = dir.path().join(format!("{backend}.pcapng"));
        add_pair(&wire);
        let (report, _) = capture(&wire, backend, &["ekgone"], &ours, |notices| {
            wire.receiver.output(&format!("tcpreplay -q -i ekpeer --pps 10000 {}", file.display()));
            // One that is down already says nothing when it is removed.
            wire.receiver.output(&format!("ip link set ekgone {first}"));
            if first == "down" {
                wait("the notice that it is down", || !notices.lock().unwrap().is_empty());
            }
            wire.receiver.output("ip link del ekgone");
            std::thread::sleep(Duration::from_millis(500));
        });
        let gone = matches!(report.failure, Some(RunError::Port(PortError::Vanished { .. })));
        assert!(gone, "{backend}: {:?}", report.failure);
        assert_eq!(report.failure.unwrap().class(), ErrorClass::Lacking);
        assert_eq!(read_pcapng(&ours).len(), 100, "{backend}");
    }
}
