//! The sending end of a file's transfer.

use std::{
    io::{self, Read},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use transport::{Handle, Reason, State};

use super::{BUSY_POLL_TIME, Head, PORT, Reply, SLEEP_MAX, hex};
use crate::{Address, BrokerCarrier, Claim, Engine, LinkError, broker::sanitized_message};

/// Bytes read of a file at once.
const READ_BYTES_MAX: usize = 1 << 18;
/// Time for which an ended connection is still answered.
const LINGER_TIMEOUT: Duration = Duration::from_secs(3);

/// A file that arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    pub bytes: u64,
    /// SHA-256, computed by both nodes.
    pub sha256: String,
    /// Nanoseconds from the connect to the reply that the file is on disk.
    pub ns: u64,
}

/// Sends a file to `path` below the folder of a receiving node. `sent` is called with the number of bytes sent so far.
///
/// # Errors
/// The file cannot be read or changes meanwhile; the node refuses it, or the connection breaks.
pub fn send(
    to: Address,
    mut file: impl Read,
    bytes: u64,
    path: &str,
    mut sent: impl FnMut(u64),
) -> Result<Copied, LinkError> {
    let (_claim, mut engine) = Claim::take()?;
    let began = Instant::now();
    let stream = engine.connect(to, PORT, true)?;
    while engine.state(stream) == Some(State::Opening) {
        engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?;
    }
    if engine.state(stream) == Some(State::Failed(Reason::Refused)) {
        let why = format!("{to} accepts no files; there: `evenkeel link serve INTERFACE --receive FOLDER`");
        return Err(LinkError::NotTaken { why });
    }
    let mut head = serde_json::to_vec(&Head { path: path.to_owned(), bytes }).map_err(|e| failed(e.into()))?;
    head.push(b'\n');
    let mut hash = Sha256::new();
    let mut reply = Vec::new();
    let mut upload = Upload { engine: &mut engine, stream, reply: &mut reply };
    let mut goes_on = upload.send(&head)?;
    let mut piece = vec![0; READ_BYTES_MAX];
    let mut left = bytes;
    while left > 0 && goes_on {
        let max = piece.len().min(usize::try_from(left).unwrap_or(READ_BYTES_MAX));
        let read = file.read(&mut piece[..max]).map_err(failed)?;
        if read == 0 {
            return Err(LinkError::Shrank { left });
        }
        hash.update(&piece[..read]);
        goes_on = upload.send(&piece[..read])?;
        left -= read as u64;
        sent(bytes - left);
    }
    if bytes == 0 && file.read(&mut piece[..1]).map_err(failed)? > 0 {
        return Err(LinkError::Unsized);
    }
    let reply = loop {
        engine.read(stream, |bytes| reply.extend_from_slice(bytes))?;
        if let Some(reply) = Reply::parse(&reply, engine.is_at_end(stream))? {
            break reply;
        }
        engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?;
    };
    let ns = began.elapsed().as_nanos() as u64;
    linger(&mut engine, stream)?;
    let ours = hex(&hash.finalize());
    match reply {
        Reply::Failed { why } => Err(LinkError::NotTaken { why: sanitized_message(&why) }),
        Reply::Written { sha256 } if sha256 != ours => Err(LinkError::Differs { ours, theirs: sha256 }),
        Reply::Written { sha256 } => Ok(Copied { bytes, sha256, ns }),
    }
}

/// The sending side of a transfer.
struct Upload<'a> {
    engine: &'a mut Engine<BrokerCarrier>,
    stream: Handle,
    reply: &'a mut Vec<u8>,
}

impl Upload<'_> {
    /// Sends all bytes; false: the receiver has replied early, with its error, or has ended.
    fn send(&mut self, mut bytes: &[u8]) -> Result<bool, LinkError> {
        while !bytes.is_empty() {
            let written = self.engine.write(self.stream, bytes)?;
            bytes = &bytes[written..];
            match written {
                0 => self.engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?,
                _ => self.engine.poll()?,
            };
            let reply = &mut *self.reply;
            self.engine.read(self.stream, |bytes| reply.extend_from_slice(bytes))?;
            if !self.reply.is_empty() || self.engine.is_at_end(self.stream) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Closes the stream, and polls until the other end has closed too.
fn linger(engine: &mut Engine<BrokerCarrier>, stream: Handle) -> Result<(), LinkError> {
    let began = Instant::now();
    while engine.close(stream).is_err() || engine.state(stream) == Some(State::Open) {
        if began.elapsed() > LINGER_TIMEOUT {
            break;
        }
        engine.wait(BUSY_POLL_TIME, SLEEP_MAX)?;
    }
    Ok(())
}

fn failed(source: io::Error) -> LinkError {
    LinkError::System { operation: "read the file", source }
}
