//! Tables that fill up, and rules that are walked one by one: connections, neighbours, nftables.

use host::{
    knob::Knob,
    setting::{Missing, conntrack, neighbour, nft},
};

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// Rules in a row from which on one lookup is worth its while.
const RUN_MIN: usize = 8;

/// The kernel's own limit of a neighbour table.
const SMALL_TABLE: u64 = 1024;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "conntrack-table",
        group: "tables",
        question: "Has the connection table room, and are its chains short?",
        reads: "nf_conntrack_count, _max, _buckets; insert_failed, drop, early_drop of /proc/net/stat/nf_conntrack",
        fix: "net.netfilter.nf_conntrack_max twice the connections of the busiest hour, and as many buckets",
        risk: "each connection takes about 320 bytes of kernel memory",
        roles: &[],
        run: |ev| or_unknown(connections(ev)),
    },
    Check {
        id: "linear-rules",
        group: "tables",
        question: "Are there long runs of rules that one lookup would replace?",
        reads: "nft -j list ruleset: rules in a row that look at the same fields",
        fix: "a set or a verdict map in their place",
        risk: "the order of the rules matters where one packet matches several of them",
        roles: &[],
        run: |ev| or_unknown(linear_rules(ev)),
    },
    Check {
        id: "neighbour-table",
        group: "tables",
        question: "Has the neighbour table room?",
        reads: "gc_thresh2 and gc_thresh3, entries and table_fulls of /proc/net/stat/arp_cache and ndisc_cache, while watched",
        fix: "net.ipv4.neigh.default.gc_thresh1 to 3 for the stations of the largest network attached",
        risk: "some kilobytes of memory; a scan of the network fills a larger table too",
        roles: &[],
        run: |ev| or_unknown(neighbours(ev)),
    },
];

fn connections(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let Some(table) = conntrack::read(&ev.root)? else { return Ok(Vec::new()) };
    let full = 100.0 * table.count as f64 / table.max.max(1) as f64;
    let of_table = |root: &host::Root| conntrack::read(root).ok()?.map(|t| t.drop.saturating_add(t.early_drop));
    let (refused, now, since) = (ev.since(of_table).unwrap_or(0), ev.grown(of_table), ev.since_when());
    let buckets = table.buckets.unwrap_or(0);
    let chains = buckets > 0 && table.max / 4 > buckets;
    // A sysctl of 32 bits with a sign.
    let grown = table.max.max(table.count).saturating_mul(2).min(i32::MAX as u64);
    let mut outcome = if full >= 90.0 {
        Outcome::bad("When the table is full, the first packet of every new connection is dropped.")
    } else if refused > 0 && now.is_none_or(|now| now > 0) {
        Outcome::bad("The table has been full: connections were refused, or living ones thrown out for them.")
    } else if refused > 0 && ev.counts(now) {
        Outcome::improve("The table has been full: connections were refused, or living ones thrown out for them.")
    } else if full >= 70.0 {
        Outcome::improve("The table has little room left for a burst of new connections.")
    } else if chains {
        Outcome::improve("With many more connections than buckets every packet walks a long chain.")
    } else {
        Outcome::good("The table has room, and its chains are short.")
    };
    outcome = outcome
        .saw(format!("{} of {} connections ({full:.0} %), {buckets} buckets", table.count, table.max))
        .saw(format!(
            "{refused} refused or thrown out {since} (drop {}, early_drop {}; insert_failed {} is mostly two packets of one \
             connection at once)",
            table.drop, table.early_drop, table.insert_failed
        ))
        .holds("nf_conntrack_max", table.max)
        .holds("nf_conntrack_buckets", buckets);
    if let Some(now) = now {
        outcome = outcome.saw(format!("{now} of these while watched"));
    }
    let needs_room = outcome.verdict.is_finding() && (full >= 70.0 || refused > 0);
    if needs_room {
        let knob = Knob::Sysctl { path: "net/netfilter/nf_conntrack_max".to_owned() };
        outcome = outcome.set(knob, table.max.to_string(), grown.to_string());
    }
    if buckets > 0 && (chains || (needs_room && grown / 4 > buckets)) {
        let wanted = if needs_room { grown } else { table.max };
        let knob = Knob::Sysctl { path: "net/netfilter/nf_conntrack_buckets".to_owned() };
        outcome = outcome.set(knob, buckets.to_string(), wanted.to_string());
    }
    Ok(vec![outcome])
}

