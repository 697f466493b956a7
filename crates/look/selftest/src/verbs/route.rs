//! The trial of `route`, in the box.

use serde_json::Value;

use super::child::Service;
use crate::{
    Place,
    bed::{Bed, OTHER, SENT_COUNT},
    trial::{Tried, words},
};

const PORT: u16 = 7;
/// Options of `route run`, of which the first are the usual ones.
const WAYS: [&str; 3] = ["--trial 500ms", "--trial 0", "--trial 0 --xdp-mode generic"];

/// Forwards packets by the fast path, with the first options that work.
pub(super) fn forwards(place: &Place<'_>, bed: &Bed) -> Result<Tried, String> {
    let mut refusal: Option<String> = None;
    for way in WAYS {
        match (by(place, bed, way), &refusal) {
            (Ok(tried), None) => return Ok(tried),
            (Ok(tried), Some(why)) => {
                return Ok(Tried::limited(format!("{}; {why}", tried.reason), format!("run route with {way}")));
            }
            (Err(why), _) => refusal = refusal.or(Some(why)),
        }
        if place.time_is_over() {
            break;
        }
    }
    Err(refusal.unwrap_or_default())
}

fn by(place: &Place<'_>, bed: &Bed, way: &str) -> Result<Tried, String> {
    let mut arguments = vec!["route", "run", &bed.near.name, &bed.far.name, "--quiet"];
    arguments.extend(way.split(' '));
    let is_routed = |route: &Service<'_>| -> Result<Option<()>, String> {
        let status = route.ask(&["route", "status", "--json"])?;
        match (status["mode"].as_str(), status["fallback"].as_str()) {
            (Some("routed"), _) => Ok(Some(())),
            (_, Some(why)) => Err(format!("the kernel forwards: {why}")),
            _ => Ok(None),
        }
    };
    let start = || Service::start(place, &bed.middle, &arguments)?.poll(is_routed);
    // The router's own trial compares frames with the kernel.
    let (route, ()) = bed.while_forwarding(start).map_err(words)??;
    let tried = forwarded(bed, &route);
    route.end().and(tried)
}

fn forwarded(bed: &Bed, route: &Service<'_>) -> Result<Tried, String> {
    let before = total(&route.ask(&["route", "status", "--json"])?);
    let listening = bed.listen(PORT).map_err(words)?;
    bed.send(OTHER, PORT, SENT_COUNT).map_err(words)?;
    let came = bed.received(&listening).map_err(words)?;
    let status = route.ask(&["route", "status", "--json"])?;
    let count = total(&status) - before;
    let found = format!("mode routed: {count} packets forwarded, {came} of {SENT_COUNT} arrived");
    let untraced = status["untraced"].as_array().map_or(0, Vec::len);
    match (count >= SENT_COUNT && came == SENT_COUNT, untraced) {
        (true, 0) => Ok(Tried::works(found)),
        (true, _) => Ok(Tried::limited(
            format!(
                "{found}; changes of routes take effect some milliseconds late, as {untraced} functions cannot be traced"
            ),
            "do nothing; `route status --json` names the functions",
        )),
        (false, _) => Err(found),
    }
}

/// The number of frames that the fast path has forwarded.
fn total(status: &Value) -> u64 {
    let ports = status["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    ports.iter().filter_map(|port| port["totals"]["forwarded"].as_u64()).sum()
}
