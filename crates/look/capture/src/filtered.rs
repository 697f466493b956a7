//! A filter that the kernel does not run, run in this process on every packet.

use std::time::Duration;

use port::{Counted, Frame, PortError, Source, SourceStats};
use sys::packet::{Instruction, classic};

/// A source whose packets pass a filter here.
#[derive(Debug)]
pub struct Filtered<S> {
    source: S,
    /// For the bytes of a frame with its tag in it.
    program: Vec<Instruction>,
    /// Bytes kept of a packet that passes.
    snaplen: usize,
    filtered_out: u64,
    shut: bool,
    /// A frame with the tag that the kernel took out.
    scratch: Vec<u8>,
}

impl<S> Filtered<S> {
    pub(crate) fn new(source: S, program: Vec<Instruction>, snaplen: u32) -> Self {
        Self { source, program, snaplen: snaplen as usize, filtered_out: 0, shut: false, scratch: Vec::new() }
    }
}

impl<S: Source> Source for Filtered<S> {
    fn backend(&self) -> &'static str {
        self.source.backend()
    }

    fn receive<F: FnMut(Frame<'_>)>(&mut self, timeout: Duration, mut each: F) -> Result<usize, PortError> {
        let Self { source, program, snaplen, filtered_out, scratch, shut } = self;
        let (mut passed, mut lost) = (0, 0u32);
        loop {
            let seen = source.receive(timeout, |frame| {
                lost = lost.saturating_add(frame.lost_before);
                let tag = if frame.vlan.is_some() { 4 } else { 0 };
                if !classic::accepts(program, frame.with_tag(scratch), frame.wire_len + tag) {
                    *filtered_out += 1;
                    return;
                }
                passed += 1;
                let data = frame.data.get(..*snaplen).unwrap_or(frame.data);
                each(Frame { data, lost_before: std::mem::take(&mut lost), ..frame });
            })?;
            // At the end 0 means that nothing is left, not that nothing passed.
            if seen == 0 || passed > 0 || !*shut {
                return Ok(passed);
            }
        }
    }

    fn count(&mut self, timeout: Duration) -> Result<Counted, PortError> {
        let mut bytes = 0;
        let packets = self.receive(timeout, |frame| bytes += u64::from(frame.wire_len))?;
        Ok(Counted { packets: packets as u64, bytes: Some(bytes) })
    }

    fn close_intake(&mut self) -> Result<(), PortError> {
        self.shut = true;
        self.source.close_intake()
    }

    fn interface(&self) -> &str {
        self.source.interface()
    }

    fn is_down(&self) -> bool {
        self.source.is_down()
    }

    fn holds_back(&self) -> Duration {
        self.source.holds_back()
    }

    fn stats(&mut self) -> Result<SourceStats, PortError> {
        Ok(SourceStats { filtered_out: self.filtered_out, ..self.source.stats()? })
    }
}
