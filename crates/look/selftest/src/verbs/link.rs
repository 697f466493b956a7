//! The trial of `link`, with the left host and the box as nodes.

use std::fs;

use super::child::Service;
use crate::{
    Place,
    asked::LINK_UP,
    bed::Bed,
    trial::{Tried, words},
};

/// Bytes of the file that is copied, in several frames.
const FILE_BYTES: usize = 64 << 10;
/// The value of `--receive-free`.
const FREE: &str = "1M";

/// Sends probes there and back, and copies a file.
pub(super) fn carries(place: &Place<'_>, bed: &Bed) -> Result<Tried, String> {
    let folder = host::owner::temporary_folder("selftest", "link").map_err(words)?;
    let (from, to) = (folder.path().join("sent"), folder.path().join("in"));
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|n| (n % 251) as u8).collect();
    fs::write(&from, &bytes).and_then(|()| fs::create_dir(&to)).map_err(words)?;
    let (from, into) = (from.display().to_string(), to.display().to_string());
    let receiving = ["link", "serve", &bed.near.name, "--name", "box", "--receive", &into, "--receive-free", FREE];
    let there = Service::start_until(place, &bed.middle, &receiving, LINK_UP)?;
    let serving = ["link", "serve", &bed.left_end.name, "--name", "left"];
    let here = Service::start_until(place, &bed.left, &serving, LINK_UP)?;
    // Nodes discover each other within a second or two.
    let ping = |here: &Service<'_>| here.ask(&["link", "ping", "box", "-c", "8", "-i", "10ms", "--json"]).map(Some);
    let (here, ping) = here.poll(ping)?;
    let (sent, back) = (ping["sent"].as_u64(), ping["round_trips_ns"].as_array().map(Vec::len));
    let copied = here.ask(&["link", "copy", &from, "box:file", "--json"]);
    let status = there.ask(&["link", "status", "--json"])?;
    here.end()?;
    there.end()?;
    copied?;
    let arrived = fs::read(to.join("file")).map_err(words)?;
    if arrived != bytes {
        return Err("the file arrived with other bytes".into());
    }
    let found = format!(
        "{} of {} probes there and back, {FILE_BYTES} bytes copied",
        back.unwrap_or_default(),
        sent.unwrap_or_default()
    );
    let carrier = status["carrier"].as_str().unwrap_or_default();
    match status["delivery"].is_object() {
        true => Ok(Tried::works(found)),
        false => Ok(Tried::limited(format!("{found}, by {carrier}"), "use a driver that runs XDP programs")),
    }
}
