//! Frames of each backend as tcpdump and tshark see them, in a lab.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
    time::Duration,
};

use testbed::{Tcpdump, Wire, pcap, tshark, words};
use traffic::{
    Allowance, Backend, FlowSpace, GenConfig, GenReport, Interface, Origin, Pacing, Plan, Rate, Recording,
    ReplayConfig, StreamConfig, Timing, TrafficError,
};
use wire::{FrameSize, IMIX, Kind, Mac, Tag};

fn send(wire: &Wire, config: GenConfig) -> Result<GenReport, TrafficError> {
    wire.sender.run(|| {
        let interface = Interface::look(wire.sender.interface())?;
        assert!(interface.in_lab && !interface.default_route);
        traffic::run(&Plan::new(config, interface)?, &AtomicBool::new(false), |_| ())
    })
}

/// Sends with tcpdump on the other side, which writes the first `count` frames.
fn send_and_capture(wire: &Wire, config: GenConfig, count: u64) -> (GenReport, PathBuf) {
    let more = ["-c", &count.to_string(), "--time-stamp-precision=nano"];
    let tcpdump = Tcpdump::start(&wire.receiver, wire.receiver.interface(), &wire.bed.path("seen.pcap"), &more);
    (send(wire, config).unwrap(), tcpdump.finish())
}

fn sending(wire: &Wire, origin: Origin, backend: Backend, count: u64) -> GenConfig {
    GenConfig {
        interface: wire.sender.interface().to_owned(),
        origin,
        rate: Rate::Packets(5_000.0),
        duration: Duration::from_secs(60),
        count: Some(count),
        pacing: None,
        backend: Some(backend),
        cpus: None,
        seed: 7,
        allowance: Allowance::default(),
        qdisc: false,
    }
}

fn stream(kind: Kind, ipv6: bool, flows: usize, sizes: &[FrameSize], tags: [Option<Tag>; 2]) -> Origin {
    let pick = |v4: &str, v6: &str| if ipv6 { v6 } else { v4 }.parse().unwrap();
    Origin::Stream(StreamConfig {
        kind,
        space: FlowSpace {
            sources: pick("198.18.4.0/22", "2001:2:0:1::/64"),
            destinations: pick("198.19.0.0/30", "2001:2:0:2::1"),
            source_ports: "2000-2999".parse().unwrap(),
            destination_ports: "80-81".parse().unwrap(),
        },
        flows,
        random_sources: false,
        sizes: sizes.to_vec(),
        destination: Mac([2, 0, 0, 0, 0, 2]),
        source: None,
        tags,
    })
}

const BACKENDS: [Backend; 3] = [Backend::XdpLive, Backend::TxRing, Backend::Xdp];

#[test]
fn a_syn_flood_is_what_was_requested() {
    let Some(wire) = Wire::with_napi("gensyn") else { return };
    for backend in BACKENDS {
        let (report, file) = send_and_capture(
            &wire,
            sending(&wire, stream(Kind::TcpSyn, false, 100, &[FrameSize::MIN], [None; 2]), backend, 300),
            300,
        );
        assert_eq!((report.submitted, report.device_sent, report.backend.as_str()), (300, 300, backend.name()));
        let fields = words(
            "frame.len ip.checksum.status tcp.checksum.status tcp.flags ip.src ip.dst tcp.srcport tcp.dstport \
             eth.src eth.dst tcp.len",
        );
        let rows = tshark(&file, &fields, 'a');
        assert_eq!(rows.len(), 300);
        let mut flows: HashMap<Vec<String>, u32> = HashMap::new();
        for row in &rows {
            assert_eq!(row[..4], ["60", "1", "1", "0x0002"], "{backend:?} {row:?}");
            assert_eq!(row[8..], [wire.sender.link.mac.to_string().as_str(), "02:00:00:00:00:02", "0"]);
            *flows.entry(row[4..8].to_vec()).or_default() += 1;
            let source: std::net::Ipv4Addr = row[4].parse().unwrap();
            assert_eq!(u32::from(source) >> 10, 0xc612_0400 >> 10);
            assert!(
                row[5].starts_with("198.19.0.") && (2000..3000).contains(&row[6].parse::<u32>().unwrap()),
                "{row:?}"
            );
            assert!(row[7] == "80" || row[7] == "81");
        }
        assert_eq!(flows.len(), 100, "each flow is visited");
        assert!(flows.values().all(|&n| n == 3), "evenly");
        let sources: std::collections::HashSet<_> = rows.iter().map(|r| &r[4]).collect();
        assert!(sources.len() > 80, "{} sources", sources.len());
    }
}

