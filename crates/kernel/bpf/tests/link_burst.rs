//! Frames that leave as a burst, on a real wire of two namespaces.

use std::time::{Duration, Instant};

use bpf::{LinkBurst, LinkPort, LinkSettings, XdpMode};
use testbed::{
    Bed, End,
    messages::{PORT, data, frame, payload},
};

fn burst(end: &End) -> LinkBurst {
    end.run(|| {
        let mut burst = LinkBurst::load(end.interface(), 1514).unwrap();
        burst.hold().unwrap();
        burst
    })
}

#[test]
fn frames_of_every_length_arrive_whole_and_in_order() {
    let Some((_bed, [a, b])) = Bed::pair("lbst") else { return };
    let mut port = b.run(|| LinkPort::attach(b.interface(), XdpMode::Native, LinkSettings::default()).unwrap());
    let mut ring = port.endpoint(PORT..=PORT, 4 << 20).unwrap();
    let mut burst = burst(&a);
    let messages: Vec<Vec<u8>> = (0..700).map(|n| data(&payload(20 + n * 2 % 1440))).collect();
    for few in messages.chunks(LinkBurst::FRAMES - 1) {
        for message in few {
            assert!(burst.push(&frame(b.link.mac.0, &[], message)));
        }
        assert_eq!(burst.send().unwrap(), 0, "the other end has a program, and takes them");
    }
    let (mut came, began) = (Vec::new(), Instant::now());
    while came.len() < messages.len() && began.elapsed() < Duration::from_secs(5) {
        ring.consume(|_, _, message| came.push(message.to_vec()));
    }
    assert_eq!(came.len(), messages.len());
    for (n, (came, sent)) in came.iter().zip(&messages).enumerate() {
        assert_eq!(came[..sent.len()], sent[..], "message {n}");
    }
}

#[test]
fn a_burst_that_nobody_takes_says_so_and_a_full_one_takes_no_more() {
    let Some((_bed, [a, b])) = Bed::pair("lbstn") else { return };
    let mut burst = burst(&a);
    let sent = frame(b.link.mac.0, &[], &data(&payload(100)));
    assert_eq!(burst.send().unwrap(), 0);
    assert!(!burst.push(&[0; 1515]), "longer than it was made for");
    for _ in 0..LinkBurst::FRAMES {
        assert!(burst.push(&sent));
    }
    assert!(!burst.push(&sent));
    assert_eq!(burst.send().unwrap(), LinkBurst::FRAMES, "a veth whose other end has no NAPI takes none");
    assert!(burst.push(&sent) && burst.waiting() == 1);
}
