//! Metrics over HTTP on 127.0.0.1.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Metrics, Notation};
use crate::{
    error::ServeError,
    http::{HttpResponse, HttpServer},
};

/// Answers GET /metrics on 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    metrics: Arc<Mutex<Metrics>>,
    server: HttpServer,
}

impl MetricsServer {
    /// Listens on `port`; 0 lets the kernel choose one.
    ///
    /// # Errors
    /// [`ServeError::MetricsPort`].
    pub fn start(port: u16) -> Result<Self, ServeError> {
        let metrics = Arc::new(Mutex::new(Metrics::default()));
        let shared = Arc::clone(&metrics);
        let server = HttpServer::start(port, move |request| match request.path {
            "/metrics" | "/" => {
                let notation = notation(request.header("accept"));
                let body = shared.lock().unwrap_or_else(PoisonError::into_inner).text(notation);
                HttpResponse { status: "200 OK", content_type: notation.content_type(), body }
            }
            _ => HttpResponse::text("404 Not Found", "metrics are at /metrics\n"),
        });
        Ok(Self { metrics, server: server.map_err(|source| ServeError::MetricsPort { port, source })? })
    }

    /// Answers with these from now on.
    pub fn set(&self, metrics: Metrics) {
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }

    /// The address and the port that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

/// The notation that Accept headers ask for: OpenMetrics where it is named and wanted at least as much as plain text.
fn notation<'a>(accept: impl Iterator<Item = &'a str>) -> Notation {
    let (mut open, mut plain) = (0.0f64, 0.0f64);
    for kind in accept.flat_map(|value| value.split(',')) {
        let mut parts = kind.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let of = |wanted: &str| parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|p| p.1);
        let quality = of("q").map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0));
        match &*name {
            "application/openmetrics-text" if of("version").is_none_or(|version| version == "1.0.0") => {
                open = open.max(quality);
            }
            "text/plain" => plain = plain.max(quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain { Notation::OpenMetrics } else { Notation::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        let of = |accept: &str| notation([accept].into_iter());
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(of(prometheus), Notation::OpenMetrics);
        assert_eq!(of("application/openmetrics-text"), Notation::OpenMetrics);
        for accept in ["", "*/*", "text/plain", "text/plain;q=0.9, application/openmetrics-text;q=0.3"] {
            assert_eq!(of(accept), Notation::Text, "{accept}");
        }
        assert_eq!(of("application/openmetrics-text;version=0.0.1"), Notation::Text, "another version");
        assert_eq!(of("application/openmetrics-text;q=0"), Notation::Text);
        assert_eq!(notation(std::iter::empty()), Notation::Text);
    }
}
