//! Outputs of a running router: its status with the counters of interfaces and the last events, its events and its metrics.

use std::collections::VecDeque;

use host::{interface, netlink::Netlink};
use model::{
    route::{PortCounters, RouteEvent, RouteLost, RouteMode, RouteMoment, RouteStatus, RouteTotals},
    schema::Document,
};
use nix::sys::socket::SockProtocol;
use serve::{
    Event, OutputSettings, Outputs, ServeError,
    metrics::{Family, Kind, Metrics},
};

use crate::{RouteError, Router};

/// Events that `status` shows.
const EVENTS_MAX: usize = 16;

/// A message or event for the terminal.
#[derive(Debug)]
pub enum Message {
    Event(RouteMoment),
    Text(String),
}

impl From<ServeError> for Message {
    fn from(failure: ServeError) -> Self {
        Self::Text(failure.to_string())
    }
}

/// Outputs of a router.
#[derive(Debug)]
pub struct RouteOutputs {
    links: Netlink,
    events: VecDeque<RouteMoment>,
    outputs: Outputs,
}

impl RouteOutputs {
    pub fn open(settings: &OutputSettings) -> Result<Self, RouteError> {
        let links = Netlink::open(SockProtocol::NetlinkRoute).map_err(RouteError::system("ask for interfaces"))?;
        Ok(Self { links, events: VecDeque::new(), outputs: Outputs::start(settings)? })
    }

    pub fn status(&mut self, router: &Router) -> Result<RouteStatus, RouteError> {
        let mut status = router.status()?;
        let links = interface::links(&mut self.links).map_err(RouteError::system("read the interfaces"))?;
        for port in &mut status.ports {
            // One that has gone has counted nothing.
            let Some(link) = links.values().find(|link| link.name == port.interface) else { continue };
            let stats = &link.stats;
            port.counters = PortCounters {
                rx_packets: stats.rx_packets,
                rx_bytes: stats.rx_bytes,
                tx_packets: stats.tx_packets,
                tx_bytes: stats.tx_bytes,
            };
        }
        status.timestamp = now();
        status.events = self.events.iter().cloned().collect();
        Ok(status)
    }

    /// Records an event and writes it to the outputs. Gives it with its time, and failures.
    pub fn record(&mut self, what: RouteEvent) -> Vec<Message> {
        let moment = RouteMoment { timestamp: now(), what };
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(moment.clone());
        let failures = self.outputs.emit([event(&moment)]);
        [Message::Event(moment)].into_iter().chain(failures.into_iter().map(Message::from)).collect()
    }

    /// Publishes metrics if they are enabled and due. Gives failures since.
    pub fn publish(&mut self, router: &Router) -> Result<Vec<Message>, RouteError> {
        let mut failed = None;
        self.outputs.publish(|| match router.status() {
            Ok(status) => metrics(&status),
            Err(error) => {
                failed = Some(error);
                Metrics::default()
            }
        });
        failed.map_or_else(|| Ok(self.outputs.failures().map(Message::from).collect()), Err)
    }

    /// Removes the file of metrics, and ends the hook's thread and its program.
    pub fn end(mut self) {
        self.outputs.end_metrics();
        self.outputs.end_hook();
    }
}

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// An event as one line of JSON, `evenkeel.route.event/1`, its end included.
pub fn line(moment: &RouteMoment) -> String {
    let mut line = serde_json::to_string(&Document::new("route.event", 1, moment)).unwrap_or_default();
    line.push('\n');
    line
}

/// An event for the log and the hook.
fn event(moment: &RouteMoment) -> Event {
    let mut environment = vec![("EVENKEEL_TIMESTAMP", moment.timestamp.clone())];
    match &moment.what {
        RouteEvent::Mode { mode, reason } => {
            environment.extend([("EVENKEEL_MODE", mode.name().to_owned()), ("EVENKEEL_REASON", reason.clone())]);
        }
        RouteEvent::Obstacle(it) | RouteEvent::Cleared(it) => {
            environment.extend([("EVENKEEL_OBSTACLE", it.code.clone()), ("EVENKEEL_REASON", it.what.clone())]);
        }
        RouteEvent::Renamed { from, to } => {
            environment.extend([("EVENKEEL_FROM", from.clone()), ("EVENKEEL_TO", to.clone())]);
        }
        RouteEvent::Transmit { interface, can_transmit } => {
            environment.extend([
                ("EVENKEEL_INTERFACE", interface.clone()),
                ("EVENKEEL_CAN_TRANSMIT", can_transmit.to_string()),
            ]);
        }
        RouteEvent::Rules { what } | RouteEvent::Reattached { what } => {
            environment.push(("EVENKEEL_MESSAGE", what.clone()));
        }
        RouteEvent::Cpus { cpus } => environment.push(("EVENKEEL_CPUS", cpus.to_string())),
        RouteEvent::PortEnded { reason } => environment.push(("EVENKEEL_REASON", reason.clone())),
        RouteEvent::Compared(result) => environment.push(("EVENKEEL_MISMATCHES", result.wrong().to_string())),
    }
    Event { name: moment.what.word(), line: line(moment), environment }
}

