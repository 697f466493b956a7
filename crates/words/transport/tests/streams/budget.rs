//! Connections of one owner share a budget of memory.

use std::sync::Arc;

use transport::{Budget, Connection, Nanos, PEER_TIMEOUT, Serial, State};

use crate::{PAYLOAD, SLOTS, carry, joined};

/// Frames for which memory is taken at once.
const PAGE_BYTES: usize = 8 * PAYLOAD as usize;
const STEP_NS: Nanos = 20_000_000;
/// One owner's connections, their budget, and the bytes that go by each.
const PAIR_COUNT: u32 = 100;
const BUDGET_MAX: usize = 20_000;
const STREAM_BYTES: usize = 20_000;

/// Both ends of a connection by which a stream goes.
struct Pair {
    from: Connection,
    to: Connection,
    stream: Vec<u8>,
    sent: usize,
    came: Vec<u8>,
}

impl Pair {
    fn new(number: u32) -> Self {
        // In half of them the numbers wrap, and pages begin anywhere.
        let first = |number: u32| Serial((number % 2 * u32::MAX).wrapping_sub(number));
        let (from, to) = joined(2 * number, [2 * number, 2 * number + 1].map(first));
        let stream = (0..STREAM_BYTES).map(|at| (at * 7 + at / 256 + number as usize) as u8).collect();
        Self { from, to, stream, sent: 0, came: Vec::new() }
    }

    /// Sends what there is room for, as a program that does not wait.
    fn write(&mut self, now: Nanos) {
        self.sent += self.from.write(now, &self.stream[self.sent..]).unwrap_or(0);
    }

    fn step(&mut self, now: Nanos, reads: bool) {
        self.from.on_time(now);
        self.to.on_time(now);
        self.write(now);
        carry(now, &mut self.from, &mut self.to);
        let mut place = [0; 4096];
        while let read @ 1.. = if reads { self.to.read(now, &mut place) } else { 0 } {
            self.came.extend_from_slice(&place[..read]);
        }
        carry(now, &mut self.to, &mut self.from);
    }

    fn is_whole(&self) -> bool {
        self.came == self.stream
    }
}

#[test]
fn what_one_owner_does_not_read_is_bounded_and_stops_nobody_elses() {
    let [budget, of_other] = [BUDGET_MAX, BUDGET_MAX].map(Budget::new);
    let mut pairs: Vec<Pair> = (1..=PAIR_COUNT).map(Pair::new).collect();
    pairs.iter_mut().for_each(|pair| pair.to.charge_to(Some(&budget)));
    let mut other = Pair::new(PAIR_COUNT + 1);
    other.to.charge_to(Some(&of_other));
    let mut now = 0;
    let mut held = 0;
    while now < 3 * PEER_TIMEOUT {
        now += STEP_NS;
        for (at, pair) in pairs.iter_mut().enumerate() {
            // One of them is read.
            pair.step(now, at == 50);
        }
        other.step(now, true);
        held = held.max(budget.bytes());
    }
    assert!((BUDGET_MAX..BUDGET_MAX + PAIR_COUNT as usize * PAGE_BYTES).contains(&held), "{held}");
    assert!(other.is_whole(), "{}", other.came.len());
    assert!(pairs[50].is_whole(), "one that is read waits for none that is not: {}", pairs[50].came.len());
    for pair in &pairs {
        assert_eq!((pair.from.state(), pair.to.state()), (State::Open, State::Open), "nobody is given up");
    }
    // Nothing is lost.
    let until = now + 6 * PEER_TIMEOUT;
    while now < until && !pairs.iter().all(Pair::is_whole) {
        now += STEP_NS;
        pairs.iter_mut().for_each(|pair| pair.step(now, true));
    }
    assert!(pairs.iter().all(Pair::is_whole));
    assert_eq!((budget.bytes(), of_other.bytes()), (0, 0));
}

#[test]
fn what_one_owner_sends_waits_with_it_once_the_budget_is_spent() {
    let budget = Budget::new(BUDGET_MAX);
    let mut pairs: Vec<Pair> = (1..=PAIR_COUNT).map(Pair::new).collect();
    for pair in &mut pairs {
        pair.from.charge_to(Some(&budget));
        // Nothing arrives.
        while pair.from.room() > 0 {
            pair.write(0);
        }
        assert!(pair.sent >= PAYLOAD.into(), "each has room for a frame");
    }
    assert!(
        (BUDGET_MAX..BUDGET_MAX + (PAIR_COUNT as usize + 1) * PAGE_BYTES).contains(&budget.bytes()),
        "{}",
        budget.bytes()
    );
    let mut other = Pair::new(PAIR_COUNT + 1);
    other.write(0);
    assert_eq!(other.sent, SLOTS as usize * usize::from(PAYLOAD));
    let mut now = 0;
    while now < 6 * PEER_TIMEOUT && !pairs.iter().all(Pair::is_whole) {
        now += STEP_NS;
        pairs.iter_mut().for_each(|pair| pair.step(now, true));
    }
    assert!(pairs.iter().all(Pair::is_whole));
    assert_eq!(budget.bytes(), 0);
    assert_eq!(pairs[0].from.room(), SLOTS as usize * usize::from(PAYLOAD));
}

#[test]
fn what_waits_counts_once_and_goes_with_its_connection() {
    let budgets = [BUDGET_MAX, BUDGET_MAX].map(Budget::new);
    let mut pair = Pair::new(1);
    pair.write(0);
    carry(0, &mut pair.from, &mut pair.to);
    let bytes = |of: &Arc<Budget>| of.bytes() / PAGE_BYTES;
    pair.to.charge_to(Some(&budgets[0]));
    assert!(bytes(&budgets[0]) >= 2, "what came before counts, too");
    let before = bytes(&budgets[0]);
    pair.to.charge_to(Some(&budgets[0]));
    assert_eq!(bytes(&budgets[0]), before);
    pair.to.charge_to(Some(&budgets[1]));
    assert_eq!(budgets.each_ref().map(bytes), [0, before]);
    pair.to.charge_to(None);
    assert_eq!(budgets.each_ref().map(bytes), [0, 0], "it may wait without a bound");
    pair.to.charge_to(Some(&budgets[1]));
    assert_eq!(budgets.each_ref().map(bytes), [0, before]);
    drop(pair);
    assert_eq!(budgets.each_ref().map(bytes), [0, 0]);
}
