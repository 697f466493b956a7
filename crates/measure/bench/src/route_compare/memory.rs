//! Memory for each packet: what is taken while a trial runs.

use std::{sync::atomic::AtomicBool, time::Duration};

use bpf::Allocated;
use model::{bench::Trial, route_compare::Allocations};

use super::Counter;
use crate::{BenchError, Meanwhile, Order, Tester};

/// The method of counting, for the reader.
pub(super) const METHOD: &str = "Counted on the box's cores, in a trial of its own at half of the throughput, from before the first packet to after the \
     last, in soft interrupts of the network and in kernel threads alone, and divided by the packets that came out. Pages: the tracepoint \
     mm_page_alloc, all 2^order pages of each call. New to a pool: the tracepoint page_pool_state_hold. Socket buffers: the tracepoints consume_skb and \
     kfree_skb, that is those that ended. Not seen: the memory of the frames themselves, which in a lab is the sender's and comes from its own pool on \
     its own core, where a network card's driver would take it; socket buffers that GRO merges into others. The receiving ends of the lab count where \
     they share the box's cores.";

/// A tester that counts memory during its trials.
pub(super) struct Counting<'a> {
    inner: &'a mut dyn Tester,
    counter: &'a Counter,
    last: Option<Allocations>,
}

impl<'a> Counting<'a> {
    pub(super) fn new(inner: &'a mut dyn Tester, counter: &'a Counter) -> Self {
        Self { inner, counter, last: None }
    }

    /// Allocations of the last trial; none without a packet.
    pub(super) fn last(&self) -> Option<Allocations> {
        self.last
    }
}

impl Tester for Counting<'_> {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        let before = (self.counter)()?;
        let trial = self.inner.make(order, also, stop)?;
        let taken = (self.counter)()?.since(before);
        self.last = per_packet(taken, trial.total().received);
        Ok(trial)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

fn per_packet(taken: Allocated, packets: u64) -> Option<Allocations> {
    let each = |n: u64| n as f64 / packets as f64;
    (packets > 0).then(|| Allocations {
        packets,
        pages: each(taken.pages),
        pool_pages: each(taken.pool_pages),
        socket_buffers: each(taken.buffers),
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;
    use crate::methods::{self, simulated::SimBox};

    #[test]
    fn what_a_trial_takes_is_divided_by_the_packets_that_came_out() {
        let taken = Cell::new(Allocated { pages: 7, pool_pages: 0, buffers: 100 });
        let counter: Counter = Box::new(move || {
            let now = taken.get();
            taken.set(Allocated {
                pages: now.pages + 50_000,
                pool_pages: now.pool_pages,
                buffers: now.buffers + 200_000,
            });
            Ok(now)
        });
        let mut inner = SimBox { capacity_pps: 1e6, ..SimBox::default() };
        let mut counting = Counting::new(&mut inner, &counter);
        assert_eq!(counting.last(), None);
        let mut bench = methods::simulated::bench(&mut counting);
        methods::load(&mut bench, &[], "x", 1e5, Duration::from_secs(1)).unwrap();
        let expected = Allocations { packets: 100_000, pages: 0.5, pool_pages: 0.0, socket_buffers: 2.0 };
        assert_eq!(counting.last(), Some(expected));
        assert_eq!(per_packet(Allocated::default(), 0), None);
    }
}
