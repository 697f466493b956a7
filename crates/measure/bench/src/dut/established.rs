//! Connections that are established before the first frame.

use std::net::SocketAddr;

use host::netlink::conntrack::Connections;
use lab::boxes::{Family, Inside};
use model::route::CtMark;
use wire::FlowKey;

use crate::BenchError;

/// Timeout of the connections, longer than any bench.
const SECONDS: u32 = 86_400;

/// Makes those of `flows` that are not there yet.
pub(super) fn make(inside: &Inside, family: Family, flows: &[FlowKey], translated: bool) -> Result<(), BenchError> {
    let make_all = || {
        let mut all = Connections::open()?;
        for flow in flows {
            let ends = [
                SocketAddr::new(flow.source, flow.source_port),
                SocketAddr::new(flow.destination, flow.destination_port),
            ];
            let source = translated.then(|| SocketAddr::new(family.translated(flow.source), flow.source_port));
            match all.make(ends, source, CtMark::default().value, SECONDS) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    };
    let failed = |e| {
        BenchError::Machine(format!(
            "cannot make {} connections: {e}; fewer flows need fewer (net.netfilter.nf_conntrack_max)",
            flows.len()
        ))
    };
    inside.namespace.run(make_all)?.map_err(failed)
}
