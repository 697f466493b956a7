use std::path::PathBuf;

use sys::libpcap::{self, Pcap};

use super::*;
use crate::rule::{Action, Limit, Match, Rule};

/// A pcap file of these packets: time in ms, bytes, length on the wire.
fn pcap(link: u32, packets: &[(u32, &[u8], usize)]) -> (tempfile::TempDir, PathBuf) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link] {
        bytes.extend(u32::to_le_bytes(word));
    }
    for (ms, data, len) in packets {
        for word in [1_800_000_000 + ms / 1000, ms % 1000 * 1000, data.len() as u32, *len as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(*data);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// IPv4, UDP from 192.0.2.1:53.
fn udp(to: u16) -> Vec<u8> {
    let mut f = vec![2; 12];
    f.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 18, 0, 2, 0, 53]);
    f.extend(to.to_be_bytes());
    f.extend([0, 8, 0, 0]);
    f
}

fn rule(name: &str, port: u16, action: Action, shadow: bool, line: usize) -> Rule {
    let when = Match { destination_port: vec![port..=port], ..Match::default() };
    Rule { name: name.into(), when, action, shadow, line: Some(line), ..Rule::default() }
}

struct Reader(Pcap);

impl CaptureReader for Reader {
    fn link_type(&self) -> (i32, String) {
        (self.0.link_type(), libpcap::link_name(self.0.link_type()))
    }

    fn next_packet(&mut self) -> Result<Option<Captured<'_>>, String> {
        let packet = self.0.next_packet().map_err(|e| e.to_string())?;
        Ok(packet.map(|p| Captured {
            at_ns: i128::from(p.seconds) * 1_000_000_000 + i128::from(p.nanoseconds),
            wire_len: p.wire_len,
            data: p.data,
        }))
    }
}

type Read = Result<(Summary, Option<RulesError>), RulesError>;

fn read(rules: &Rules, path: &Path, each: impl FnMut(&Explained) -> ControlFlow<()>) -> Read {
    let opened = Pcap::of_file(path).map_err(|e| unreadable(&e.to_string(), path))?;
    explain(rules, &mut Reader(opened), path, Now::read(), each)
}

fn explained(rules: &Rules, path: &Path) -> (Vec<String>, Summary) {
    let mut lines = Vec::new();
    let each = |e: &Explained| {
        lines.push(format!("{} {} -> {}", e.number, e.frame, reason(rules, e)));
        ControlFlow::Continue(())
    };
    let (summary, broken) = read(rules, path, each).unwrap();
    assert_eq!(broken.map(|e| e.to_string()), None);
    (lines, summary)
}

#[test]
fn each_packet_has_its_reason() {
    let limit = Action::Limit(Limit { pps: 1, burst: 1, per_source: None });
    let rules = Rules {
        rules: vec![
            rule("watch", 80, Action::Drop, true, 3),
            rule("slow", 80, limit, false, 7),
            rule("web", 80, Action::Pass, false, 9),
        ],
        default: Verdict::Drop,
        malformed: Verdict::Drop,
        ..Rules::default()
    };
    let (web, other) = (udp(80), udp(81));
    let mut arp = vec![2; 12];
    arp.extend([8, 6, 0, 1]);
    let (_folder, path) = pcap(
        1,
        &[
            (0, &web, 42),
            (10, &web, 42),
            (1010, &web, 42),
            (1020, &other, 42),
            (1030, &arp, 60),
            (1040, &web[..41], 41),
        ],
    );
    let (lines, summary) = explained(&rules, &path);
    let packet = "192.0.2.1:53 > 198.18.0.2:80 udp length 28";
    assert_eq!(
        lines,
        [
            format!(
                "1 {packet} -> pass: rule \"web\" (line 9); before it \"watch\" (shadow: would drop), \"slow\" (within its limit)"
            ),
            format!(
                "2 {packet} -> drop: rule \"slow\" (line 7), its limit is exceeded; before it \"watch\" (shadow: would drop)"
            ),
            format!(
                "3 {packet} -> pass: rule \"web\" (line 9); before it \"watch\" (shadow: would drop), \"slow\" (within its limit)"
            ),
            "4 192.0.2.1:53 > 198.18.0.2:81 udp length 28 -> drop: the default, no rule decides".into(),
            "5 not IP -> pass: rules are about IP only".into(),
            "6 malformed: IPv4 total length beyond the frame -> drop: malformed packets are treated so".into(),
        ]
    );
    let packets = |counts: &[Count]| counts.iter().map(|c| c.packets).collect::<Vec<_>>();
    assert_eq!(packets(&summary.decided), [0, 1, 2]);
    assert_eq!(packets(&summary.counted), [3, 2, 0]);
    assert_eq!((summary.passed.packets, summary.dropped.packets, summary.all.bytes), (3, 3, 42 * 4 + 60 + 41));
}

