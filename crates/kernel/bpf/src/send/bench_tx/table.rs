//! The lap as the program reads it: entries of one length, the probe behind them.

use std::mem::offset_of;

use super::{BenchEntry, PROBE_FLOW, SIGNATURE_BYTES};
use crate::{
    link::XdpError,
    send::live_run::{HEADER_MAX, LIVE_FRAME_MAX},
    skel::bench_tx::types::bench_tx_entry,
};

/// Bytes before the headers of an entry.
const HEAD: usize = size_of::<bench_tx_entry>();
/// The largest table, in bytes (BPF_MAX_VAR_OFF is the verifier's bound).
const TABLE_MAX: usize = 1 << 28;
/// The offset of the flow in a signature (struct bench_sig).
const FLOW_AT: usize = 2;

/// BENCH_PLAIN_LEN, and the offsets of signature and checksum in such frames.
const PLAIN_LEN: usize = 60;
const PLAIN: (u8, u8) = (42, 40);

const _: () = assert!(HEAD == 24);

/// Layout of the table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) header_len: usize,
    pub(super) stride: usize,
    pub(super) frame_max: usize,
    pub(super) sizes_vary: bool,
    pub(super) fragments: bool,
    pub(super) single: bool,
    /// Frames of the unit that has most.
    pub(super) longest_unit: u32,
    /// Offsets of signature and checksum where all entries have the same, the checksum covers one signature and nothing else varies.
    pub(super) uniform: Option<(u8, u8)>,
    /// The program for frames of IPv4 and UDP fits.
    pub(super) plain: bool,
    entries: usize,
    units: u64,
    /// Units begun and frames sent before each entry, forward and backward; behind the last one those of a lap.
    before: Vec<([u32; 2], [u32; 2])>,
}

impl Table {
    pub(super) fn of(entries: &[BenchEntry], probe: Option<&BenchEntry>) -> Result<Self, XdpError> {
        let bad = |text: String| Err(XdpError::setting(text));
        match entries.last() {
            None => return bad("a lap of no frames cannot be sent".into()),
            Some(last) if last.more => return bad("the lap ends within a unit".into()),
            Some(_) => {}
        }
        for (i, e) in entries.iter().chain(probe).enumerate() {
            check(e).map_err(|reason| XdpError::setting(format!("frame {i} of the lap {reason}")))?;
        }
        let all = || entries.iter().chain(probe);
        let header_len = all().map(|e| e.frame.len()).max().unwrap_or_default().max(8);
        let frame_max = all().map(|e| usize::from(e.frame_len)).max().unwrap_or_default().max(header_len);
        let mut before = vec![([0; 2], [0; 2])];
        let (mut longest_unit, mut frames) = (1, 0);
        for e in entries {
            let (mut units, mut sent) = before[before.len() - 1];
            let way = usize::from(e.direction);
            units[way] += u32::from(frames == 0);
            sent[way] += 1;
            before.push((units, sent));
            frames += 1;
            longest_unit = longest_unit.max(frames);
            if !e.more {
                frames = 0;
            }
        }
        let lap = before[before.len() - 1].0;
        let uniform = all().all(|e| is_plain(e) && place(e) == place(&entries[0])).then(|| place(&entries[0]));
        let sizes_vary = all().any(|e| usize::from(e.frame_len) != frame_max);
        let made = Self {
            header_len,
            stride: (HEAD + header_len).next_multiple_of(8),
            frame_max,
            sizes_vary,
            plain: header_len == PLAIN_LEN && uniform == Some(PLAIN) && !sizes_vary && longest_unit == 1,
            fragments: longest_unit > 1,
            single: entries.len() == 1,
            longest_unit,
            uniform,
            entries: entries.len(),
            units: u64::from(lap[0]) + u64::from(lap[1]),
            before,
        };
        if made.bytes() > TABLE_MAX {
            return bad(format!(
                "{} frames with {header_len} bytes of headers are too many for one lap: {} MiB, but it has {}",
                entries.len(),
                made.bytes() >> 20,
                TABLE_MAX >> 20
            ));
        }
        Ok(made)
    }

    pub(super) fn table_len(&self) -> usize {
        self.stride * self.entries
    }

    /// Bytes with the probe, in whole heads, as libbpf wants it of an array of them.
    pub(super) fn bytes(&self) -> usize {
        (self.table_len() + self.stride).next_multiple_of(HEAD)
    }

    /// A lower bound of the frames that `count` units take.
    pub(super) fn frames_of(&self, count: u64) -> u64 {
        let (laps, rest) = (count / self.units, count % self.units);
        laps.saturating_mul(self.entries as u64)
            .saturating_add((rest * u64::from(self.longest_unit)).min(self.entries as u64))
    }

    /// Units begun and frames sent, forward and backward, when the next entry is at `offset`.
    pub(super) fn sent(&self, laps: u64, offset: u64) -> ([u64; 2], [u64; 2]) {
        let at = (offset as usize / self.stride).min(self.entries);
        let sum =
            |whole: [u32; 2], part: [u32; 2]| [0, 1].map(|way| laps * u64::from(whole[way]) + u64::from(part[way]));
        let ((lap_units, lap_frames), (units, frames)) = (self.before[self.entries], self.before[at]);
        (sum(lap_units, units), sum(lap_frames, frames))
    }