/// All metrics of one moment.
pub fn metrics(status: &RouteStatus) -> Metrics {
    let mut metrics = Metrics::default();
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let build = Family::new(Kind::Info, "evenkeel_build", "The program that gives these metrics.");
    let mut mode = gauge("evenkeel_route_mode", "1 for the mode in which the router is, 0 for others.");
    for each in RouteMode::ALL {
        mode.add(&[("mode", each.name())], u8::from(each == status.mode));
    }
    let mut can_transmit = gauge("evenkeel_route_port_can_transmit", "1 if the fast path can send by the port.");
    let mut reattached = Family::new(
        Kind::Counter,
        "evenkeel_route_reattached",
        "Times that the program of a port was put back into its place in the chain, which others had emptied.",
    );
    for port in &status.ports {
        reattached.add(&[("interface", &port.interface)], port.reattached);
        can_transmit.add(&[("interface", &port.interface)], u8::from(port.can_transmit));
    }
    let fallback = gauge(
        "evenkeel_route_fallback",
        "1 while the mode is not the requested one because of an obstacle or a failed trial.",
    );
    let obstacles = gauge("evenkeel_route_obstacles", "Things that stand against the fast path.");
    metrics.extend([
        build.with(&[("version", env!("CARGO_PKG_VERSION"))], 1),
        mode,
        fallback.with(&[], u8::from(status.fallback.is_some())),
        obstacles.with(&[], status.obstacles.len()),
        can_transmit,
        reattached,
    ]);
    for port in &status.ports {
        metrics.add_counters(&[("interface", &port.interface)], &port.totals, RouteTotals::COUNTERS);
        if let Some(lost) = &port.lost {
            metrics.add_counters(&[("interface", &port.interface)], lost, RouteLost::COUNTERS);
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use model::route::{Obstacle, RoutePort};
    use serve::metrics::Notation;

    use super::*;

    #[test]
    fn an_event_is_a_line_of_json_and_what_a_hook_gets() {
        let obstacle = Obstacle { code: "netfilter".into(), what: "a chain".into(), remedy: "none".into() };
        let before = RouteMoment { timestamp: "2026-01-02T03:04:05Z".into(), what: RouteEvent::Obstacle(obstacle) };
        let event = event(&before);
        assert!(event.line.ends_with('\n') && event.line.lines().count() == 1);
        let json: serde_json::Value = serde_json::from_str(&event.line).unwrap();
        assert_eq!(json["schema"], "evenkeel.route.event/1");
        assert_eq!((event.name, &json["event"], &json["code"]), ("obstacle", &"obstacle".into(), &"netfilter".into()));
        assert!(event.environment.contains(&("EVENKEEL_OBSTACLE", "netfilter".to_owned())));
        assert_eq!(serde_json::from_value::<RouteMoment>(json).unwrap(), before);
    }

    #[test]
    fn metrics_have_each_reason_and_the_mode() {
        let totals = RouteTotals { forwarded: 7, no_neighbour: 2, ..RouteTotals::default() };
        let lost = Some(RouteLost { queue_full: 3, not_sent: 1, ..RouteLost::default() });
        let port = |name: &str| RoutePort { interface: name.into(), totals, lost, ..RoutePort::default() };
        let status = RouteStatus { ports: vec![port("eth0"), port("eth1")], ..RouteStatus::default() };
        let text = metrics(&status).text(Notation::OpenMetrics);
        for line in [
            "evenkeel_route_mode{mode=\"standard\"} 1",
            "evenkeel_route_mode{mode=\"routed\"} 0",
            "evenkeel_route_forwarded_frames_total{interface=\"eth1\"} 7",
            "evenkeel_route_slow_path_frames_total{interface=\"eth0\",reason=\"no_neighbour\"} 2",
            "evenkeel_route_lost_frames_total{interface=\"eth0\",reason=\"queue_full\"} 3",
            "evenkeel_route_lost_frames_total{interface=\"eth1\",reason=\"no_memory\"} 0",
            "evenkeel_route_lost_frames_total{interface=\"eth1\",reason=\"not_sent\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        for family in ["slow_path", "lost"] {
            assert_eq!(text.matches(&format!("# TYPE evenkeel_route_{family}_frames ")).count(), 1, "{text}");
        }
        // Nobody counts what is lost where no frame is handed on.
        let none = RouteStatus { ports: vec![RoutePort { lost: None, ..port("eth0") }], ..RouteStatus::default() };
        assert!(!metrics(&none).text(Notation::OpenMetrics).contains("route_lost"));
    }
}
