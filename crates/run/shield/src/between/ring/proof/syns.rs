//! The last SYNs of sources that were asked: a source that answers rightly need not send its SYN again, which systems other than Linux do after a second or
//! more. Its answer becomes that SYN.

/// Places, a power of two (16 MB): under a flood of a million SYNs a second one is here for a quarter of a second. A client that is slower tries again by
/// itself, and so does one whose place was taken.
const SLOT_COUNT: usize = 1 << 18;
/// A SYN that is older has been sent again, as far as its client wants it.
const SYN_TIMEOUT_S: u32 = 3;
/// TCP's header without options, and its longest options.
const TCP_LEN: usize = 20;
const OPTIONS_MAX: usize = 40;

/// The part of a SYN that is forwarded later: a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Syn {
    /// Hash of addresses and ports; 0: no SYN.
    hash: u64,
    at_s: u32,
    pub(super) seq: u32,
    pub(super) window: u16,
    pub(super) flags: u8,
    options_len: u8,
    options: [u8; OPTIONS_MAX],
}

impl Syn {
    const NONE: Self =
        Self { hash: 0, at_s: 0, seq: 0, window: 0, flags: 0, options_len: 0, options: [0; OPTIONS_MAX] };

    pub(super) fn options(&self) -> &[u8] {
        &self.options[..usize::from(self.options_len)]
    }
}

/// SYNs of one thread. Empty until the first SYN is asked about.
#[derive(Debug, Default)]
pub(super) struct Syns(Vec<Syn>);

impl Syns {
    /// Remembers the SYN whose TCP header `tcp` begins with; `hash` is of its addresses and ports. None of it if its options are cut short.
    pub(super) fn keep(&mut self, hash: u64, tcp: &[u8], now_s: u32) {
        if self.0.is_empty() {
            self.0.resize(SLOT_COUNT, Syn::NONE);
        }
        let place = &mut self.0[(hash >> 32) as usize % SLOT_COUNT];
        *place = Syn::NONE;
        let Some(head) = tcp.first_chunk::<TCP_LEN>() else { return };
        let Some(options) = tcp.get(TCP_LEN..usize::from(head[12] >> 4) * 4) else { return };
        place.options[..options.len()].copy_from_slice(options);
        *place = Syn {
            hash: hash | 1,
            at_s: now_s,
            seq: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            window: u16::from_be_bytes([head[14], head[15]]),
            flags: head[13],
            options_len: options.len() as u8,
            options: place.options,
        };
    }

    /// Takes the SYN of that hash out, if it is there.
    pub(super) fn take(&mut self, hash: u64, now_s: u32) -> Option<Syn> {
        let place = self.0.get_mut((hash >> 32) as usize % SLOT_COUNT)?;
        let is_it = place.hash == hash | 1 && now_s.wrapping_sub(place.at_s) < SYN_TIMEOUT_S;
        is_it.then(|| std::mem::replace(place, Syn::NONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(options: &[u8]) -> Vec<u8> {
        let mut tcp = vec![0x90, 1, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0xc2, 0x12, 0x34, 0, 0, 0, 0];
        tcp[12] = (((TCP_LEN + options.len()) / 4) as u8) << 4;
        tcp.extend(options);
        tcp
    }

    #[test]
    fn a_syn_is_taken_once_and_not_for_long() {
        let mut syns = Syns::default();
        assert!(syns.take(7 << 32, 1).is_none());
        for options in [vec![], vec![2, 4, 5, 180], vec![1; OPTIONS_MAX]] {
            syns.keep(7 << 32, &header(&options), 100);
            assert!(syns.take(7 << 32 | 2, 100).is_none(), "another connection at the same place");
            let syn = syns.take(7 << 32, 102).expect("it is there");
            assert_eq!((syn.seq, syn.window, syn.flags, syn.options()), (0x0102_0304, 0x1234, 0xc2, &options[..]));
            assert!(syns.take(7 << 32, 102).is_none(), "once");
            syns.keep(7 << 32, &header(&options), 100);
            assert!(syns.take(7 << 32, 103).is_none(), "it came again by itself");
        }
    }

    #[test]
    fn what_is_cut_short_is_not_remembered() {
        let mut syns = Syns::default();
        let whole = header(&[1; 12]);
        for len in 0..whole.len() {
            syns.keep(5, &whole[..len], 1);
            assert!(syns.take(5, 1).is_none(), "{len}");
        }
        let mut lies = header(&[]);
        lies[12] = 4 << 4;
        syns.keep(5, &lies, 1);
        assert!(syns.take(5, 1).is_none(), "a header of 16 bytes");
    }
}
