//! Where packets die: every packet offered to the machine is delivered, lost at a named station, or unexplained.
//!
//! # The arithmetic
//!
//! For each direction `offered = delivered + waiting + lost + unexplained`, over one network namespace. The unexplained rest is the sum of
//! the remainders of five equations, each between two sets of counters that the kernel keeps independently of each other. `Δ` is left out:
//! everything is a difference over the interval.
//!
//! 1. **Wire and driver.** On each interface that stands on no other one: `offered = rx_packets + wire losses` (missed, errors, no
//!    descriptor; a veth without NAPI and the loopback count a packet only if the backlog took it, so that their backlog losses
//!    belong here too). `into the stack = rx_packets - driver losses - XDP (dropped, sent back, redirected, failed)`. What `evenkeel route`
//!    forwards is redirected: its own counters name it, and stand in where a driver has none (generic XDP).
//! 2. **Stack to protocol.** `into the stack (not by bridge ports) + rx_packets of bridges = InReceives of IPv4 and IPv6 + other
//!    protocols + losses (another host's MAC, no protocol, tc, ingress hook, backlog after the driver) + joined by GRO`. The
//!    other protocols have no counters: a packet socket of this program for each EtherType with a kernel handler counts
//!    them. What GRO joined is the rest of this equation as long as it is at most `sum of In*ECT*Pkts - InReceives`, for the kernel
//!    counts segments by ECN field and buffers by InReceives. Own multicast that is heard again is limited by OutMcastPkts and
//!    OutBcastPkts in the same way.
//! 3. **Bridge.** `into the ports = rx_packets of the bridge + losses + bridged`; `bridged` is the rest, at most what the ports
//!    sent beyond the bridge's own.
//! 4. **IP.** `InReceives + OutRequests + fragments made = losses + netfilter (all hooks) + fragments joined or kept + InDelivers +
//!    OutTransmits`. ForwDatagrams is not used: it is counted before the forward hook. What was forwarded is `OutTransmits -
//!    OutRequests`, fragments made taken off, the losses of the output and postrouting hooks given back. Before Linux 6.7 there is no
//!    OutTransmits behind postrouting: there that hook and the fragments made belong to the next equation, and IPv4's OutRequests have
//!    ForwDatagrams in them, which are taken off.
//! 5. **Out.** `OutTransmits + bridged = losses (neighbour) + tx_packets + losses of qdisc and driver + what waits longer than before
//!    (queues, neighbours, tun rings)`. What reached the interfaces beyond that came past IP (ARP, packet sockets, AF_XDP, XDP redirects,
//!    GSO's cuts): no counter tells it apart, so that this equation finds what is missing, never what is too much.
//!
//! A packet that waits for a neighbour's answer, in a queue or for the program behind a tun device is neither delivered nor lost: it is offered
//! again in the next interval, where it is delivered or lost.
//!
//! Behind InDelivers the protocols may still lose a packet (no socket, full buffer): those losses are taken from the delivery.
//! UDP counts InDatagrams when a program reads; what waits in a queue has been delivered to its socket.
//!
//! # One loss, once
//!
//! [`places`] is the table of all places. Each takes its number from its own counter; [`places::HOLDS`] says which counters hold
//! others (UDP's InErrors holds RcvbufErrors, InHdrErrors holds checksums and TTLs). The traced drop reasons (tracepoint
//! skb:kfree_skb) belong to exactly one place each, name the causes, are compared with the counter, and stand in for it where
//! none exists (NETFILTER_DROP of rules without a counter, martians, neighbours). Drops of netfilter whose hook no rule tells
//! are put where an equation misses packets.
//!
//! # What is no loss
//!
//! The kernel also drops what has done its work: a reset, the FIN of a closed connection, a repeated segment. The trace tells whether a TCP
//! segment carried data ([`placing`](place_of)); without data, nothing is lost with it. Such drops are listed and stand in no sum, as
//! InDelivers has counted their delivery. Copies for packet taps are listed the same way: the packet itself went on. Drops that a rule, a
//! program or a route decided are losses, and listed apart as intended.
//!
//! # Edges
//!
//! Counters are not read in one instant. Each interval's readings take the same way in the same order, so that what passed
//! between two of them at the beginning is given back at the end; what remains is the rate times the difference of the two
//! delays, and is said in a note when the unexplained packets are within it.

mod advice;
mod balance;
mod convert;
mod filter;
pub mod input;
mod names;
mod others;
pub mod places;
mod placing;
mod run;
mod stations;
mod trace;
mod verdict;

pub use balance::{Balance, balance};
pub use filter::{Filter, FilterError};
pub use placing::place_of;
pub use run::{Ledger, LedgerError, Options};
pub use stations::{Found, losses};
pub use verdict::{Head, report};