/// Files of `tcpdump -i any` and of tunnels: the same packet behind other headers.
#[test]
fn a_packet_is_the_same_behind_every_link_header() {
    let rules = Rules { rules: vec![rule("web", 80, Action::Drop, false, 1)], ..Rules::default() };
    let bare = &udp(80)[14..];
    let tagged = [&[0x60, 5, 8, 0][..], bare].concat();
    let sll = |kind: [u8; 2], packet: &[u8]| [&[0; 14][..], &kind, packet].concat();
    let sll2 = |kind: [u8; 2], packet: &[u8]| [&kind[..], &[0; 18], packet].concat();
    let behind = |head: &[u8]| [head, bare].concat();
    for (link, frame, vlan) in [
        (113, sll([8, 0], bare), ""),
        (113, sll([0x81, 0], &tagged), " vlan 5"),
        (276, sll2([8, 0], bare), ""),
        (276, sll2([0x88, 0xa8], &tagged), " vlan 5"),
        (0, behind(&[2, 0, 0, 0]), ""),
        (108, behind(&[0, 0, 0, 2]), ""),
        (9, behind(&[0xff, 3, 0, 0x21]), ""),
        (50, behind(&[0x0f, 0, 8, 0]), ""),
        (101, behind(&[]), ""),
        (228, behind(&[]), ""),
    ] {
        let arp = if link == 276 { sll2([8, 6], &[0; 28]) } else { sll([8, 6], &[0; 28]) };
        let packets =
            [(0, &frame[..], frame.len()), (1, &frame[..frame.len() - 8], frame.len()), (2, &arp[..], arp.len())];
        let (_folder, path) = pcap(link, &packets[..if matches!(link, 113 | 276) { 3 } else { 2 }]);
        let (lines, summary) = explained(&rules, &path);
        let packet = format!("1 192.0.2.1:53 > 198.18.0.2:80 udp{vlan} length 28 -> drop: rule \"web\" (line 1)");
        assert_eq!(lines[0], packet, "link type {link}");
        assert!(lines[1].starts_with("2 cut short by the capture"), "link type {link}: {}", lines[1]);
        assert_eq!(summary.not_ip.packets as usize, lines.len() - 2, "link type {link}");
    }
}

/// As a card that cuts TCP leaves packets in captures on the sender, whole and cut short.
#[test]
fn tcp_without_a_length_is_judged_by_the_files() {
    let rules = Rules { rules: vec![rule("web", 80, Action::Drop, false, 1)], ..Rules::default() };
    let tcp = [&[0, 53, 0, 80][..], &[0; 8], &[0x50, 0x10, 0, 9, 0, 0, 0, 0], &[7; 1400]].concat();
    let mut four = udp(80)[..34].to_vec();
    (four[16], four[17], four[23]) = (0, 0, 6);
    let mut six = [&four[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64]].concat();
    six.extend([1; 32]);
    let (four, six) = ([&four[..], &tcp].concat(), [&six[..], &tcp].concat());
    let mut udp = udp(80);
    (udp[16], udp[17]) = (0, 0);
    let (_folder, path) =
        pcap(1, &[(0, &four, four.len()), (0, &six, six.len()), (0, &four[..80], four.len()), (0, &udp, udp.len())]);
    let (lines, summary) = explained(&rules, &path);
    let of = |n: usize| lines[n].split_once(" tcp ack length ").unwrap_or_else(|| panic!("{}", lines[n])).1;
    assert_eq!([of(0), of(1), of(2)].map(|l| &l[..12]), ["1440 -> drop", "1460 -> drop", "1440 -> drop"]);
    assert!(lines[3].contains("malformed: IPv4 total length below"), "{}", lines[3]);
    assert_eq!((summary.uncut.packets, summary.malformed.packets, summary.decided[0].packets), (3, 1, 3));
}

