//! The queueing disciplines of every interface and their classes, by rtnetlink (RTM_GETQDISC, RTM_GETTCLASS).

use std::{collections::BTreeMap, io};

use crate::netlink::{DUMP, Netlink, attributes, text};

const RTM_GETQDISC: u16 = 38;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETTCLASS: u16 = 42;
const RTM_NEWTCLASS: u16 = 40;
/// `struct tcmsg`: family, padding, ifindex, handle, parent, info.
const TCMSG_BYTES: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;

/// Disciplines whose classes have counters of their own (those of `mq` are the disciplines below it).
const CLASSFUL: [&str; 6] = ["htb", "hfsc", "drr", "qfq", "cbq", "ets"];

/// A queueing discipline or class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QdiscKey {
    pub ifindex: u32,
    pub class: bool,
    /// Its handle, major number in the upper 16 bits; 0 for one that nobody configured.
    pub handle: u32,
    /// Handle of the parent; see [`QdiscKey::is_root`].
    pub parent: u32,
}

impl QdiscKey {
    /// True if it stands at the top of its interface's transmit side. Losses further down are counted there as well.
    pub fn is_root(&self) -> bool {
        !self.class && self.parent == TC_H_ROOT
    }

    /// True if it is the `ingress` or `clsact` discipline, whose losses are verdicts of tc filters.
    pub fn is_ingress(&self) -> bool {
        !self.class && self.parent == TC_H_INGRESS
    }
}

/// The counts of a queueing discipline or class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Qdisc {
    /// Kind of the discipline, such as `fq_codel`.
    pub kind: String,
    pub bytes: u64,
    pub packets: u64,
    pub drops: u64,
    /// Times that a packet had to wait for the rate.
    pub overlimits: u64,
    /// Times that the driver gave a packet back.
    pub requeues: u64,
    pub queued_packets: u32,
    pub backlog_bytes: u32,
}

impl Qdisc {
    /// The counts between `earlier` and now; what waits is that of now. Losses and overlimits are 32 bits wide in
    /// the kernel and may have wrapped.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let wrapping = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
        if earlier.kind != self.kind || self.bytes < earlier.bytes {
            return self.clone(); // replaced by another under the same handle
        }
        Self {
            kind: self.kind.clone(),
            bytes: self.bytes - earlier.bytes,
            packets: self.packets.saturating_sub(earlier.packets),
            drops: wrapping(self.drops, earlier.drops),
            overlimits: wrapping(self.overlimits, earlier.overlimits),
            requeues: wrapping(self.requeues, earlier.requeues),
            queued_packets: self.queued_packets,
            backlog_bytes: self.backlog_bytes,
        }
    }
}

/// Reads all disciplines and classes of the namespace in which `route` was opened.
pub(super) fn read(route: &mut Netlink) -> io::Result<BTreeMap<QdiscKey, Qdisc>> {
    let mut all = BTreeMap::new();
    route.ask(RTM_GETQDISC, DUMP, &[0; TCMSG_BYTES], |kind, payload| {
        if kind == RTM_NEWQDISC {
            all.extend(parse(payload, false));
        }
    })?;
    let mut with_classes: Vec<u32> =
        all.iter().filter(|(_, q)| CLASSFUL.contains(&q.kind.as_str())).map(|(key, _)| key.ifindex).collect();
    with_classes.dedup();
    for ifindex in with_classes {
        let mut body = [0; TCMSG_BYTES];
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        // An interface that went away in between has no classes.
        let _ = route.ask(RTM_GETTCLASS, DUMP, &body, |kind, payload| {
            if kind == RTM_NEWTCLASS {
                all.extend(parse(payload, true));
            }
        });
    }
    Ok(all)
}

fn parse(payload: &[u8], class: bool) -> Option<(QdiscKey, Qdisc)> {
    let word = |at: usize| payload.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
    let key = QdiscKey { ifindex: word(4)?, class, handle: word(8)?, parent: word(12)? };
    let mut qdisc = Qdisc::default();
    for attribute in attributes(payload.get(TCMSG_BYTES..)?) {
        match attribute.kind() {
            TCA_KIND => qdisc.kind = text(attribute.value()),
            TCA_STATS2 => stats2(attribute.value(), &mut qdisc),
            _ => {}
        }
    }
    Some((key, qdisc))
}

fn stats2(bytes: &[u8], qdisc: &mut Qdisc) {
    let mut packets_64 = None;
    for attribute in attributes(bytes) {
        let value = attribute.value();
        let long = |at: usize| value.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        let word = |at: usize| value.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        match attribute.kind() {
            TCA_STATS_BASIC => {
                qdisc.bytes = long(0);
                qdisc.packets = word(8).into();
            }
            TCA_STATS_PKT64 => packets_64 = Some(long(0)),
            TCA_STATS_QUEUE => {
                qdisc.queued_packets = word(0);
                qdisc.backlog_bytes = word(4);
                qdisc.drops = word(8).into();
                qdisc.requeues = word(12).into();
                qdisc.overlimits = word(16).into();
            }
            _ => {}
        }
    }
    qdisc.packets = packets_64.unwrap_or(qdisc.packets);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::push_attribute;

    fn message() -> Vec<u8> {
        let mut basic = 6_000u64.to_ne_bytes().to_vec();
        basic.extend_from_slice(&[100u32, 0].map(u32::to_ne_bytes).concat());
        let queue = [3u32, 180, 42, 1, 7].map(u32::to_ne_bytes).concat();
        let mut stats = Vec::new();
        push_attribute(&mut stats, TCA_STATS_BASIC, &basic);
        push_attribute(&mut stats, TCA_STATS_QUEUE, &queue);
        push_attribute(&mut stats, TCA_STATS_PKT64, &5_000_000_100u64.to_ne_bytes());
        let mut payload = vec![0; 4];
        payload.extend_from_slice(&[9u32, 0x8001_0000, TC_H_ROOT, 2].map(u32::to_ne_bytes).concat());
        push_attribute(&mut payload, TCA_KIND, b"tbf\0");
        push_attribute(&mut payload, TCA_STATS2, &stats);
        payload
    }

    #[test]
    fn a_message_of_the_kernel() {
        let (key, qdisc) = parse(&message(), false).expect("a discipline");
        assert_eq!((key.ifindex, key.handle, key.is_root()), (9, 0x8001_0000, true));
        assert_eq!((qdisc.kind.as_str(), qdisc.bytes, qdisc.packets), ("tbf", 6_000, 5_000_000_100));
        assert_eq!((qdisc.queued_packets, qdisc.backlog_bytes), (3, 180));
        assert_eq!((qdisc.drops, qdisc.requeues, qdisc.overlimits), (42, 1, 7));
        for end in 0..message().len() {
            let _ = parse(&message()[..end], false);
        }
    }

    #[test]
    fn a_wrapped_counter_goes_on() {
        let before = Qdisc { kind: "tbf".into(), drops: u64::from(u32::MAX), bytes: 5, ..Qdisc::default() };
        let now = Qdisc { kind: "tbf".into(), drops: 9, bytes: 8, ..Qdisc::default() };
        assert_eq!((now.since(&before).drops, now.since(&before).bytes), (10, 3));
        let other = Qdisc { kind: "pfifo".into(), ..now.clone() };
        assert_eq!(other.since(&before).drops, 9);
    }
}
