//! The same rules and packets through the kernel program, through nftables and through the plain interpreter: the same verdicts.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use bpf::filter::{Shield, ShieldConfig, ShieldShared};
use rules::{
    Rules,
    compile::{self, Counters, Now},
    nft,
    reference::{self, Outcome},
};
use sys::packet::{Batch, PacketSocket};
use testbed::{
    Wire,
    random::{Random, Shape, rules, spec},
    wait,
};

/// Rule sets, and packets sent through each: 100,000 pairs.
const RULE_SETS: usize = 50;
const PACKET_COUNT: usize = 2000;
/// Packets that the sockets' buffers hold before they are read.
const BURST_PACKETS: usize = 500;
/// Bytes of the Ethernet header and one tag that a veth of the usual MTU takes beside the packet.
const FRAME_MAX: usize = 1514;

/// Protocol of the frame behind all others of a rule set, which no rule is about (for experiments, IEEE 802).
const LAST: u16 = 0x88b5;
const XDP_PASS: u32 = 2;

/// A wire whose receiving end has rules of nftables: frames are sent at one end, and those let through are read at the other.
struct Filtered {
    wire: Wire,
    sender: pcap::Capture<pcap::Active>,
    /// Sockets for IPv4, for IPv6 and for [`LAST`]: sockets for a protocol are served behind the ingress hook, those for all
    /// protocols (as bound ones are) before it.
    receivers: [PacketSocket; 3],
    batch: Batch,
}

impl Filtered {
    fn build() -> Option<Self> {
        let wire = Wire::new("equiv")?;
        let open = || pcap::Capture::from_device(wire.sender.interface()).unwrap().open().unwrap();
        let sender = wire.sender.run(open);
        let receivers = [0x0800, 0x86dd, LAST].map(|protocol| {
            wire.receiver.run(|| {
                let socket = PacketSocket::open_for(protocol).unwrap();
                socket.set_receive_buffer(16 << 20).unwrap();
                socket
            })
        });
        Some(Self { wire, sender, receivers, batch: Batch::new(64, 64) })
    }

    /// Replaces the rules of nftables.
    fn load(&self, rules: &Rules, now: Now) {
        let script = nft::script(rules, self.wire.receiver.interface(), now).unwrap();
        let output = self.wire.receiver.run(|| nft(&["-f", "-"], &script));
        assert!(output.1.is_empty(), "{}\n{script}", output.1);
    }

    /// Sends frames, and tells which of them arrive.
    fn arrivals(&mut self, frames: &[Vec<u8>]) -> Vec<bool> {
        // A veth of one queue keeps the order: when the last frame is here, all others are or never will be.
        let last = [&[2, 0, 0, 0, 0, 1, 2, 0][..], &u32::MAX.to_be_bytes(), &LAST.to_be_bytes(), &[0; 46]].concat();
        let mut arrived = vec![false; frames.len()];
        for burst in frames.chunks(BURST_PACKETS) {
            for frame in burst.iter().chain([&last]) {
                wait("room in the backlog of the CPU, which other traffic fills, too", || self.is_sent(frame));
            }
            wait("the last frame", || self.receive(&mut arrived));
            self.receive(&mut arrived);
        }
        arrived
    }

