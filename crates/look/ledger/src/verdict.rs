//! The report of an interval: its stations in their order, its sums, and what a reader should know.

use model::stations::{Direction, LedgerReport, LossKind, Station, TraceShown};

use crate::{
    balance::{Balance, balance},
    input::Interval,
    places::Stage,
    stations::{Found, losses},
};

/// The order in which a packet meets the stations.
const ORDER: [&str; 19] = [
    "nic",
    "xdp",
    "softnet",
    "taps",
    "tc",
    "bridge",
    "ethernet",
    "arp",
    "netfilter",
    "conntrack",
    "ip",
    "udp",
    "tcp",
    "icmp",
    "sockets",
    "stack",
    "neighbour",
    "qdisc",
    "transmit",
];

/// Machine and time, for the report's head.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The end of the interval (RFC 3339, UTC).
    pub timestamp: String,
    pub hostname: String,
    pub kernel: String,
    /// The network namespace's inode number.
    pub netns: u32,
    pub interfaces: Vec<String>,
    /// Tracing of the drops.
    pub trace: Option<TraceShown>,
    /// Unread sources, with the reasons.
    pub notes: Vec<String>,
}

pub fn report(interval: &Interval, head: Head) -> LedgerReport {
    let found = losses(interval);
    let books = balance(interval, &found);
    let fresh =
        |entries: &[model::stations::Entry]| entries.iter().filter(|e| !e.handed_over).map(|e| e.packets).sum::<u64>();
    let offered = fresh(&books.receive.offered) + fresh(&books.transmit.offered);
    let mut notes = head.notes;
    notes.extend(remarks(interval, &found, &books, offered, !head.interfaces.is_empty()));
    LedgerReport {
        timestamp: head.timestamp,
        interval_s: interval.seconds,
        hostname: head.hostname,
        kernel: head.kernel,
        netns: head.netns,
        interfaces: head.interfaces,
        offered,
        delivered: fresh(&books.receive.delivered) + fresh(&books.transmit.delivered),
        waiting: books.receive.waiting_packets() + books.transmit.waiting_packets(),
        lost: books.receive.lost + books.transmit.lost,
        intended: of_kind(&found, LossKind::Intended),
        copies_lost: of_kind(&found, LossKind::Copy),
        unexplained: books.receive.unexplained + books.transmit.unexplained,
        stations: stations(interval, found, &books, offered),
        receive: books.receive,
        transmit: books.transmit,
        trace: head.trace,
        notes,
    }
}

fn of_kind(found: &[Found], kind: LossKind) -> u64 {
    found.iter().filter(|f| f.loss.kind == kind).map(|f| f.loss.packets).sum()
}

fn stations(interval: &Interval, found: Vec<Found>, books: &Balance, offered: u64) -> Vec<Station> {
    let mut stations: Vec<Station> = Vec::new();
    for &(name, came, went) in &books.passed {
        let programmed = name != "xdp"
            || interval.interfaces.iter().any(|i| i.xdp.native || i.xdp.done.is_some_and(|x| x.taken() > 0));
        if came > 0 && programmed {
            let direction = if name == "transmit" { Direction::Transmit } else { Direction::Receive };
            let station = Station { packets_in: Some(came), packets_out: Some(went), ..empty(name, direction) };
            stations.push(station);
        }
    }
    for mut f in found {
        f.loss.share_of_offered = if offered == 0 { 0.0 } else { f.loss.packets as f64 / offered as f64 };
        let at = stations.iter().position(|s| s.name == f.station && s.direction == f.direction).unwrap_or_else(|| {
            stations.push(empty(f.station, f.direction));
            stations.len() - 1
        });
        if f.loss.kind.is_loss() {
            stations[at].lost += f.loss.packets;
        }
        stations[at].losses.push(f.loss);
    }
    for station in &mut stations {
        station.losses.sort_by_key(|l| std::cmp::Reverse(l.packets));
    }
    stations
        .sort_by_key(|s| (s.direction == Direction::Transmit, ORDER.iter().position(|o| *o == s.name), s.direction));
    stations
}

fn empty(name: &str, direction: Direction) -> Station {
    Station { name: name.to_owned(), direction, packets_in: None, packets_out: None, lost: 0, losses: Vec::new() }
}

/// Remarks that the figures do not show by themselves.
fn remarks(interval: &Interval, found: &[Found], books: &Balance, offered: u64, scoped: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let cookies = interval.protocols.get("TcpExt.SyncookiesSent");
    if cookies > 0 {
        let refused = interval.protocols.get("TcpExt.SyncookiesFailed");
        notes.push(format!(
            "{cookies} connection requests were answered with SYN cookies, for a listener's queue was full: no loss, but no TCP \
             options beyond timestamps either; {refused} ACKs carried no valid cookie"
        ));
    }
    for i in interval.interfaces.iter().filter(|i| i.xdp.native && i.xdp.done.is_none()) {
        notes.push(format!(
            "{} runs an XDP program and its driver does not count verdicts: what the program took is unexplained",
            i.name
        ));
    }
    let unexplained = books.receive.unexplained + books.transmit.unexplained;
    for i in interval.interfaces.iter().filter(|i| i.xdp.generic && books.receive.unexplained > 0) {
        notes.push(format!(
            "{} runs a generic XDP program: what it redirects to sockets or other CPUs has no counter and is unexplained",
            i.name
        ));
    }
    let bound = bound(interval, offered);
    if unexplained != 0 && unexplained.unsigned_abs() <= bound {
        notes.push(format!("unexplained is within the reading error ({bound} packets at this rate)"));
    }
    if found.iter().any(|f| !f.loss.agrees) {
        notes.push("where counter and trace differ, both are shown; the counter's number is added up".into());
    }
    if found.iter().any(|f| f.stage.is_none()) && interval.netfilter.rules.is_empty() {
        notes.push("what netfilter dropped has no counter of its own: the trace's number is the total".into());
    }
    if found.iter().any(|f| f.stage == Some(Stage::Wire) && f.station == "softnet") {
        notes.push(
            "backlogs are counted per CPU, for all namespaces; here stand those of this namespace's interfaces".into(),
        );
    }
    if scoped && offered > 0 {
        notes.push(
            "the kernel counts IP and above per network namespace: interfaces you did not name are included as one sum"
                .into(),
        );
    }
    notes
}

/// Number of packets that may pass between the readings of two counters beyond what the other end of the interval gives back.
fn bound(interval: &Interval, offered: u64) -> u64 {
    if interval.seconds <= 0.0 {
        return 0;
    }
    let rate = offered as f64 / interval.seconds;
    (rate * interval.skew_s).ceil() as u64 + (offered as f64 * interval.trace.precision).ceil() as u64 + 2
}
