//! Gateway mode: sources that must show that they exist, with the kernel's own clients. Needs root.

use std::{
    thread,
    time::{Duration, Instant},
};

use bpf::filter::GatewayCookies;
use model::clock::monotonic_ns;
use rules::packet::{Packet, Parsed};
use shield::between::ring::proof::{Challenged, Overload, SynProof};
use testbed::{
    cookies::{
        CLIENT, CookieBed, Mode, SERVER,
        frames::{ACK, FIN, Frame, LINUX, RST, SYN, WINDOWS},
        spoofed, talk,
    },
    wait,
};

const DROP: u32 = 1;
const PASS: u32 = 2;

fn gateway(tag: &str, strict: bool) -> Option<CookieBed> {
    CookieBed::new(tag, Mode::Gateway(GatewayCookies { strict, ..GatewayCookies::default() }))
}

#[test]
fn a_client_becomes_known_and_keeps_every_option() {
    let Some(bed) = gateway("ckgate", true) else { return };
    for family in 0..2 {
        let to = bed.echo(SERVER[family]);
        let source = CLIENT[family].parse().unwrap();
        assert!(!bed.cookies.is_known(source).unwrap());
        let (resent, before) = (bed.client.counter("TcpRetransSegs"), bed.counts());
        let mut stream = bed.connect(to).unwrap();
        talk(&mut stream);
        let counts = bed.counts();
        assert!(bed.cookies.is_known(source).unwrap());
        assert_eq!((counts.answered - before.answered, counts.proved - before.proved), (1, 1));
        // Not even Linux, which would after 10 ms, has to send its SYN again.
        assert_eq!((counts.resumed - before.resumed, bed.client.counter("TcpRetransSegs") - resent), (1, 0));
        let text = bed.server.output("ss -tieOHn state established sport = 80");
        for word in [" ts ", " sack ", " wscale:"] {
            assert!(text.contains(word), "{text}");
        }
        // Known now: nothing stands between the second one and the server.
        talk(&mut bed.connect(to).unwrap());
        let after = bed.counts();
        assert_eq!((after.answered, after.known), (counts.answered, counts.known + 1));
        assert_eq!(bed.client.counter("TcpRetransSegs"), resent);
    }
    assert_eq!(bed.cookies.known(), 2);
}

#[test]
fn spoofed_sources_never_become_known() {
    let Some(bed) = gateway("ckspoof", false) else { return };
    let to = bed.echo(SERVER[0]);
    bed.flood(2000, 20_000, 10_000.0);
    wait("all are answered", || bed.counts().answered + 100 > 20_000);
    assert_eq!((bed.cookies.known(), bed.counts().proved), (0, 0));
    assert_eq!(bed.server.counter("TcpPassiveOpens"), 0);
    assert_eq!(bed.server.counter("TcpExtTCPReqQFullDrop"), 0);
    // Resets of guessed numbers.
    let resets: Vec<_> = (0..2000u32)
        .map(|n| {
            let frame = Frame::new(bed.server.link.mac, bed.client.link.mac, &spoofed(n).to_string(), SERVER[0]);
            let seq = n.wrapping_mul(0x9e37_79b1);
            Frame { flags: RST, seq, options: vec![], ..frame }.bytes()
        })
        .collect();
    bed.send(&resets, 2000, 10_000.0);
    assert_eq!((bed.cookies.known(), bed.counts().proved), (0, 0));
    // Beside all that a client gets in.
    talk(&mut bed.connect(to).unwrap());
    assert_eq!(bed.cookies.known(), 1);
}

#[test]
fn the_question_and_its_answer_frame_by_frame() {
    for strict in [false, true] {
        let Some(bed) = gateway("ckframes", strict) else { return };
        let test = |bytes: &[u8]| bed.server.run(|| bed.shield.test(bytes)).unwrap();
        for family in 0..2 {
            let mut syn = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[family], SERVER[family]);
            syn.tags = vec![100, 200];
            syn.data = vec![1; 500];
            let other = if strict { DROP } else { PASS };
            let stranger = Frame { flags: ACK, seq: 7, ..syn.clone() };
            assert_eq!(test(&stranger.bytes()).action, other, "an ACK of an unknown source");
            let tested = test(&syn.bytes());
            assert!(tested.frame.len() <= syn.bytes().len() - 500);
            let syn_ack = Frame::read(&tested.frame);
            assert_eq!((syn_ack.flags, &syn_ack.tags), (SYN | ACK, &syn.tags));
            assert_eq!((syn_ack.to, syn_ack.ports), (syn.from, (syn.ports.1, syn.ports.0)));
            // Not what the client could take for an answer to its SYN, with data or without.
            assert!(syn_ack.ack.wrapping_sub(syn.seq + 1) > 500);
            let wrong = Frame { flags: RST, seq: syn_ack.ack.wrapping_add(1), options: vec![], ..syn.clone() };
            assert_eq!(test(&wrong.bytes()).action, other);
            assert!(!bed.cookies.is_known(syn.source).unwrap());
            let mut to_all = syn.bytes();
            to_all[6] |= 1;
            assert_eq!(test(&to_all).action, DROP, "its answer would go to all hosts");
            let right = Frame { flags: RST, seq: syn_ack.ack, options: vec![], data: vec![], ..syn.clone() };
            let tested = test(&right.bytes());
            assert_eq!(tested.action, PASS, "its SYN goes on in its place");
            assert_eq!(Frame::read(&tested.frame), Frame { data: vec![], ..syn.clone() });
            assert!(bed.cookies.is_known(syn.source).unwrap());
            assert_eq!(bed.counts().resumed, bed.counts().proved);
            for frame in [&syn, &stranger, &right] {
                assert_eq!(test(&frame.bytes()).action, PASS, "of a known source");
            }
        }
    }
}

