//! A sender and a receiver, joined.

use std::{thread, time::Duration};

use crate::{Bed, End, wait};

/// Two namespaces with a veth pair between them.
#[derive(Debug)]
pub struct Wire {
    pub sender: End,
    pub receiver: End,
    pub bed: Bed,
}

impl Wire {
    /// None, and a word why, without the privilege.
    pub fn new(tag: &str) -> Option<Self> {
        let (bed, [sender, receiver]) = Bed::pair(tag)?;
        Some(Self { sender, receiver, bed })
    }

    /// Likewise, with a receiver that takes redirected frames.
    pub fn with_napi(tag: &str) -> Option<Self> {
        Self::new(tag).inspect(|wire| wire.receiver.feature("rx-gro", true))
    }

    /// Waits until the receiver has so many packet sockets that receive and stay (/proc/net/packet of its namespace): libpcap opens some for a
    /// moment, each time a filter is compiled.
    #[track_caller]
    pub fn hears(&self, sockets: usize) {
        let receiving = || -> Vec<String> {
            let table = self.receiver.read("/proc/thread-self/net/packet");
            let fields = table.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>());
            fields.filter(|f| f.get(5) == Some(&"1")).filter_map(|f| f.last().map(|&inode| inode.to_owned())).collect()
        };
        wait("sockets that receive", || {
            let first = receiving();
            thread::sleep(Duration::from_millis(100));
            receiving().iter().filter(|inode| first.contains(inode)).count() >= sockets
        });
    }
}
