//! Counters of a router's port.

use serde::{Deserialize, Serialize};

use crate::counters::Row::{Always, IfAny};

/// Hands the table of a port's counters to the macro of that name: [`counters!`](crate::counters) makes
/// [`RouteTotals`](crate::route::RouteTotals) of it. The kernel program counts each in the field of that name of `struct route_count`.
#[macro_export]
macro_rules! route_totals {
    ($then:ident $($with:ident)?) => {
        $then! {
            $($with)?
            /// Frames that came in by a port. Except the forwarded ones, each went through the kernel.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
            #[serde(default)]
            pub struct RouteTotals {
                forwarded: Frames "evenkeel_route_forwarded_frames" "Frames forwarded by the fast path; losses at the way out are in its own counters."
                    { row: Always("forwarded") };
                forwarded_bytes: Bytes "evenkeel_route_forwarded_bytes" "Bytes of the forwarded frames, without FCS.";
                fib_lookups: Frames "evenkeel_route_fib_lookup_frames" "Frames for which the kernel was asked: their next hop was not remembered."
                    { row: Always("  after asking the kernel") };
                other_mac: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "other_mac")), row: IfAny("for another MAC, group or broadcast") };
                not_ip: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "not_ip")), row: IfAny("neither IPv4 nor IPv6") };
                unknown_vlan: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "unknown_vlan")), row: IfAny("in a VLAN that has no device here") };
                bad_header: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "bad_header")), row: IfAny("with a damaged header") };
                bad_checksum: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "bad_checksum")), row: IfAny("with a wrong checksum") };
                options: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "options")), row: IfAny("with options") };
                hop_limit: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "hop_limit")), row: IfAny("TTL or hop limit used up") };
                fragment: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "fragment")), row: IfAny("fragments, where ports decide") };
                icmp_error: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "icmp_error")), row: IfAny("ICMP errors, where sources decide") };
                martian: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "martian")), row: IfAny("with an address that no host may use") };
                reverse_path: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "reverse_path")), row: IfAny("fails the reverse path check (rp_filter)") };
                local: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "local")), row: IfAny("for this machine, or without a route") };
                refused: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "refused")), row: IfAny("by a blackhole, unreachable or prohibit route") };
                no_forwarding: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "no_forwarding")), row: IfAny("where forwarding is off") };
                encapsulated: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "encapsulated")), row: IfAny("by a route with encapsulation") };
                no_neighbour: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "no_neighbour")), row: IfAny("to a neighbour without a known MAC address") };
                too_big: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "too_big")), row: IfAny("larger than the MTU of the port or the route") };
                not_a_port: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "not_a_port")), row: IfAny("leaves by an interface that is no port or cannot transmit") };
                hairpin: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "hairpin")), row: IfAny("back out of the port they came in by") };
                untracked: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "untracked")), row: IfAny("neither TCP nor UDP, in mode stateful") };
                handshake: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "handshake")), row: IfAny("SYN, FIN or RST") };
                no_connection: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "no_connection")), row: IfAny("of no connection that conntrack knows") };
                unmarked: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "unmarked")), row: IfAny("of connections without the mark") };
                not_established: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "not_established")), row: IfAny("of connections not established yet, or closing") };
                ct_extension: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "ct_extension")), row: IfAny("of connections with a helper, rewritten sequence numbers or a timeout policy") };
                window: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "window")), row: IfAny("TCP, while conntrack checks windows (tcp_be_liberal is 0)") };
                oif_changed: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "oif_changed")), row: IfAny("of masqueraded connections that now leave by another interface") };
                partial_checksum: Frames "evenkeel_route_slow_path_frames" "Frames that went up to the kernel, by reason."
                    { label: Some(("reason", "partial_checksum")), row: IfAny("with an unfinished checksum (left to a device)") };
                translated: Frames "evenkeel_route_translated_frames" "Forwarded frames whose addresses or ports were translated."
                    { row: IfAny("  translated") };
                shadowed: Frames "evenkeel_route_shadowed_frames" "Frames that the fast path would have forwarded, in shadow: the kernel did."
                    { row: IfAny("in shadow, by the kernel") };
                sampled: Frames "evenkeel_route_sampled_frames" "Frames whose next hop the shadow wrote down, to be compared with the kernel's."
                    { row: IfAny("  written down to be compared") };
                enqueued: Frames "evenkeel_route_enqueued_frames" "Frames that the core that received them handed to one of the CPUs that forward."
                    { row: IfAny("handed to another CPU") };
                dequeued: Frames "evenkeel_route_dequeued_frames" "Frames that the CPUs that forward took out of their queues."
                    { row: IfAny("  taken by it") };
            }
        }
    };
}

route_totals!(counters);

crate::counters! {
    /// Frames that were lost between the core that received them and the CPU that was to forward them. The kernel program counts each in the
    /// field of that name of `struct route_loss`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct RouteLost {
        queue_full: Frames "evenkeel_route_lost_frames" "Frames lost on the way to the CPUs that forward, by reason."
            { label: Some(("reason", "queue_full")), row: IfAny("The queue of a CPU was full: name more CPUs (`evenkeel route cpus`)") };
        no_memory: Frames "evenkeel_route_lost_frames" "Frames lost on the way to the CPUs that forward, by reason."
            { label: Some(("reason", "no_memory")), row: IfAny("A CPU had no memory for them: see `evenkeel doctor`") };
        not_sent: Frames "evenkeel_route_lost_frames" "Frames lost on the way to the CPUs that forward, by reason."
            { label: Some(("reason", "not_sent")), row: IfAny("A CPU could not send them on: see `evenkeel ledger`") };
    }
}

impl RouteLost {
    pub fn all(&self) -> u64 {
        Self::COUNTERS.iter().map(|counter| (counter.get)(self)).sum()
    }
}

impl RouteTotals {
    /// Frames that went up to the kernel.
    pub fn up(&self) -> u64 {
        let up = Self::COUNTERS.iter().filter(|counter| counter.label.is_some());
        up.map(|counter| (counter.get)(self)).sum()
    }
}
