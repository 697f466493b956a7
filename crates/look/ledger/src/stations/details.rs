//! Whose packets ended at a place: from the details of the drops that belong to it.

use std::collections::BTreeMap;

use model::stations::{Details, Sample, Share};
use wire::line;

use crate::{
    input::{Detail, Drop, Interval},
    names,
};

/// Targets and sources that have a line.
const SHARES_MAX: usize = 5;

/// The details of these drops; none if they were not asked for, or none of these was seen.
pub(super) fn details(interval: &Interval, drops: &[&Drop]) -> Option<Details> {
    let same = |d: &Drop, of: &Drop| {
        (&d.reason, &d.function, d.ifindex, d.protocol, d.kind)
            == (&of.reason, &of.function, of.ifindex, of.protocol, of.kind)
    };
    let mine: Vec<&Detail> =
        interval.trace.details.iter().filter(|d| drops.iter().any(|of| same(&d.drop, of))).collect();
    let most = mine.iter().max_by_key(|d| d.drop.packets)?;
    let of = |name: fn(&Detail) -> Option<String>| {
        let mut shares: BTreeMap<String, u64> = BTreeMap::new();
        for detail in &mine {
            if let Some(name) = name(detail) {
                *shares.entry(name).or_default() += detail.drop.packets;
            }
        }
        let mut shares: Vec<Share> = shares.into_iter().map(|(what, packets)| Share { what, packets }).collect();
        shares.sort_by_key(|s| std::cmp::Reverse(s.packets));
        shares.truncate(SHARES_MAX);
        shares
    };
    Some(Details {
        targets: of(|d| d.drop.last.as_ref().map(|f| names::flow(f).target())),
        sources: of(|d| d.drop.last.as_ref().map(|f| f.source.to_string())),
        sample: (!most.bytes.is_empty()).then(|| sample(most)),
        stack: most.stack.clone(),
    })
}

fn sample(detail: &Detail) -> Sample {
    Sample {
        text: line::describe(&detail.bytes, detail.link_header, detail.drop.protocol),
        length: detail.length,
        hex: detail.bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")),
        network_header: detail.link_header,
    }
}
