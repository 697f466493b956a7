//! Memory that packet work takes, on the loopback of a network namespace of our own.

use std::net::UdpSocket;

use bpf::AllocationCounter;

#[test]
fn socket_buffers_that_end_in_soft_interrupts_are_counted_and_those_of_programs_are_not() {
    const PACKETS: u64 = 2_000;
    let cpus: Vec<u32> = (0..1024).collect();
    testbed::in_namespace(move || {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let counter = AllocationCounter::attach().unwrap();
        let before = counter.read(&cpus).unwrap();
        // Nobody listens there: each datagram, and the answer to it, dies where it is received.
        for _ in 0..PACKETS {
            let _ = sender.send_to(&[0; 18], "127.0.0.1:9");
        }
        let refused = counter.read(&cpus).unwrap().since(before);
        assert!(refused.buffers >= PACKETS, "{refused:?}");
        // A program takes these, by system calls.
        let before = counter.read(&cpus).unwrap();
        for _ in 0..PACKETS {
            sender.send_to(&[0; 18], receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 64]).unwrap();
        }
        let read = counter.read(&cpus).unwrap().since(before);
        assert!(read.buffers < PACKETS, "{read:?}: others had no traffic of that size meanwhile");
    });
}
