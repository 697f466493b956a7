//! `evenkeel capture -r FILE`: packets of a file instead of those of an interface.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::Ordering,
};

use capture::{
    file::CaptureFile,
    output::{Chunk, Output, OutputError, Target},
    pcapng::{self, Captured},
    session::{self, Destination},
    text::Writer,
};
use model::units;
use serde::Serialize;

use super::{
    args::{Config, wrong},
    show,
};
use crate::{
    failure::{Failure, Outcome, cannot_write, note, print, print_json},
    signals::report_flag,
};

/// Encoded bytes that are gathered before they are written.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Serialize)]
struct Totals<'a> {
    file: String,
    filter: &'a str,
    packets: u64,
    bytes: u64,
    packets_read: u64,
}

enum Sink {
    Count,
    Text(Writer),
    Pcapng(Box<Output>),
}

impl Sink {
    /// Writes what was gathered; whether somebody still reads it.
    fn write(&mut self, chunk: &mut Chunk) -> Result<bool, Failure> {
        if chunk.bytes.is_empty() {
            return Ok(true);
        }
        let written = match self {
            Self::Count => Ok(()),
            Self::Text(_) => match io::stdout().lock().write_all(&chunk.bytes) {
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
                Err(e) => return Err(cannot_write(e)),
                Ok(()) => Ok(()),
            },
            Self::Pcapng(output) => output.write(chunk, 0),
        };
        chunk.clear();
        match written {
            Err(OutputError::Closed(_)) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }
}

pub(super) fn run(config: &Config) -> Result<Outcome, Failure> {
    let path = config.read.clone().unwrap_or_default();
    let report_requested = report_flag()?;
    let capture = &config.capture;
    let mut file = CaptureFile::open(&path, &capture.filter)?;
    let link_type = file.link_type();
    let mut sink = match &capture.destination {
        Destination::Pcapng(target) => {
            if let Target::File(to, _) = target
                && is_same_file(&path, to)
            {
                return Err(wrong(format!("-w {}: this file is read by -r; name another one", to.display())));
            }
            let captured = vec![Captured { name: path.display().to_string(), link_type }];
            let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            let section = capture.section(kernel.trim(), captured)?;
            Sink::Pcapng(Box::new(Output::open(target.clone(), section)?))
        }
        Destination::Text(shown) => Sink::Text(Writer::new(*shown, link_type, None)),
        Destination::Count => Sink::Count,
    };
    let folder = match &sink {
        Sink::Pcapng(output) => output.folder(),
        Sink::Count | Sink::Text(_) => None,
    };
    session::give_up(folder, &mut show::before)?;
    let mut chunk = Chunk::with_capacity(2 * CHUNK_BYTES);
    let (mut packets, mut bytes, mut read) = (0u64, 0u64, true);
    while read && capture.count.is_none_or(|most| packets < most) {
        if report_requested.swap(false, Ordering::Relaxed) {
            note(passed(packets, file.read()));
        }
        let more = file.next(|frame| {
            packets += 1;
            bytes += u64::from(frame.wire_len);
            match &mut sink {
                Sink::Count => {}
                Sink::Text(writer) => writer.packet(&mut chunk.bytes, &frame),
                Sink::Pcapng(_) => pcapng::packet(&mut chunk.bytes, &frame, 0, capture.snaplen),
            }
            chunk.note(frame.timestamp_ns);
        });
        if !matches!(more, Ok(true)) || chunk.bytes.len() >= CHUNK_BYTES {
            read = sink.write(&mut chunk)?;
        }
        if !more? {
            break;
        }
    }
    sink.write(&mut chunk)?;
    if let Sink::Pcapng(mut output) = sink {
        match output.finish(0) {
            Ok(()) | Err(OutputError::Closed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    if file.odd_times() > 0 {
        note(format_args!(
            "warning: the times of {} packets in {} are not valid: their fraction of a second is a second or more, and was added to the seconds",
            units::grouped(file.odd_times()),
            path.display()
        ));
    }
    if config.json {
        let totals = Totals {
            file: path.display().to_string(),
            filter: &capture.filter,
            packets,
            bytes,
            packets_read: file.read(),
        };
        return print_json("capture.read", totals).map(|()| Outcome::Fine);
    }
    let text = passed(packets, file.read());
    match (capture.destination != Destination::Count, config.quiet) {
        (false, _) => print(&(text + "\n"))?,
        (true, false) => note(text),
        (true, true) => {}
    }
    Ok(Outcome::Fine)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity =
        |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| (file.dev(), file.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn passed(packets: u64, read: u64) -> String {
    format!("{} packets of {} read passed the filter", units::grouped(packets), units::grouped(read))
}
