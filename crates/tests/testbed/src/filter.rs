//! Fixtures of the shield's tests: tables of simple rules, and frames.

use bpf::filter::ShieldConfig;
use rules::tables::{Field, FieldTable, RuleAction, RuleEntry, RuleTables};

use crate::{Ip, ethernet, in_namespace, run};

pub const DROP: u32 = 1;
pub const PASS: u32 = 2;

/// Runs in a network namespace that has the pair ekA (198.18.0.1) and ekB (198.18.0.2), which is a neighbour that nobody answers for,
/// and no IPv6.
pub fn in_pair(test: impl FnOnce() + Send + 'static) {
    in_namespace(move || {
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        run("ip link add ekA type veth peer name ekB");
        run("ip addr add 198.18.0.1/24 dev ekA");
        run("ip link set ekA up");
        run("ip link set ekB up");
        run("ip neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev ekA");
        test();
    });
}

/// A program that tells what decides.
pub fn counting() -> ShieldConfig {
    ShieldConfig { report: true, ..Default::default() }
}

const VALUES: [usize; 7] = [65_536, 65_536, 512, 769, 192, 4097, 65_536];

/// Tables of rules, each a list of values for some fields.
pub struct Tables {
    pub rules: Vec<RuleEntry>,
    pub tables: RuleTables,
    conditions: Vec<[Option<Vec<usize>>; 7]>,
}

pub struct RuleOf<'a>(&'a mut Tables, usize);

impl Tables {
    /// `count` rules that pass everything.
    pub fn new(count: usize) -> Self {
        let rules = (0..count).map(|n| RuleEntry { counter: n as u16, ..Default::default() }).collect();
        Self { rules, tables: RuleTables::default(), conditions: vec![Default::default(); count] }
    }

    pub fn rule(&mut self, n: usize, action: RuleAction) -> RuleOf<'_> {
        self.rules[n].action = action;
        RuleOf(self, n)
    }

    pub fn build(&self) -> RuleTables {
        let words = self.rules.len().div_ceil(64).max(1);
        let mut tables = RuleTables { words, rules: self.rules.clone(), ..self.tables.clone() };
        for (f, values) in VALUES.into_iter().enumerate() {
            if self.conditions.iter().all(|c| c[f].is_none()) {
                continue;
            }
            let row = |value: Option<usize>| {
                let mut row = vec![0u64; words];
                for (n, conditions) in self.conditions.iter().enumerate() {
                    if conditions[f].as_ref().is_none_or(|c| value.is_some_and(|v| c.contains(&v))) {
                        row[n / 64] |= 1 << (n % 64);
                    }
                }
                row
            };
            let mut table = FieldTable { class_of: vec![0; values], absent: 0, rows: row(None) };
            let mut named: Vec<usize> = self.conditions.iter().flat_map(|c| c[f].clone().unwrap_or_default()).collect();
            named.sort_unstable();
            named.dedup();
            for value in named {
                table.class_of[value] = (table.rows.len() / words) as u16;
                table.rows.extend(row(Some(value)));
            }
            tables.fields[f] = Some(table);
        }
        tables
    }
}

impl RuleOf<'_> {
    pub fn when(self, field: Field, values: &[usize]) -> Self {
        self.0.conditions[self.1][field as usize - 2] = Some(values.to_vec());
        self
    }

    pub fn set(self, set: impl FnOnce(&mut RuleEntry)) -> Self {
        set(&mut self.0.rules[self.1]);
        self
    }
}

/// A frame that is put together layer by layer.
#[derive(Clone)]
pub struct Frame {
    pub tags: Vec<(u16, u16)>,
    pub six: bool,
    pub source: [u8; 16],
    pub dscp: u8,
    /// IPv4 options, a multiple of 4 bytes.
    pub options: Vec<u8>,
    /// IPv4's flags and offset.
    pub fragment: u16,
    pub protocol: u8,
    /// IPv6 extension headers: their number and their bytes, the first of which is filled in.
    pub extensions: Vec<(u8, Vec<u8>)>,
    pub payload: Vec<u8>,
    pub padding: usize,
}

impl Frame {
    fn new(protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            tags: vec![],
            six: false,
            source: [10; 16],
            dscp: 0,
            options: vec![],
            fragment: 0,
            protocol,
            extensions: vec![],
            payload,
            padding: 0,
        }
    }

    pub fn udp(from: u16, to: u16) -> Self {
        Self::new(17, [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 8, 0, 0]].concat())
    }

    pub fn tcp(from: u16, to: u16, flags: u8) -> Self {
        let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0, 9, 0, 0, 0, 0];
        Self::new(6, [&from.to_be_bytes()[..], &to.to_be_bytes(), &rest].concat())
    }

    pub fn icmp(kind: u8) -> Self {
        Self::new(1, vec![kind, 0, 0, 0, 0, 1, 0, 1])
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut more = Vec::new();
        let ip = if self.six {
            for (n, (_, bytes)) in self.extensions.iter().enumerate() {
                more.push(self.extensions.get(n + 1).map_or(self.protocol, |e| e.0));
                more.extend(&bytes[1..]);
            }
            Ip::new(self.source, [0x20; 16], self.extensions.first().map_or(self.protocol, |e| e.0))
        } else {
            more.extend(&self.options);
            let [a, b, c, d, ..] = self.source;
            Ip { fragment: self.fragment, ..Ip::new([a, b, c, d], [198, 18, 0, 1], self.protocol) }
        };
        let packet = Ip { tos: self.dscp << 2, ..ip }.packet(&more, &self.payload);
        let mut frame = ethernet([[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], &self.tags, &packet);
        frame.resize(frame.len() + self.padding, 0);
        frame
    }
}
