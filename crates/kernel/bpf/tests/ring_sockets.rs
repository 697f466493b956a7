//! The losses of a packet ring, against what its owner reads.

use std::{mem, net::UdpSocket};

use bpf::{RingKind, RingSockets};
use sys::packet::{PacketSocket, RingLayout, RxRing};

#[test]
fn a_ring_that_nobody_reads() {
    const PACKETS: u64 = 2_000;
    testbed::in_namespace(move || {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let layout = RingLayout { block_bytes: 4096, blocks: 2, retire_ms: 1000, rx_hash: false, node: None };
        let ring = RxRing::new(PacketSocket::open().unwrap(), layout).unwrap();
        ring.socket().set_ignore_outgoing().unwrap();
        ring.socket().bind(1).unwrap();
        let sockets = RingSockets::open().unwrap();
        for _ in 0..PACKETS {
            sender.send(&[0; 500]).unwrap();
            receiver.recv(&mut [0; 512]).unwrap();
        }
        let ours: Vec<_> = sockets.read().unwrap().into_iter().filter(|s| s.pid == std::process::id()).collect();
        let [ours] = ours.as_slice() else { panic!("one socket: {ours:?}") };
        assert_eq!((ours.kind, ours.ifindex), (RingKind::PacketRing, 1));
        assert!(ours.inode > 0 && ours.netns > 0 && !ours.comm.is_empty(), "{ours:?}");
        assert_eq!(ours.received + ours.lost, PACKETS);
        let statistics = ring.socket().take_statistics().unwrap();
        assert_eq!(
            (u64::from(statistics.packets), u64::from(statistics.drops)),
            (PACKETS, ours.lost),
            "looking has taken nothing away"
        );
        assert!(ours.lost > PACKETS / 2, "{ours:?}");
        let after = sockets.read().unwrap().into_iter().find(|s| s.inode == ours.inode).expect("it is still there");
        assert_eq!(sockets.forgets(), None);
        assert_eq!(
            (after.received, after.lost),
            (ours.received, ours.lost),
            "the kernel has forgotten what the owner asked for"
        );
        // An owner that asks all the time, as captures do, hides nothing.
        let mut drops = u64::from(statistics.drops);
        for i in 0..PACKETS {
            sender.send(&[0; 500]).unwrap();
            receiver.recv(&mut [0; 512]).unwrap();
            if i % 100 == 0 {
                drops += u64::from(ring.socket().take_statistics().unwrap().drops);
            }
        }
        drops += u64::from(ring.socket().take_statistics().unwrap().drops);
        let after = sockets.read().unwrap().into_iter().find(|s| s.inode == ours.inode).expect("it is still there");
        assert_eq!((after.received + after.lost, after.lost), (2 * PACKETS, drops));
        mem::drop(sockets);
        let afresh = RingSockets::open().unwrap().read().unwrap();
        let afresh = afresh.into_iter().find(|s| s.inode == ours.inode).expect("it is still there");
        assert_eq!((afresh.received, afresh.lost), (0, 0), "sums go with who made them");
    });
}
