//! Warnings about the interfaces of a running shield.

use bpf::filter::ShieldLink;
use model::units::counted;

use super::paths::Paths;
use crate::between::Pair;

/// Returns what is wrong with the interface of a shield.
pub(super) fn of_link(link: &ShieldLink) -> Option<String> {
    let name = link.interface();
    if let Some(why) = link.why_ended() {
        return Some(format!("the filter is gone: {why}"));
    }
    if !link.is_here() {
        return Some(format!(
            "{name} was moved to another network namespace: the filter stays active there, but changes of the interface are no longer followed"
        ));
    }
    let up = sys::link::flags(name).is_ok_and(|flags| flags.up);
    (!up).then(|| format!("{name} is down: the filter stays attached but receives no packets; `ip link set {name} up`"))
}

/// The pins were removed by others.
pub(super) fn of_pins(paths: &Paths) -> Option<String> {
    let link = paths.link();
    matches!(link.try_exists(), Ok(false)).then(|| {
        format!(
            "the shield will end with this process, whatever --fail says: {} was removed. Stop it and start it again",
            link.display()
        )
    })
}

/// Frames passed unjudged, as others emptied the place of the program.
pub(super) fn put_back(times: u64) -> Option<String> {
    (times > 0).then(|| {
        format!(
            "another tool removed the program from its chain {}: frames passed unfiltered until it was put back (docs/protocol/chain.md)",
            if times == 1 { "once".to_owned() } else { format!("{times} times") }
        )
    })
}

pub(crate) fn still_by(before: &str, now: &str) -> String {
    format!(
        "{before} was renamed to {now}, but its shield keeps the old name (`evenkeel shield status {before}`) and no longer follows changes of the interface: \
         rename it back, or restart the shield"
    )
}

/// XDP hands a frame to the other interface whatever its size, and that drops what is larger than it takes.
pub(super) fn unlike_mtus(pair: &Pair) -> Option<String> {
    let [Ok(first), Ok(second)] = pair.names().map(sys::link::mtu) else { return None };
    (first != second).then(|| {
        let (small, large) = if first < second { (first, &pair.second) } else { (second, &pair.first) };
        format!(
            "packets larger than {small} bytes from {large} are lost after the filter, which counts them as passed: the MTU is {first} on {} and {second} on {}; \
             `ip link set {large} mtu {small}`",
            pair.first, pair.second
        )
    })
}

pub(super) fn left_to_the_kernel(syns: u64) -> Option<String> {
    (syns > 0).then(|| {
        format!(
            "{} to MPTCP listeners went to the kernel unchallenged, as only it can answer them: keep net.ipv4.tcp_syncookies on, put a `limit` with \
             `per-source` before the challenge, or have the server listen for TCP only (Go: GODEBUG=multipathtcp=0)",
            counted(syns, "SYN", "SYNs")
        )
    })
}