    /// True if the frame was sent. False: the kernel dropped it for lack of memory (ENOBUFS).
    fn is_sent(&mut self, frame: &[u8]) -> bool {
        match self.sender.sendpacket(frame) {
            Ok(()) => true,
            Err(pcap::Error::PcapError(error)) if error.contains("No buffer space available") => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Notes what is there to be received; whether the last frame is.
    fn receive(&mut self, arrived: &mut [bool]) -> bool {
        let mut last = false;
        for socket in &self.receivers {
            loop {
                let received = self.batch.receive(socket).unwrap();
                for packet in self.batch.packets(received) {
                    // The number that `numbered` wrote into the source's MAC address.
                    match u32::from_be_bytes(packet.data[8..12].try_into().unwrap()) {
                        u32::MAX => last = true,
                        number => arrived[number as usize] = true,
                    }
                }
                if received == 0 {
                    break;
                }
            }
        }
        last
    }

    /// Packets that each rule has counted, and the default.
    fn counted(&self, rules: &Rules) -> Vec<u64> {
        let (out, error) = self.wire.receiver.run(|| nft(&["-j", "list", "counters"], ""));
        assert!(error.is_empty(), "{error}");
        let listed: serde_json::Value = serde_json::from_str(&out).unwrap();
        let of = |name: &str| {
            let counters = listed["nftables"].as_array().unwrap().iter().map(|object| &object["counter"]);
            counters.filter(|c| c["name"] == name).map(|c| c["packets"].as_u64().unwrap()).sum::<u64>()
        };
        let rules = (0..rules.rules.len()).map(|number| of(&nft::counter(number)));
        rules.chain([of(nft::DEFAULT_COUNTER)]).collect()
    }
}

/// Output and errors of nft(8).
fn nft(arguments: &[&str], input: &str) -> (String, String) {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nft (package nftables)");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A packet that all three see alike, with its number in the source's MAC address. See [`nft`] for what they see differently.
fn numbered(random: &mut Random, rules: &Rules, number: usize) -> Vec<u8> {
    loop {
        let mut spec = spec(random, rules);
        spec.tags.truncate(1);
        spec.extensions.retain(|header| *header != 51);
        let mut frame = spec.bytes();
        if frame.len() <= FRAME_MAX {
            frame[8..12].copy_from_slice(&(number as u32).to_be_bytes());
            return frame;
        }
    }
}

#[test]
fn nftables_the_kernel_program_and_the_interpreter_decide_alike() {
    let Some(mut filtered) = Filtered::build() else { return };
    let mut random = Random(5);
    let now = Now::read();
    let shape = Shape { challenges: false, known: false, ..Shape::default() };
    let (mut pairs, mut dropped, mut by_rule) = (0, 0, 0);
    for _ in 0..RULE_SETS {
        let rules = rules(&mut random, shape, now.wall);
        let frames: Vec<_> = (0..PACKET_COUNT).map(|number| numbered(&mut random, &rules, number)).collect();
        let meant: Vec<_> = frames.iter().map(|frame| reference::decide_frame(&rules, frame, now)).collect();
        let passes = |number: usize| meant[number].outcome == Outcome::Pass;

        let tables = compile::tables(&rules, &mut Counters::new(), now).unwrap();
        let shared = ShieldShared::create().unwrap();
        let config = ShieldConfig { report: true, ..ShieldConfig::default() };
        let shield = Shield::load(&tables, &config, &shared).unwrap();
        filtered.load(&rules, now);
        let arrived = filtered.arrivals(&frames);
        for (number, frame) in frames.iter().enumerate() {
            let found = shield.test(frame).unwrap();
            let same = (found.action == XDP_PASS, found.rule, arrived[number]);
            let context = || {
                format!(
                    "{:?}\nframe {frame:02x?}\n{rules:#?}\n{}",
                    meant[number],
                    nft::script(&rules, "x", now).unwrap()
                )
            };
            assert_eq!(
                same,
                (passes(number), meant[number].rule, passes(number)),
                "kernel, its rule, nftables; {}",
                context()
            );
        }
        let mut counts = vec![0; rules.rules.len() + 1];
        for decision in &meant {
            decision.counted.iter().for_each(|&rule| counts[rule] += 1);
            *counts.last_mut().unwrap() += u64::from(decision.rule.is_none());
        }
        assert_eq!(filtered.counted(&rules), counts, "what nftables counted; {rules:#?}");
        pairs += PACKET_COUNT;
        dropped += meant.iter().filter(|decision| decision.outcome == Outcome::Drop).count();
        by_rule += meant.iter().filter(|decision| decision.rule.is_some()).count();
    }
    eprintln!("{pairs} pairs: {dropped} dropped, {by_rule} decided by a rule");
    // Neither verdict is rare, so that a table that always says the same is found out.
    assert!(dropped > pairs / 10 && dropped < pairs * 9 / 10 && by_rule > pairs / 4);
}
