//! Rows that are shown, and their order.

use std::cmp::Ordering;

use model::top::{CoreRates, InterfaceRates, QueueRates};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filter {
    All,
    /// Interfaces with traffic.
    #[default]
    Busy,
    /// Interfaces with hardware of their own.
    Hardware,
}

impl Filter {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Busy => Self::Hardware,
            Self::Hardware => Self::All,
            Self::All => Self::Busy,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Busy => "busy",
            Self::Hardware => "hardware",
        }
    }

    pub fn shows(self, interface: &InterfaceRates) -> bool {
        match self {
            Self::All => true,
            Self::Busy => !interface.is_idle(),
            Self::Hardware => !interface.is_virtual,
        }
    }
}

/// The order of every table, largest first unless reversed; names and numbers ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    interfaces: usize,
    cores: usize,
    queues: usize,
    reversed: [bool; 3],
}

type Key<T> = (&'static str, fn(&T, &T) -> Ordering);
/// An interface's name and one of its queues.
pub(super) type Queue<'a> = (&'a str, &'a QueueRates);

const INTERFACES: [Key<InterfaceRates>; 5] = [
    ("traffic", |a, b| b.traffic_pps().total_cmp(&a.traffic_pps())),
    ("received", |a, b| b.rx_pps.total_cmp(&a.rx_pps)),
    ("sent", |a, b| b.tx_pps.total_cmp(&a.tx_pps)),
    ("lost", |a, b| b.drops_pps().total_cmp(&a.drops_pps())),
    ("name", |a, b| a.name.cmp(&b.name)),
];
const CORES: [Key<CoreRates>; 3] = [
    ("number", |a, b| a.load.cpu.cmp(&b.load.cpu)),
    ("load", |a, b| b.load.busy_percent().total_cmp(&a.load.busy_percent())),
    ("softirq", |a, b| b.load.softirq_percent.total_cmp(&a.load.softirq_percent)),
];
const QUEUE_KEYS: [&str; 3] = ["number", "packets", "CPU"];

fn packets(queue: &QueueRates) -> f64 {
    queue.rx_pps.unwrap_or(0.0) + queue.tx_pps.unwrap_or(0.0)
}

fn turn(reversed: bool, order: Ordering) -> Ordering {
    if reversed { order.reverse() } else { order }
}

impl Order {
    /// Orders the table with that number (0 interfaces, 1 cores, 2 queues) by its next key.
    pub(super) fn advance(&mut self, table: usize) {
        match table {
            0 => self.interfaces = (self.interfaces + 1) % INTERFACES.len(),
            1 => self.cores = (self.cores + 1) % CORES.len(),
            _ => self.queues = (self.queues + 1) % QUEUE_KEYS.len(),
        }
    }

    pub(super) fn reverse(&mut self, table: usize) {
        self.reversed[table.min(2)] ^= true;
    }

    /// The key of a table, for its title.
    pub(super) fn word(&self, table: usize) -> String {
        let word = match table {
            0 => INTERFACES[self.interfaces].0,
            1 => CORES[self.cores].0,
            _ => QUEUE_KEYS[self.queues],
        };
        if self.reversed[table.min(2)] { format!("{word}, reversed") } else { word.to_owned() }
    }

    pub(super) fn interfaces(&self, list: &mut [&InterfaceRates]) {
        let key = INTERFACES[self.interfaces].1;
        list.sort_by(|a, b| turn(self.reversed[0], key(a, b)).then_with(|| a.name.cmp(&b.name)));
    }

    pub(super) fn cores(&self, list: &mut [&CoreRates]) {
        let key = CORES[self.cores].1;
        list.sort_by(|a, b| turn(self.reversed[1], key(a, b)).then_with(|| a.load.cpu.cmp(&b.load.cpu)));
    }

    pub(super) fn queues(&self, list: &mut [Queue<'_>]) {
        let key = |a: &Queue<'_>, b: &Queue<'_>| match self.queues {
            // As they come: the interfaces in their order, each with its queues ascending.
            0 => Ordering::Equal,
            1 => packets(b.1).total_cmp(&packets(a.1)),
            _ => a.1.cpu.cmp(&b.1.cpu),
        };
        list.sort_by(|a, b| turn(self.reversed[2], key(a, b)));
    }
}