fn linear_rules(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let rules = nft::ruleset(&ev.root)?;
    let count = nft::rule_count(&rules);
    if count == 0 {
        return Ok(Vec::new());
    }
    let runs = nft::linear_runs(&rules, RUN_MIN);
    if runs.is_empty() {
        let saw = format!("rules: {count}, none of them in a run of {RUN_MIN} or more that compare the same fields");
        return Ok(vec![Outcome::good("No run of rules costs a packet more than a lookup would.").saw(saw)]);
    }
    let judge = |run: &nft::LinearRun| {
        let fields = run.fields.join(" . ");
        let place = format!("{} {}", run.table, run.chain);
        let why =
            "Each packet that matches none of them is compared with every rule of the run; a set takes one lookup.";
        let outcome = Outcome::improve(why)
            .on(&place)
            .saw(format!("{} rules in a row compare {fields}", run.rules))
            .holds("rules in a row", run.rules);
        match run.same_verdict {
            true => {
                outcome.advise(format!("nft add set {} listed '{{ typeof {fields}; }}'", run.table)).advise(format!(
                    "# then one rule `{fields} @listed <verdict>` in chain {} in place of the {}",
                    run.chain, run.rules
                ))
            }
            false => outcome.advise(format!(
                "# one rule `{fields} vmap {{ value : verdict, ... }}` in chain {} in place of the {}",
                run.chain, run.rules
            )),
        }
    };
    Ok(runs.iter().map(judge).collect())
}

fn neighbours(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let judge = |table: neighbour::Neighbours| {
        let family = table.family;
        let limits =
            [("gc_thresh3", table.hard_limit.saturating_mul(4)), ("gc_thresh2", table.hard_limit.saturating_mul(2))];
        // Since boot says little: an hour ago, or another network namespace of this machine.
        let now = ev.grown(|root| neighbour::read(root).ok()?.iter().find(|t| t.family == family).map(|t| t.full));
        let mut outcome = if table.entries / 9 >= table.hard_limit / 10 || now.is_some_and(|now| now > 0) {
            Outcome::bad("A station that finds no room in the table cannot be reached: its packets are dropped.")
        } else if table.full > 0 && now.is_none() {
            Outcome::improve(
                "The table has been full since boot: stations could not be reached then, and their packets were dropped.",
            )
        } else if table.entries >= table.soft_limit {
            Outcome::improve(
                "Above this limit the kernel throws out entries every few seconds and asks for them again.",
            )
        } else if ev.role.forwards() && table.hard_limit <= SMALL_TABLE {
            Outcome::improve(
                "This limit is made for a station; a scan of one network of 1,000 addresses fills a router's table.",
            )
        } else {
            Outcome::good("The table has room.")
        };
        outcome = outcome
            .on(family)
            .saw(format!("{} entries, limits {} and {}", table.entries, table.soft_limit, table.hard_limit))
            .saw(match now {
                Some(now) => format!("times without room: {now} while watched, {} since boot", table.full),
                None => format!("times without room: {} since boot", table.full),
            })
            .holds("neighbour limit", table.hard_limit);
        if outcome.verdict.is_finding() {
            for (name, value) in limits {
                let old = if name == "gc_thresh3" { table.hard_limit } else { table.soft_limit };
                let knob = Knob::Sysctl { path: format!("net/{family}/neigh/default/{name}") };
                outcome = outcome.set(knob, old.to_string(), value.to_string());
            }
        }
        outcome
    };
    Ok(neighbour::read(&ev.root)?.into_iter().map(judge).collect())
}
