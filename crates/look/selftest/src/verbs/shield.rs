//! Trials of `shield`, on the box's interface towards the left host.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
};

use super::child::Service;
use crate::{
    Place,
    asked::SHIELD_UP,
    bed::{Bed, NEAR, OTHER, SENT_COUNT},
    trial::{Tried, words},
};

const DROPPED_PORT: u16 = 9;
const PASSED_PORT: u16 = 7;
const DROP: &str = "drop protocol=udp destination-port=9";
const SERVER_PORT: u16 = 80;
const CHALLENGE: &str = "challenge protocol=tcp destination-port=80";

/// Sends datagrams to a port that is dropped and to one that passes.
pub(super) fn filters(place: &Place<'_>, bed: &Bed, mode: &str) -> Result<Tried, String> {
    with(place, bed, (mode, DROP), |shield| {
        let sockets = [bed.listen(DROPPED_PORT), bed.listen(PASSED_PORT)];
        let [dropped, passed] = sockets.map(|socket| socket.map_err(words));
        let (dropped, passed) = (dropped?, passed?);
        for port in [DROPPED_PORT, PASSED_PORT] {
            bed.send(OTHER, port, SENT_COUNT).map_err(words)?;
        }
        // The dropped datagrams were sent first, and would have arrived first.
        let came = bed.received(&passed).map_err(words)?;
        let came_through = pending(&dropped).map_err(words)?;
        let status = shield.ask(&["shield", "status", &bed.near.name, "--json", "--interval", "0.1"])?;
        let rules = status["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        let counted = rules.iter().find(|rule| rule["name"] == DROP).and_then(|rule| rule["packets"].as_u64());
        let counted = counted.ok_or("`shield status` does not know the rule")?;
        let found = format!(
            "{} of {SENT_COUNT} packets dropped, {counted} counted; {came} of {SENT_COUNT} passed",
            SENT_COUNT - came_through.min(SENT_COUNT)
        );
        match (came_through, counted, came) {
            (0, SENT_COUNT, SENT_COUNT) => Ok(Tried::works(found)),
            _ => Err(found),
        }
    })
}

/// Connects a TCP client to a port with a challenge.
pub(super) fn challenges(place: &Place<'_>, bed: &Bed) -> Result<Tried, String> {
    with(place, bed, ("generic", CHALLENGE), |shield| {
        let server = bed.middle.run(|| TcpListener::bind((NEAR, SERVER_PORT))).map_err(words)?.map_err(words)?;
        let address = SocketAddr::from((NEAR, SERVER_PORT));
        let connect = || TcpStream::connect_timeout(&address, place.verb_timeout);
        let mut client = bed.left.run(connect).map_err(words)?.map_err(|e| format!("a client does not get in: {e}"))?;
        client.write_all(b"e").map_err(words)?;
        bed.accept(&server).map_err(|e| format!("the server has no connection: {e}"))?;
        let status = shield.ask(&["shield", "status", &bed.near.name, "--json", "--interval", "0.1"])?;
        match status["totals"]["challenged"].as_u64() {
            Some(count @ 1..) => Ok(Tried::works(format!("{count} challenged, and let in"))),
            _ => Err("a client got in without a challenge".into()),
        }
    })
}

/// Runs a trial while a shield with one rule runs.
fn with(
    place: &Place<'_>,
    bed: &Bed,
    (mode, rule): (&str, &str),
    trial: impl FnOnce(&Service<'_>) -> Result<Tried, String>,
) -> Result<Tried, String> {
    let near = bed.near.name.as_str();
    let arguments = ["shield", "run", near, "--quiet", "--xdp-mode", mode, "--rule", rule];
    let shield = Service::start_until(place, &bed.middle, &arguments, SHIELD_UP)?;
    let tried = trial(&shield);
    match shield.end() {
        Ok(()) => tried,
        Err(why) => {
            // A killed shield leaves its pins.
            let stop = Service::start(place, &bed.middle, &["shield", "stop", near]);
            stop.and_then(Service::finish)?;
            tried.and(Err(why))
        }
    }
}

/// The number of datagrams that wait in a socket.
fn pending(socket: &std::net::UdpSocket) -> std::io::Result<u64> {
    socket.set_nonblocking(true)?;
    Ok(std::iter::from_fn(|| socket.recv(&mut [0; 16]).ok()).count() as u64)
}
