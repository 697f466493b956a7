//! Settings of conntrack that mode stateful depends on.

use std::fs;

use bpf::RouteTrack;
use model::route::CtMark;

/// The sysctl by which conntrack ignores TCP windows.
pub const LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// Settings of conntrack in this network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conntrack {
    pub liberal: bool,
    pub counts: bool,
    /// nf_conntrack_tcp_timeout_established, in seconds
    pub established_s: u32,
    /// nf_conntrack_tcp_timeout_unacknowledged, in seconds
    pub unanswered_s: u32,
    /// nf_conntrack_udp_timeout_stream, in seconds
    pub stream_s: u32,
}

impl Conntrack {
    /// Reads those of this thread's network namespace; none: this kernel has no conntrack.
    pub(crate) fn read() -> Option<Self> {
        let number = |name: &str| -> Option<u32> {
            fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}")).ok()?.trim().parse().ok()
        };
        Some(Self {
            liberal: number("tcp_be_liberal")? > 0,
            counts: number("acct")? > 0,
            established_s: number("tcp_timeout_established")?,
            unanswered_s: number("tcp_timeout_unacknowledged")?,
            stream_s: number("udp_timeout_stream")?,
        })
    }

    /// Settings of connection tracking for the kernel programs.
    pub fn track(&self, mark: CtMark, nat: [bool; 2]) -> RouteTrack {
        let Self { liberal, established_s, unanswered_s, stream_s, .. } = *self;
        RouteTrack { mark: mark.value, mask: mark.mask, tcp: liberal, established_s, unanswered_s, stream_s, nat }
    }
}
