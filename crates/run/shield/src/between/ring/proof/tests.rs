use std::net::IpAddr;

use rules::packet::Parsed;

use super::*;

const NOW: u64 = 1_000_000_000_000;

/// A frame of a TCP segment without options, with one tag.
fn frame(source: &str, flags: u8, seq: u32) -> Vec<u8> {
    let source: IpAddr = source.parse().unwrap();
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 5];
    match source {
        IpAddr::V4(a) => {
            bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0]);
            bytes.extend(a.octets());
            bytes.extend([198, 18, 0, 1]);
        }
        IpAddr::V6(a) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, TCP, 64]);
            bytes.extend(a.octets());
            bytes.extend([0x20; 16]);
        }
    }
    bytes.extend([0x90, 1, 0, 80]);
    bytes.extend(seq.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    bytes
}

fn judged(proof: &SynProof, frame: &[u8], now_ns: u64) -> Challenged {
    let Parsed::Ip(packet) = Packet::parse(frame) else { panic!("{frame:02x?}") };
    proof.judge(&packet, frame, now_ns, &mut Overload::default())
}

/// The number that a challenge acknowledges.
fn acknowledged(answer: Challenged) -> u32 {
    let Challenged::SynAck(syn_ack) = answer else { panic!("{answer:?}") };
    let Parsed::Ip(packet) = Packet::parse(syn_ack.bytes()) else { panic!("{syn_ack:02x?}") };
    assert_eq!((packet.tcp_flags, packet.ports, packet.vlan), (Some(SYN | ACK), Some((80, 0x9001)), Some(5)));
    number(syn_ack.bytes(), packet.transport_at + 4).unwrap()
}

#[test]
fn a_group_of_hosts_is_not_answered() {
    let proof = SynProof::new().unwrap();
    let mut syn = frame("192.0.2.1", SYN, 5);
    acknowledged(judged(&proof, &syn, NOW));
    syn[6] |= 1;
    assert_eq!(judged(&proof, &syn, NOW), Challenged::Drop);
}

#[test]
fn who_answers_is_known_and_nobody_else() {
    for source in ["192.0.2.1", "2001:2::1"] {
        let proof = SynProof::new().unwrap();
        let judge = |flags, seq, now_ns| judged(&proof, &frame(source, flags, seq), now_ns);
        let number = acknowledged(judge(SYN, 5, NOW));
        for (flags, seq) in [(RST, number ^ 1), (RST | ACK, number), (ACK, number), (SYN | ACK, number)] {
            assert_eq!(judge(flags, seq, NOW), Challenged::Pass, "as of anybody");
        }
        for flags in [SYN | FIN, SYN | RST, SYN | RST | ACK] {
            assert_eq!(judge(flags, number, NOW), Challenged::Drop);
        }
        acknowledged(judge(SYN, 5, NOW));
        assert_eq!(judge(RST, number, NOW), Challenged::Drop, "the answer ends here");
        for flags in [SYN, RST, ACK, SYN | FIN] {
            assert_eq!(judge(flags, number, NOW), Challenged::Pass, "known");
        }
        acknowledged(judge(SYN, 5, NOW + 600 * 1_000_000_000));
    }
}

#[test]
fn a_cookie_lasts_into_the_next_minute_and_is_of_its_connection() {
    let proof = SynProof::new().unwrap();
    let syn = frame("192.0.2.1", SYN, 5);
    let number = acknowledged(judged(&proof, &syn, NOW));
    let mut other = frame("192.0.2.1", RST, number);
    other[38] ^= 1;
    assert_eq!(judged(&proof, &other, NOW), Challenged::Pass, "another port");
    assert_eq!(judged(&proof, &frame("192.0.2.2", RST, number), NOW), Challenged::Pass, "another source");
    let rst = frame("192.0.2.1", RST, number);
    assert_eq!(judged(&proof, &rst, NOW + 120_000_000_000), Challenged::Pass, "two minutes later");
    assert_eq!(judged(&proof, &rst, NOW + 60_000_000_000), Challenged::Drop);
    let another = SynProof::new().unwrap();
    assert_ne!(acknowledged(judged(&another, &syn, NOW)), number, "another key");
}

#[test]
fn no_client_takes_the_number_for_right() {
    let proof = SynProof::new().unwrap();
    let number = acknowledged(judged(&proof, &frame("192.0.2.1", SYN, 5), NOW));
    for before in [0, 1, 2, 1460, 0xffff, 0x10000, 1 << 30, (1 << 31) - 1, 3 << 30, u32::MAX] {
        let sent = number.wrapping_sub(before);
        let number = acknowledged(judged(&proof, &frame("192.0.2.1", SYN, sent), NOW));
        assert!(number.wrapping_sub(sent).cast_signed() <= 0, "{before}: {number:x} {sent:x}");
    }
    // The other number is as good an answer.
    assert_eq!(judged(&proof, &frame("192.0.2.1", RST, number ^ 1 << 31), NOW), Challenged::Drop);
}

#[test]
fn what_nobody_sends_is_not_answered_and_groups_are_not_queried() {
    let proof = SynProof::new().unwrap();
    for source in ["224.0.0.1", "0.1.2.3", "127.0.0.1", "255.255.255.255", "::", "::1", "::ffff:192.0.2.1", "ff02::1"] {
        assert_eq!(judged(&proof, &frame(source, SYN, 1), NOW), Challenged::Drop, "{source}");
    }
    let mut group = frame("192.0.2.1", SYN, 1);
    group[0] |= 1;
    assert_eq!(judged(&proof, &group, NOW), Challenged::Pass);
}

#[test]
fn a_question_is_never_longer_than_its_syn() {
    let proof = SynProof::new().unwrap();
    for source in ["192.0.2.1", "2001:2::1"] {
        for padding in [0, 1, 2, 3, 40, 500] {
            let mut syn = frame(source, SYN, 1);
            syn.resize(syn.len() + padding, 0);
            let Challenged::SynAck(syn_ack) = judged(&proof, &syn, NOW) else { panic!("{source}") };
            let wanted = if source.contains(':') { 78 } else { 60.min(syn.len()).max(58) };
            assert_eq!(syn_ack.bytes().len(), wanted);
            assert!(syn_ack.bytes().len() <= syn.len());
        }
    }
}

#[test]
fn what_is_not_whole_or_of_another_kind_is_not_taken() {
    let proof = SynProof::new().unwrap();
    assert_eq!(proof.written(), None, "nobody is known");
    proof.known.learn("10.0.0.1".parse().unwrap(), 1 << 31);
    let bytes = proof.written().unwrap();
    assert!(SynProof::read(&bytes).is_some_and(|next| next.known.contains(
        "10.0.0.1".parse().unwrap(),
        1 << 31,
        false
    )));
    let other = [&b"evenkeel others "[..], &bytes[16..]].concat();
    for wrong in [&[][..], &bytes[..40], &bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &other] {
        assert!(SynProof::read(wrong).is_none(), "{} bytes", wrong.len());
    }
}