#[test]
fn what_the_capture_did_not_keep_is_not_guessed() {
    let rules = Rules { rules: vec![rule("web", 0, Action::Drop, false, 1)], ..Rules::default() };
    let web = udp(80);
    let (_folder, path) = pcap(1, &[(0, &web[..36], 42), (0, &web[..40], 42), (0, &web[14..], 28)]);
    let (lines, summary) = explained(&rules, &path);
    assert!(lines[0].ends_with("unknown: the capture did not keep enough of the packet"), "{}", lines[0]);
    assert!(lines[1].ends_with("pass: the default, no rule decides"), "{}", lines[1]);
    assert_eq!((summary.cut.packets, summary.by_default.packets), (1, 1));
}

/// The kept bytes end where a guess at the rest, made the same everywhere, would say the same wrong thing.
#[test]
fn what_is_not_kept_is_neither_malformed_nor_of_another_protocol() {
    let web = udp(80);
    let mut tagged = web[..12].to_vec();
    tagged.extend([0x81, 0, 0, 7]);
    tagged.extend(&web[12..]);
    // IPv6 with hop-by-hop options before UDP.
    let mut chain = [&web[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 0, 64]].concat();
    chain.extend([1; 32]);
    chain.extend([17, 0, 1, 4, 0, 0, 0, 0, 0, 53, 0, 80, 0, 8, 0, 0]);
    for whole in [web, tagged, chain] {
        let meant = frame(Packet::parse, &whole, whole.len());
        assert!(matches!(meant, Frame::Ip(_)), "{meant:?}");
        for kept in 0..whole.len() {
            let explained = frame(Packet::parse, &whole[..kept], whole.len());
            assert!(explained == Frame::Cut || explained == meant, "{kept} bytes of {}: {explained:?}", whole.len());
        }
    }
}

#[test]
fn bare_ip() {
    let rules = Rules { rules: vec![rule("web", 80, Action::Drop, false, 1)], ..Rules::default() };
    let (_folder, path) = pcap(101, &[(0, &udp(80)[14..], 28)]);
    assert_eq!(explained(&rules, &path).1.decided[0], Count { packets: 1, bytes: 28 });
}

#[test]
fn what_cannot_be_read_is_reported() {
    let refused = |path: &Path| match read(&Rules::default(), path, |_| ControlFlow::Continue(())) {
        Ok((_, broken)) => broken.expect("an error").to_string(),
        Err(error) => error.to_string(),
    };
    let (folder, path) = pcap(105, &[]);
    assert!(refused(&path).contains("IEEE802_11"), "{}", refused(&path));
    std::fs::write(&path, "rules").unwrap();
    assert!(refused(&path).contains("x.pcap"), "{}", refused(&path));
    assert!(refused(&folder.path().join("none")).contains("none"));
    let (_folder, path) = pcap(1, &[(0, &udp(80), 42), (0, &udp(80), 42)]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert!(refused(&path).contains("breaks off after packet 1"), "{}", refused(&path));
}

#[test]
fn whoever_asks_may_stop_and_what_came_before_the_end_counts() {
    let rules = Rules::default();
    let web = udp(80);
    let (_folder, path) = pcap(1, &[(0, &web, 42), (1, &web, 42), (2, &web, 42)]);
    let mut seen = 0;
    let stop = |packet: &Explained| {
        seen = packet.number;
        if packet.number == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let (summary, broken) = read(&rules, &path, stop).unwrap();
    assert_eq!((seen, summary.all.packets, broken.is_none()), (2, 2, true));

    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (summary, broken) = read(&rules, &path, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((summary.all.packets, summary.by_default.packets), (2, 2));
    assert!(broken.is_some_and(|error| error.to_string().contains("breaks off after packet 2")));
}

#[test]
fn a_file_is_named_once_and_icmp_by_its_names() {
    let error =
        read(&Rules::default(), Path::new("/no/such.pcap"), |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert_eq!(error.matches("such.pcap").count(), 1, "{error}");
    let named = [(1, 8), (58, 135), (58, 8)].map(|(protocol, number)| text::icmp_type(protocol, number));
    assert_eq!(named, ["echo-request", "nd-neighbor-solicit", "type 8"]);
}