#[test]
fn sizes_tags_and_ipv6_are_what_was_requested() {
    let Some(wire) = Wire::with_napi("genudp") else { return };
    let qinq = [Some(Tag { protocol: 0x88a8, control: 30 }), Some(Tag { protocol: 0x8100, control: 40 })];
    for backend in BACKENDS {
        let sizes = [FrameSize::with_fcs(128), FrameSize::with_fcs(1518)];
        let config = sending(&wire, stream(Kind::Udp, true, 10, &sizes, qinq), backend, 40);
        let rows = tshark(
            &send_and_capture(&wire, config, 40).1,
            &["frame.len", "udp.checksum.status", "vlan.id", "ieee8021ad.id", "ipv6.src", "udp.length"],
            'a',
        );
        assert_eq!(rows.len(), 40);
        for (i, row) in rows.iter().enumerate() {
            let len = if (i % 10 + i / 10 % 2) % 2 == 0 { 124 } else { 1514 };
            assert_eq!(row[..2], [len.to_string().as_str(), "1"], "{backend:?} frame {i}: {row:?}");
            assert!(format!("{};{}", row[2], row[3]).contains("40") && row[4].starts_with("2001:2:0:1:"), "{row:?}");
            assert_eq!(row[5], (len - 22 - 40).to_string());
        }
        let config = sending(&wire, stream(Kind::TcpData, false, 2, &IMIX, [None; 2]), backend, 48);
        let rows = tshark(
            &send_and_capture(&wire, config, 48).1,
            &["frame.len", "tcp.checksum.status", "ip.checksum.status"],
            'a',
        );
        for row in &rows {
            assert_eq!(row[1..], ["1", "1"], "{backend:?} {row:?}");
        }
        let count = |len: &str| rows.iter().filter(|r| r[0] == len).count();
        assert_eq!((count("60"), count("590"), count("1514")), (28, 16, 4), "{backend:?}");
    }
}

#[test]
fn a_file_is_replayed_byte_for_byte_over_and_over() {
    let Some(wire) = Wire::with_napi("genpcap") else { return };
    let source = wire.bed.path("source.pcap");
    // Frames of every kind of content, lengths from the least on, gaps of 0.1 ms.
    let frames: Vec<Vec<u8>> = (0..50usize)
        .map(|i| {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
            frame.extend((0..46 + i * 29).map(|k| (k * 7 + i) as u8));
            frame
        })
        .collect();
    write_pcap(&source, &frames);
    for (backend, timing) in
        [(Backend::TxRing, Timing::Speed(1.0)), (Backend::Xdp, Timing::Rate), (Backend::TxRing, Timing::Speed(10.0))]
    {
        let origin = Origin::Replay(ReplayConfig { path: source.clone(), timing });
        let (report, file) = send_and_capture(&wire, sending(&wire, origin, backend, 120), 120);
        assert_eq!((report.submitted, report.cycle_frames), (120, 50));
        let seen = Recording::read(&file).unwrap();
        assert_eq!(seen.frames.len(), 120);
        for (i, (_, bytes)) in seen.frames.iter().enumerate() {
            assert_eq!(bytes, &frames[i % 50], "{backend:?} frame {i}");
        }
    }
}

fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let at = |n: u64| Duration::from_micros(1_000_000 + n * 100);
    let packets = (0..).zip(frames).map(|(n, frame)| (at(n), frame, frame.len() as u32));
    fs::write(path, pcap(1, packets)).unwrap();
}

/// Files made by the tools of Wireshark: other formats, resolutions, several interfaces and sections, and damage.
#[test]
fn files_of_other_tools_are_read_with_their_times_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let frames: Vec<Vec<u8>> = (0..20u8).map(|i| [&[2; 12][..], &[8, 0], &[i; 46]].concat()).collect();
    write_pcap(&at("a.pcap"), &frames);
    let tool = |command: &str| {
        let mut words = command.split_whitespace();
        let status = Command::new(words.next().unwrap()).args(words).current_dir(&folder).status();
        assert!(status.expect("Wireshark's tools are installed").success(), "{command}");
    };
    tool("editcap a.pcap a.pcapng");
    tool("editcap -F nsecpcap -t 0.000000007 a.pcap ns.pcap");
    tool("editcap ns.pcap ns.pcapng");
    tool("editcap -F modpcap a.pcap mod.pcap");
    tool("editcap -s 40 a.pcap cut.pcapng");
    tool("mergecap -I none -w two.pcapng a.pcapng ns.pcapng");
    tool("editcap -T rawip a.pcap raw.pcapng");
    tool("mergecap -I none -w mixed.pcapng a.pcapng raw.pcapng");
    for name in ["a.pcap", "a.pcapng", "ns.pcap", "ns.pcapng", "mod.pcap"] {
        let r = Recording::read(&at(name)).unwrap();
        assert_eq!(r.frames.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), frames.iter().collect::<Vec<_>>());
        assert!(r.frames.iter().zip(0u64..).all(|((due, _), i)| *due == i * 100_000), "{name}");
        assert_eq!((r.span_ns, r.cut_short, r.timeless), (2_000_000, 0, false), "{name}");
    }
    let two = Recording::read(&at("two.pcapng")).unwrap();
    let expected: Vec<u64> = (0..20).flat_map(|i| [i * 100_000, i * 100_000 + 7]).collect();
    assert_eq!(two.frames.iter().map(|(due, _)| *due).collect::<Vec<_>>(), expected, "both resolutions are kept");
    let cut = Recording::read(&at("cut.pcapng")).unwrap();
    assert!(cut.cut_short == 20 && cut.longest() == 40);

    let refused = |name: &str| Recording::read(&at(name)).unwrap_err();
    // No Ethernet header is made up for them: the link type is named.
    for (editcap, name) in [("rawip", "RAW"), ("linux-sll", "LINUX_SLL"), ("null", "NULL"), ("ppp", "PPP")] {
        tool(&format!("editcap -F pcap -T {editcap} a.pcap other.pcap"));
        let printed = refused("other.pcap").to_string();
        assert!(printed.contains(&format!("link type {name}, and only Ethernet")), "{editcap}: {printed}");
    }
    assert!(refused("raw.pcapng").to_string().contains("only Ethernet"));
    assert!(refused("mixed.pcapng").to_string().contains("several link types"));
    // Cut anywhere, a file is whole up to a packet, or refused as damaged, or is no capture file at all.
    for name in ["a.pcap", "a.pcapng"] {
        let whole = fs::read(at(name)).unwrap();
        for len in 0..whole.len() {
            fs::write(at("part"), &whole[..len]).unwrap();
            match Recording::read(&at("part")) {
                Ok(r) => {
                    assert!(r.frames.iter().map(|(_, b)| b).eq(frames.iter().take(r.frames.len())), "{name} {len}");
                }
                Err(e) => {
                    assert!(matches!(e, TrafficError::Damaged { .. } | TrafficError::File { .. }), "{name} {len}: {e}");
                    assert_eq!(model::Classified::class(&e).exit_code(), 2);
                }
            }
        }
    }
}

