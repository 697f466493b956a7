//! Properties of an interface's driver.

use model::selftest::Group;
use sys::ethtool::Ethtool;

use crate::trial::{Trial, Tried, words};

/// The name of a property, the verbs that use it, and the function that reads it.
type Property = (&'static str, &'static [&'static str], fn(&str) -> Result<Tried, String>);

const PROPERTIES: [Property; 7] = [
    ("driver", &[], driver),
    ("queues", &["spread", "capture", "route"], queues),
    ("ring", &["doctor"], ring),
    ("RSS", &["spread"], rss),
    ("XDP in the driver", &["shield", "route", "link", "capture"], native),
    ("frames by XDP redirect", &["route", "gen"], redirect),
    ("AF_XDP without a copy", &["capture"], zero_copy),
];

pub(crate) fn trials(interface: &str) -> impl Iterator<Item = Trial<'_>> {
    let failed = |why| Tried::fails(why, "check that its driver is loaded");
    let one = move |(name, verbs, read): Property| {
        Trial::new(Group::Interface, name, verbs, move || read(interface).unwrap_or_else(failed))
    };
    PROPERTIES.into_iter().map(one)
}

fn asked<T>(
    interface: &str,
    ask: impl FnOnce(&mut Ethtool, &str) -> Result<Option<T>, sys::ethtool::EthtoolError>,
) -> Result<Option<T>, String> {
    ask(&mut Ethtool::open().map_err(words)?, interface).map_err(words)
}

fn none(what: &str) -> Tried {
    Tried::limited(format!("the driver reports no {what}"), "do without: evenkeel cannot change it here")
}

fn driver(interface: &str) -> Result<Tried, String> {
    let info = asked(interface, Ethtool::driver)?;
    Ok(info.map_or_else(|| none("name"), |info| Tried::works(info.driver)))
}

fn queues(interface: &str) -> Result<Tried, String> {
    let found = asked(interface, Ethtool::channels)?;
    Ok(found.map_or_else(
        || none("queues"),
        |found| {
            let of = |now: u32, max: u32| format!("{now} of {max}");
            let (both, rx) = (of(found.combined, found.combined_max), of(found.rx, found.rx_max));
            Tried::works(format!("combined {both}, receive {rx}, transmit {}", of(found.tx, found.tx_max)))
        },
    ))
}

fn ring(interface: &str) -> Result<Tried, String> {
    let found = asked(interface, Ethtool::rings)?;
    Ok(found.map_or_else(
        || none("ring"),
        |found| {
            Tried::works(format!("receive {} of {}, transmit {} of {}", found.rx, found.rx_max, found.tx, found.tx_max))
        },
    ))
}

fn rss(interface: &str) -> Result<Tried, String> {
    let found = asked(interface, Ethtool::rss)?;
    Ok(found.map_or_else(|| none("RSS"), |found| Tried::works(format!("{} entries", found.indirection.len()))))
}

fn feature(answer: Option<bool>, instead: &str) -> Tried {
    match answer {
        Some(true) => Tried::works(""),
        Some(false) => Tried::limited("the driver says that it cannot", instead),
        None => Tried::untried("kernels before 6.3 cannot tell", "try it with the verb"),
    }
}

fn native(interface: &str) -> Result<Tried, String> {
    Ok(feature(bpf::runs_native_xdp(interface).map_err(words)?, "use --xdp-mode generic"))
}

fn redirect(interface: &str) -> Result<Tried, String> {
    let answer = bpf::takes_redirected_frames(interface).map_err(words)?;
    Ok(feature(answer, "leave output by this interface to the kernel; use gen --backend tx-ring"))
}

fn zero_copy(interface: &str) -> Result<Tried, String> {
    Ok(feature(bpf::has_zero_copy(interface).map_err(words)?, "expect a copy of each frame by AF_XDP"))
}
