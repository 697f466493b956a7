//! What the fast path of `evenkeel route` did between two samples, on the interfaces where it runs.

use std::{collections::BTreeMap, time::Duration};

use bpf::RouteLook;
use host::{counters::Counters, interface, netlink::Netlink};
use model::{
    route::RouteTotals,
    top::{FastPathRates, TopSample},
};
use nix::sys::socket::SockProtocol;

/// The last reading of fast paths, for rates.
#[derive(Debug)]
pub(super) struct FastPath {
    /// None: nobody tells which programs run.
    links: Option<Netlink>,
    /// By interface's index: who it was, what it had done, and when that was.
    last: BTreeMap<u32, (u32, RouteTotals, Duration)>,
}

impl FastPath {
    pub(super) fn new() -> Self {
        Self { links: Netlink::open(SockProtocol::NetlinkRoute).ok(), last: BTreeMap::new() }
    }

    /// Puts the rates since the last call where a fast path runs. Without the privilege to look it runs nowhere.
    pub(super) fn fill(&mut self, now: &Counters, sample: &mut TopSample) {
        let mut looked = BTreeMap::new();
        let links = self.links.as_mut().and_then(|netlink| interface::links(netlink).ok()).unwrap_or_default();
        for (index, link) in links {
            let Some(look) = link.xdp.first().and_then(|(_, id)| RouteLook::of(*id)) else { continue };
            let (Some(mode), Ok(totals)) = (look.mode(), look.totals()) else { continue };
            looked.insert(index, (look.id(), totals, now.at));
            let Some(shown) = sample.interfaces.iter_mut().find(|i| i.name == link.name) else { continue };
            // One that began meanwhile began with nothing.
            let earlier = self.last.get(&index).filter(|(id, ..)| *id == look.id());
            let (before, seconds) = match earlier {
                Some((_, before, at)) => (*before, now.at.saturating_sub(*at).as_secs_f64()),
                None => (RouteTotals::default(), sample.interval_s),
            };
            let rate = |of: fn(&RouteTotals) -> u64| {
                let grown = of(&totals).saturating_sub(of(&before)) as f64;
                if seconds > 0.0 { grown / seconds } else { 0.0 }
            };
            shown.route = Some(FastPathRates {
                mode,
                forwarded_pps: rate(|t| t.forwarded),
                slow_path_pps: rate(RouteTotals::up),
            });
        }
        self.last = looked;
    }
}