#[test]
fn a_file_without_times_is_not_repeated_without_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    write_pcap(&path, &[vec![2; 60]]);
    let interface =
        Interface { name: "x0".into(), index: 1, mac: Mac::default(), mtu: 1500, default_route: false, in_lab: true };
    let plan = |count, timing| {
        let config = GenConfig {
            interface: "x0".into(),
            origin: Origin::Replay(ReplayConfig { path: path.clone(), timing }),
            rate: Rate::Packets(10.0),
            duration: Duration::from_secs(1),
            count,
            pacing: None,
            backend: None,
            cpus: None,
            seed: 1,
            allowance: Allowance::default(),
            qdisc: false,
        };
        Plan::new(config, interface.clone())
    };
    let refused = plan(None, Timing::Speed(1.0)).unwrap_err().to_string();
    assert!(refused.ends_with("say --rate, or --count 1 to send them once"), "{refused}");
    assert!(plan(Some(1), Timing::Speed(1.0)).is_ok() && plan(None, Timing::Rate).is_ok());
}

#[test]
fn damaged_and_forbidden_files_are_refused_by_packet_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let mut ip = vec![2u8; 12];
    ip.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 10, 9, 8, 7]);
    ip.resize(60, 0);
    let mut other = vec![2u8; 12];
    other.extend([8, 6]);
    other.resize(60, 0);
    let interface =
        Interface { name: "x0".into(), index: 1, mac: Mac::default(), mtu: 1500, default_route: false, in_lab: false };
    write_pcap(&path, &[ip.clone(), ip]);
    let recording = Recording::read(&path).unwrap();
    let refused = recording.check(&interface, &Allowance::default()).unwrap_err().to_string();
    assert!(refused.starts_with("10.9.8.7 (packet 1 of "), "{refused}");
    let named = Allowance { named: vec!["10.0.0.0/8".parse().unwrap()], non_ip: false };
    recording.check(&interface, &named).unwrap();

    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let damaged = Recording::read(&path).unwrap_err().to_string();
    assert!(damaged.contains("is damaged after packet 1: truncated"), "{damaged}");
    fs::write(&path, &whole[..24]).unwrap();
    assert!(Recording::read(&path).unwrap_err().to_string().ends_with("it holds no packets"));
    fs::write(&path, b"no capture at all, but long enough").unwrap();
    assert!(matches!(Recording::read(&path), Err(TrafficError::File { .. })));
    assert!(matches!(Recording::read(&folder.path().join("none")), Err(TrafficError::File { .. })));

    write_pcap(&path, &[other]);
    let refused = Recording::read(&path).unwrap().check(&interface, &named).unwrap_err().to_string();
    assert!(refused.starts_with("packet 1 of ") && refused.contains("EtherType 0x0806"), "{refused}");
}

#[test]
fn several_senders_share_the_count_and_the_flows() {
    let Some(wire) = Wire::with_napi("gencpus") else { return };
    let online = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpus: model::CpuSet = (0..1024u32).filter(|&c| online.is_set(c as usize).unwrap_or(false)).take(2).collect();
    for backend in [Backend::XdpLive, Backend::TxRing] {
        let mut config = sending(&wire, stream(Kind::Udp, false, 20, &[FrameSize::MIN], [None; 2]), backend, 100);
        config.cpus = Some(cpus.clone());
        let (report, file) = send_and_capture(&wire, config, 100);
        assert_eq!((report.submitted, report.senders.len()), (100, cpus.len()));
        let mut flows: HashMap<Vec<String>, u32> = HashMap::new();
        for row in tshark(&file, &["ip.src", "udp.srcport", "ip.dst", "udp.dstport"], 'a') {
            *flows.entry(row).or_default() += 1;
        }
        assert_eq!(flows.len(), 20);
        assert!(flows.values().all(|&n| n == 5), "{backend:?} {flows:?}");
    }
}

