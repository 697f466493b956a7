//! Metrics for Prometheus: families of samples, and their two notations, Prometheus' text 0.0.4 and OpenMetrics 1.0.
//!
//! Each name has one unit and one quantity, in base units. Labels do not change their value over time: what changes is a value.

mod file;
mod server;

use std::fmt::{Display, Write as _};

use model::counters::{Counter, Unit};

pub use self::{file::MetricsFile, server::MetricsServer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `text/plain; version=0.0.4`: every Prometheus, and the textfile collector of its node exporter.
    Text,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

impl Notation {
    /// Name of the notation over HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The course of a value over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Counter, which grows. Samples are called NAME_total.
    Counter,
    /// Gauge, which goes up and down.
    Gauge,
    /// Constant 1 with information in its labels. Samples are called NAME_info.
    Info,
}

/// A metric family: one quantity in one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    /// The name ends in it.
    unit: Option<&'static str>,
    help: &'static str,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    labels: String,
    value: String,
}

pub type Labels<'a> = [(&'a str, &'a str)];

impl Family {
    /// A family without samples.
    pub fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self { name, kind, unit: None, help, samples: Vec::new() }
    }

    /// The family with the unit bytes, as its name says.
    pub fn in_bytes(self) -> Self {
        Self { unit: Some("bytes"), ..self }
    }

    pub fn add(&mut self, labels: &Labels<'_>, value: impl Display) {
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escape(value));
        let labels = labels.iter().map(label).collect::<Vec<_>>().join(",");
        self.samples.push(Sample { labels, value: value.to_string() });
    }

    /// The family with one more sample.
    pub fn with(mut self, labels: &Labels<'_>, value: impl Display) -> Self {
        self.add(labels, value);
        self
    }

    fn write(&self, out: &mut String, notation: Notation) {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge => "",
        };
        let sample = format!("{}{suffix}", self.name);
        let (family, kind) = match (notation, self.kind) {
            (Notation::Text, Kind::Counter) => (&*sample, "counter"),
            (Notation::Text, _) => (&*sample, "gauge"),
            (Notation::OpenMetrics, Kind::Counter) => (self.name, "counter"),
            (Notation::OpenMetrics, Kind::Gauge) => (self.name, "gauge"),
            (Notation::OpenMetrics, Kind::Info) => (self.name, "info"),
        };
        let _ = writeln!(out, "# HELP {family} {}\n# TYPE {family} {kind}", escape(self.help));
        if let (Notation::OpenMetrics, Some(unit)) = (notation, self.unit) {
            let _ = writeln!(out, "# UNIT {family} {unit}");
        }
        for Sample { labels, value } in &self.samples {
            let _ = writeln!(out, "{sample}{{{labels}}} {value}");
        }
    }
}

/// All metrics of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics(Vec<Family>);

impl Metrics {
    pub fn extend(&mut self, families: impl IntoIterator<Item = Family>) {
        self.0.extend(families);
    }

    /// Adds what `counted` has in each counter of its table. Counters that share a metric differ in the label that the table gives them.
    pub fn add_counters<T>(&mut self, labels: &Labels<'_>, counted: &T, table: &[Counter<T>]) {
        for counter in table {
            let labels: Vec<_> = labels.iter().copied().chain(counter.label).collect();
            let at = self.0.iter().position(|family| family.name == counter.metric).unwrap_or_else(|| {
                let family = Family::new(Kind::Counter, counter.metric, counter.help);
                self.0.push(if counter.unit == Unit::Bytes { family.in_bytes() } else { family });
                self.0.len() - 1
            });
            self.0[at].add(&labels, (counter.get)(counted));
        }
    }

    pub fn text(&self, notation: Notation) -> String {
        let mut out = String::new();
        // OpenMetrics takes no family without samples amiss, but it says nothing.
        self.0.iter().filter(|family| !family.samples.is_empty()).for_each(|family| family.write(&mut out, notation));
        if notation == Notation::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