#[test]
fn a_source_stays_known_while_its_syns_come_and_is_challenged_again_later() {
    // Turns of four seconds: half the time the stamp is that of the turn before.
    let known_s = 3;
    let Some(bed) = CookieBed::new("ckturns", Mode::Gateway(GatewayCookies { known_s, strict: true })) else { return };
    let test = |frame: &Frame| bed.server.run(|| bed.shield.test(&frame.bytes())).unwrap();
    let syn = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[0], SERVER[0]);
    // The program's seconds are 2^30 ns long, and one that has begun does not count.
    let second = Duration::from_nanos(1 << 30);
    let prove = || {
        let syn_ack = Frame::read(&test(&syn).frame);
        let since = Instant::now();
        test(&Frame { flags: RST, seq: syn_ack.ack, options: vec![], ..syn.clone() });
        since
    };
    let (mut start, mut proofs) = (Instant::now(), 1);
    let mut last = prove();
    while start.elapsed() < second * 10 {
        let (before, action) = (Instant::now(), test(&syn).action);
        if action != PASS {
            let away = last.elapsed();
            assert!(
                away > second * (known_s - 1),
                "{away:?} after its last SYN, {:?} after the first",
                start.elapsed()
            );
            // This machine was away for so long: once more, as long as somebody has patience.
            assert!(proofs < 5, "a machine that is away again and again");
            (start, last, proofs) = (Instant::now(), prove(), proofs + 1);
            continue;
        }
        last = before;
        thread::sleep(second * 2 / 3);
    }
    assert_eq!(bed.counts().proved, proofs);
    thread::sleep(second * (known_s + 1));
    assert_ne!(test(&syn).action, PASS, "{known_s} s after its last SYN");
}

#[test]
fn packet_rings_ask_as_the_kernel_program_does() {
    let Some(bed) = gateway("ckboth", false) else { return };
    let proof = SynProof::new().unwrap();
    let thread = std::cell::RefCell::new(Overload::default());
    let judged = |bytes: &[u8]| {
        let Parsed::Ip(packet) = Packet::parse(bytes) else { panic!("{bytes:02x?}") };
        proof.judge(&packet, bytes, monotonic_ns(), &mut thread.borrow_mut())
    };
    let in_kernel = |bytes: &[u8]| bed.server.run(|| bed.shield.test(bytes)).unwrap();
    // Both: the frame without its cookie, and that cookie.
    let questions = |bytes: &[u8]| {
        let Challenged::SynAck(syn_ack) = judged(bytes) else { panic!("{bytes:02x?}") };
        [in_kernel(bytes).frame, syn_ack.bytes().to_vec()].map(|bytes| {
            let Parsed::Ip(packet) = Packet::parse(&bytes) else { panic!("{bytes:02x?}") };
            let mut frame = bytes[..packet.ip_at + usize::from(packet.len)].to_vec();
            let cookie = Frame::read(&bytes).ack;
            // The acknowledged number, and the checksum that it is part of; Frame::read has checked that one.
            frame[packet.transport_at + 8..packet.transport_at + 12].fill(0);
            frame[packet.transport_at + 16..packet.transport_at + 18].fill(0);
            (frame, bytes.len(), cookie)
        })
    };
    for family in 0..2 {
        for tags in [vec![], vec![100], vec![100, 200]] {
            for (options, data) in [(LINUX.to_vec(), 0), (WINDOWS.to_vec(), 700), (vec![], 0)] {
                let port = 1024 + tags.len() as u16;
                let base = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[family], SERVER[family]);
                let syn = Frame { tags: tags.clone(), options, data: vec![1; data], ports: (port, 80), ..base };
                let [kernel, ring] = questions(&syn.bytes());
                assert_eq!((&kernel.0, kernel.1), (&ring.0, ring.1), "{syn:?}");
                // PSH and URG make no difference to what is a SYN.
                for flags in (0..64).filter(|flags| flags & (FIN | SYN | RST | ACK) != SYN) {
                    let frame = Frame { flags, seq: 1, ..syn.clone() }.bytes();
                    let same = match in_kernel(&frame).action {
                        DROP => Challenged::Drop,
                        PASS => Challenged::Pass,
                        other => panic!("{flags:x}: {other}"),
                    };
                    assert_eq!(judged(&frame), same, "{flags:x}");
                }
            }
        }
        for source in
            ["224.0.0.1", "127.0.0.1", "0.0.0.1", "255.255.255.255", "ff02::1", "::1", "::", "::ffff:192.0.2.1"]
        {
            let base = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[family], SERVER[family]);
            let Ok(source) = source.parse::<std::net::IpAddr>() else { panic!("{source}") };
            if source.is_ipv4() == base.source.is_ipv4() {
                let frame = Frame { source, ..base }.bytes();
                assert_eq!((in_kernel(&frame).action, judged(&frame)), (DROP, Challenged::Drop), "{source}");
            }
        }
        // Each knows who answered it.
        let syn = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[family], SERVER[family]);
        let [(.., kernel), (.., ring)] = questions(&syn.bytes());
        let answer = |seq| Frame { flags: RST, seq, options: vec![], ..syn.clone() }.bytes();
        let (resumed, again) = (in_kernel(&answer(kernel)), judged(&answer(ring)));
        let Challenged::Resumed(again) = again else { panic!("{again:?}") };
        assert_eq!((resumed.action, &resumed.frame[..]), (PASS, again.bytes()), "the same SYN");
        assert_eq!((in_kernel(&syn.bytes()).action, judged(&syn.bytes())), (PASS, Challenged::Pass));
    }
}