    pub(super) fn write(&self, entries: &[BenchEntry], table: &mut [u8]) {
        for (at, entry) in table.chunks_exact_mut(self.stride).zip(entries) {
            self.write_entry(entry, entry.flow, at);
        }
    }

    pub(super) fn write_probe(&self, probe: &BenchEntry, table: &mut [u8]) -> Result<(), XdpError> {
        check(probe).map_err(|reason| XdpError::setting(format!("the probe {reason}")))?;
        let fits = probe.frame.len() <= self.header_len
            && usize::from(probe.frame_len) <= self.frame_max
            && (self.sizes_vary || usize::from(probe.frame_len) == self.frame_max)
            && self.uniform.is_none_or(|uniform| is_plain(probe) && place(probe) == uniform);
        if !fits {
            return Err(XdpError::setting("the probe differs from the one that the sender was loaded with".to_owned()));
        }
        self.write_entry(probe, PROBE_FLOW, &mut table[self.table_len()..]);
        Ok(())
    }

    fn write_entry(&self, e: &BenchEntry, flow: u32, to: &mut [u8]) {
        let mut put = |at: usize, bytes: &[u8]| to[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(bench_tx_entry, seq_base), &e.seq_base.to_ne_bytes());
        put(offset_of!(bench_tx_entry, seq_step), &e.seq_step.to_ne_bytes());
        put(offset_of!(bench_tx_entry, frame_len), &e.frame_len.to_ne_bytes());
        put(offset_of!(bench_tx_entry, direction), &[e.direction]);
        put(offset_of!(bench_tx_entry, signature_at), &[e.signature_at]);
        put(offset_of!(bench_tx_entry, checksum_at), &[e.checksum_at]);
        put(offset_of!(bench_tx_entry, checksum_times), &[e.checksum_times]);
        put(offset_of!(bench_tx_entry, id_at), &[e.id_at]);
        put(offset_of!(bench_tx_entry, id6_at), &[e.id6_at]);
        put(offset_of!(bench_tx_entry, more), &[u8::from(e.more)]);
        let headers = &mut to[HEAD..self.stride];
        headers.fill(0);
        headers[..e.frame.len()].copy_from_slice(&e.frame);
        let flow_at = usize::from(e.signature_at) + FLOW_AT;
        headers[flow_at..flow_at + 4].copy_from_slice(&flow.to_ne_bytes());
        if e.checksum_at != 0 {
            let sum = (u64::from(flow & 0xffff) + u64::from(flow >> 16)) * u64::from(e.checksum_times);
            add_to_checksum(headers, e.checksum_at, sum);
        }
        if e.id_at != 0 {
            // The program puts the number where it finds zeros.
            let at = usize::from(e.id_at);
            let was = u16::from_ne_bytes([headers[at], headers[at + 1]]);
            headers[at..at + 2].fill(0);
            add_to_checksum(headers, e.id_at + 6, u64::from(!was));
        }
    }
}

/// Adds `sum` (in host order) to what the checksum at `at` covers (RFC 1624).
fn add_to_checksum(headers: &mut [u8], at: u8, sum: u64) {
    let at = usize::from(at);
    let mut sum = sum + u64::from(!u16::from_ne_bytes([headers[at], headers[at + 1]]));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    headers[at..at + 2].copy_from_slice(&(!(sum as u16)).to_ne_bytes());
}

fn place(e: &BenchEntry) -> (u8, u8) {
    (e.signature_at, e.checksum_at)
}

/// True if the checksum covers one signature and nothing else varies.
fn is_plain(e: &BenchEntry) -> bool {
    (e.checksum_times == 1 || e.checksum_at == 0) && e.id_at == 0 && e.id6_at == 0
}

/// Refuses an entry that cannot be sent.
fn check(e: &BenchEntry) -> Result<(), String> {
    let headers = e.frame.len();
    let inside = |at: u8, bytes: usize| at == 0 || usize::from(at) + bytes <= headers;
    if headers > HEADER_MAX {
        return Err(format!("has headers of {headers} bytes, but up to {HEADER_MAX} can be written"));
    }
    if usize::from(e.frame_len) > LIVE_FRAME_MAX || usize::from(e.frame_len) < headers.max(14) {
        return Err(format!(
            "has {} bytes, but headers of {headers}, and live frames up to {LIVE_FRAME_MAX}",
            e.frame_len
        ));
    }
    if e.direction > 1 {
        return Err(format!("goes in direction {}, but there are 0 and 1", e.direction));
    }
    if e.signature_at == 0 || !inside(e.signature_at, SIGNATURE_BYTES) {
        return Err(format!("has no room for the signature at {} in {headers} bytes of headers", e.signature_at));
    }
    if !inside(e.checksum_at, 2) || !inside(e.id_at, 8) || !inside(e.id6_at, 4) {
        return Err(format!("has a checksum or an identification behind its {headers} bytes of headers"));
    }
    if e.checksum_at % 2 != e.signature_at % 2 && e.checksum_at != 0 {
        return Err("has its signature at an odd distance from the checksum".into());
    }
    Ok(())
}