#[test]
fn senders_that_sleep_send_all_and_say_what_it_cost() {
    let Some(wire) = Wire::with_napi("genpace") else { return };
    for backend in BACKENDS {
        for pacing in [Pacing::Even, Pacing::Sleep] {
            let mut config = sending(&wire, stream(Kind::Udp, false, 20, &[FrameSize::MIN], [None; 2]), backend, 300);
            config.pacing = Some(pacing);
            let (report, file) = send_and_capture(&wire, config, 300);
            assert_eq!((report.submitted, report.pacing.as_deref()), (300, Some(pacing.name())), "{backend:?}");
            assert_eq!(tshark(&file, &["frame.len"], 'a').len(), 300);
            assert!(report.senders.iter().all(|s| s.cpu_share > 0.0 && s.cpu_share < 1.5), "{report:?}");
            match (pacing, report.burst_mean, report.burst_max) {
                (Pacing::Even, None, None) => {}
                (Pacing::Sleep, Some(mean), Some(max)) => assert!(mean >= 1.0 && mean <= max as f64, "{mean} {max}"),
                other => panic!("{backend:?} {other:?}"),
            }
        }
    }
}

/// Far more than any machine sends: what went and what was given up are together the whole schedule.
#[test]
fn what_a_sender_cannot_send_in_its_time_is_given_up() {
    let Some(wire) = Wire::with_napi("genlate") else { return };
    for backend in BACKENDS {
        let (pps, seconds) = (4e7, 0.3);
        let mut config = sending(&wire, stream(Kind::Udp, false, 20, &IMIX, [None; 2]), backend, 1);
        (config.count, config.rate, config.duration) = (None, Rate::Packets(pps), Duration::from_secs_f64(seconds));
        let report = send(&wire, config).unwrap();
        let skipped: f64 = report.senders.iter().map(|s| s.skipped_s).sum();
        let schedule_s = report.submitted as f64 / pps + skipped;
        assert!((schedule_s - seconds).abs() < 1e-6, "{backend:?}: {schedule_s} s of the schedule, {report:?}");
        assert!(report.elapsed_s >= seconds && report.pacing_error.unwrap() < 0.0, "{backend:?} {report:?}");
        let rate = report.submitted as f64 / report.elapsed_s;
        assert!((report.senders[0].submitted_pps / rate - 1.0).abs() < 1e-9, "{backend:?} {report:?}");
    }
}

#[test]
fn an_interface_that_goes_in_mid_run_is_named_and_nothing_stays() {
    for backend in BACKENDS {
        let Some(wire) = Wire::with_napi("genvan") else { return };
        let mut config = sending(&wire, stream(Kind::TcpSyn, false, 5, &[FrameSize::MIN], [None; 2]), backend, 1);
        (config.count, config.duration) = (None, Duration::from_secs(3600));
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                wire.sender.output(&format!("ip link del {}", wire.sender.interface()));
            });
            send(&wire, config).unwrap_err()
        });
        assert!(matches!(error, TrafficError::Vanished { .. }), "{backend:?}: {error}");
        assert_eq!(model::Classified::class(&error).exit_code(), 3);
        let left = wire.sender.run(|| fs::read_dir("/sys/class/net").unwrap().flatten().count());
        assert_eq!(left, 1, "only lo is left");
    }
}

#[test]
fn a_stop_ends_an_endless_run() {
    let Some(wire) = Wire::with_napi("genstop") else { return };
    for backend in BACKENDS {
        let mut config = sending(&wire, stream(Kind::TcpSyn, false, 5, &[FrameSize::MIN], [None; 2]), backend, 1);
        config.count = None;
        config.duration = Duration::from_secs(3600);
        let stop = AtomicBool::new(true);
        let run = || {
            let plan = Plan::new(config, Interface::look(wire.sender.interface())?)?;
            traffic::run(&plan, &stop, |_| ())
        };
        let report = wire.sender.run(run).unwrap();
        assert!(report.stopped && report.elapsed_s < 3600.0);
    }
}
