//! Accesses to devices, out of QEMU's trace.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::Path,
};

use guest::Nic;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) notifications: u64,
}

/// A trace that is read further and further.
pub(super) struct Trace {
    file: BufReader<File>,
}

impl Trace {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file: BufReader::new(file) })
    }

    /// Counts the events since the last reading, or since it was opened.
    pub(super) fn counts(&mut self, nic: &Nic) -> io::Result<Counts> {
        let (mut counts, mut line) = (Counts::default(), String::new());
        while self.file.read_line(&mut line)? > 0 {
            counts.add(&line, nic);
            line.clear();
        }
        Ok(counts)
    }
}

impl Counts {
    fn add(&mut self, line: &str, nic: &Nic) {
        // With a time before it where QEMU is told so.
        if line.contains("virtio_queue_notify ") {
            self.notifications += 1;
            return;
        }
        let Some(region) = line.split('\'').nth(1).filter(|region| nic.owns(region)) else { return };
        // A notification has an event of its own.
        if region.contains("notify") {
            return;
        }
        if line.contains("memory_region_ops_read ") {
            self.reads += 1;
        } else if line.contains("memory_region_ops_write ") {
            self.writes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_of_the_cards_alone_count_and_each_once() {
        let lines = [
            "memory_region_ops_write cpu 0 mr 0x5 addr 0xfebc3818 value 0x12 size 4 name 'e1000-mmio'",
            "memory_region_ops_read cpu 0 mr 0x5 addr 0xfebc00c0 value 0x80 size 4 name 'e1000-mmio'",
            "memory_region_ops_write cpu 0 mr 0x6 addr 0x3f8 value 0x41 size 1 name 'serial'",
        ];
        let of = |nic: Nic, lines: &[&str]| {
            let mut counts = Counts::default();
            lines.iter().for_each(|line| counts.add(line, &nic));
            counts
        };
        assert_eq!(of(Nic::E1000, &lines), Counts { reads: 1, writes: 1, notifications: 0 });
        assert_eq!(of(Nic::E1000e, &lines), Counts::default());
        let virtio = [
            "virtio_queue_notify vdev 0x55 n 1 vq 0x66",
            "memory_region_ops_write cpu 0 mr 0x7 addr 0xfe00 value 0x1 size 2 name 'virtio-pci-notify-virtio-net'",
            "memory_region_ops_read cpu 0 mr 0x7 addr 0xfe00 value 0x1 size 1 name 'virtio-pci-isr-virtio-net'",
        ];
        assert_eq!(of(Nic::Virtio, &virtio), Counts { reads: 1, writes: 0, notifications: 1 });
    }
}
