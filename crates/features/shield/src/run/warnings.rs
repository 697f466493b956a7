//! Warnings about the interfaces of a running shield.

use bpf::filter::ShieldLink;

use super::paths::Paths;
use crate::between::Pair;

/// Returns what is wrong with the interface of a shield.
pub(super) fn of_link(link: &ShieldLink) -> Option<String> {
    let name = link.interface();
    if let Some(why) = link.why_ended() {
        return Some(format!("{why}, and the filter is gone with it"));
    }
    if !link.is_here() {
        return Some(format!(
            "{name} was moved to another network namespace; the filter goes on there, and nothing is looked after from here"
        ));
    }
    let up = sys::link::flags(name).is_ok_and(|flags| flags.up);
    (!up).then(|| format!("{name} is down: nothing comes to the filter, which stays (`ip link set {name} up`)"))
}

/// What outlives the process has been taken away.
pub(super) fn of_pins(paths: &Paths) -> Option<String> {
    let link = paths.link();
    matches!(link.try_exists(), Ok(false)).then(|| {
        format!(
            "{} was removed: if this process dies the shield goes with it, whatever --fail says. Stop it and start it again",
            link.display()
        )
    })
}

/// Frames passed unjudged, as others emptied the place of the program.
pub(super) fn put_back(times: u64) -> Option<String> {
    (times > 0).then(|| {
        format!("the program was taken out of its place in the chain {times} times and put back; each time frames passed unjudged for a moment (docs/chain.md)")
    })
}

pub(crate) fn still_by(before: &str, now: &str) -> String {
    format!(
        "{before} is called {now} now, and its shield still goes by the old name (`evenkeel shield status {before}`): what is set on the interface by its name is \
         not looked after, so give it its name back or start the shield again"
    )
}

/// XDP hands a frame to the other interface whatever its size, and that drops what is larger than it takes.
pub(super) fn unlike_mtus(pair: &Pair) -> Option<String> {
    let [Ok(first), Ok(second)] = pair.names().map(sys::link::mtu) else { return None };
    (first != second).then(|| {
        let (small, large) = if first < second { (first, &pair.second) } else { (second, &pair.first) };
        format!(
            "{} has an MTU of {first} and {} one of {second}: what is larger than {small} bytes and comes at {large} is lost behind the filter, which counts it as \
             passed; give both the same MTU",
            pair.first, pair.second
        )
    })
}

pub(super) fn left_to_the_kernel(syns: u64) -> Option<String> {
    (syns > 0).then(|| {
        format!(
            "{syns} SYNs to listeners of MPTCP were left to the kernel, which alone can answer them: keep net.ipv4.tcp_syncookies on, put a `limit` with \
             `per-source` before the challenge, or have the server listen for TCP alone (Go: GODEBUG=multipathtcp=0)"
        )
    })
}
