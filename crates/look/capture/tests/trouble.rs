//! Failures during a capture: the interface, the disk, a reader that is too slow.

mod common;

use std::{process::Command, time::Duration};

use capture::{
    open::{self, Tuning},
    output::OutputError,
    pcapng,
    plan::Backend,
    run::RunError,
};
use common::{capture, limits, mixture, options, read_pcapng, sources};
use model::{Classified, ErrorClass};
use port::{RingSource, Source};
use sys::packet::RingLayout;
use testbed::{Wire, write_pcap};

fn small_ring() -> RingLayout {
    RingLayout { block_bytes: 4096, blocks: 2, retire_ms: 10, rx_hash: true, node: Some(0) }
}

#[test]
fn a_slow_reader_finds_its_losses_marked() {
    let Some(wire) = Wire::new("slow") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (flood, last) = (dir.path().join("flood.pcap"), dir.path().join("last.pcap"));
    write_pcap(&flood, mixture(500));
    write_pcap(&last, mixture(2));
    let mut source =
        wire.receiver.run(|| RingSource::open(&options(wire.receiver.interface(), Vec::new()), small_ring())).unwrap();
    wire.sender.replay(&flood, 20_000);
    let (mut seen, mut marked, mut file) = (0u64, 0u64, Vec::new());
    let mut read = |source: &mut RingSource| {
        while source
            .receive(Duration::from_millis(100), |frame| {
                seen += 1;
                marked += u64::from(frame.lost_before);
                pcapng::packet(&mut file, &frame, 0, 1 << 18);
            })
            .unwrap()
            > 0
        {}
    };
    read(&mut source);
    wire.sender.replay(&last, 20_000);
    read(&mut source);
    let stats = source.stats().unwrap();
    assert!(stats.dropped > 0, "{stats:?}");
    assert_eq!((stats.delivered, stats.delivered + stats.dropped), (seen, 502), "{stats:?}");
    assert_eq!(marked, stats.dropped, "every loss is marked at the first packet after it");
    assert!(String::from_utf8_lossy(&file).contains("packets lost before this one"));
}

#[test]
fn a_full_disk_is_reported_and_leaves_whole_packets() {
    let Some(wire) = Wire::new("fulldisk") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.pcap");
    write_pcap(&file, mixture(10_000));
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "ektest"]).arg(&disk).status().unwrap();
    assert!(mounted.success());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let ours = disk.join("ours.pcapng");
        let make = || sources(wire.receiver.interface(), Backend::Ring, 1, &Tuning::default(), "");
        let (report, _) = capture(&wire, make, &ours, limits(), |_| wire.sender.replay(&file, 20_000));
        let copy = dir.path().join("copy.pcapng");
        std::fs::copy(&ours, &copy).unwrap();
        (report.failure, copy)
    }));
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    let (failure, copy) = result.unwrap();
    let Some(RunError::Output(OutputError::Write { kept, source, .. })) = failure else { panic!("{failure:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(read_pcapng(&copy).len() as u64, kept);
    assert!(kept > 0);
}

#[test]
fn a_number_of_packets_is_exact() {
    let Some(wire) = Wire::new("count") else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in.pcap");
    write_pcap(&file, mixture(1_000));
    for (backend, members) in [(Backend::Ring, 1), (Backend::RingFanout, 3)] {
        let ours = dir.path().join(format!("{backend}.pcapng"));
        let limits = capture::run::Limits { packets: Some(137), ..limits() };
        let make = || sources(wire.receiver.interface(), backend, members, &Tuning::default(), "");
        let (report, _) = capture(&wire, make, &ours, limits, |_| wire.sender.replay(&file, 20_000));
        assert_eq!((report.packets(), read_pcapng(&ours).len()), (137, 137), "{backend}");
    }
}

#[test]
fn a_smaller_buffer_than_requested_is_reported_or_refused() {
    let Some(wire) = Wire::new("buffer") else { return };
    let (first_notes, refused) = wire.receiver.run(|| {
        // Without CAP_NET_ADMIN net.core.rmem_max is the limit.
        sys::privilege::drop_all_but(&[sys::privilege::Capability::CAP_NET_RAW]).unwrap();
        let mut tuning = Tuning::default();
        tuning.plain.buffer_bytes = 1 << 30;
        let opened: Vec<_> =
            sources(wire.receiver.interface(), Backend::Packet, 1, &tuning, "").into_iter().map(|(s, _)| s).collect();
        let first_notes = open::notes(&opened, wire.receiver.interface(), &tuning).unwrap();
        tuning.buffer_required = true;
        (first_notes, open::notes(&opened, wire.receiver.interface(), &tuning).unwrap_err())
    });
    for text in [&first_notes[0], &refused.to_string()] {
        assert!(text.contains("instead of 1073741824") && text.contains("net.core.rmem_max"), "{text}");
    }
    assert_eq!(refused.class(), ErrorClass::Lacking);
}
