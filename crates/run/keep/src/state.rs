//! The properties of the machine that a plan depends on, and that cost little to read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::DirEntryExt,
    path::Path,
};

use host::{interface::links, netlink::Netlink};

/// The properties of an interface that a plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    pub name: String,
    pub up: bool,
    /// Files of its queues, such as `rx-0` and `tx-0`; empty for interfaces without kept settings.
    pub queues: BTreeSet<String>,
}

/// The machine at one moment. After a driver requests an interrupt again, its number may be the same and its entries in /proc/irq are others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    pub interfaces: BTreeMap<u32, Interface>,
    /// Numbers of all interrupts.
    pub irqs: BTreeSet<u32>,
    /// Inodes of the entries of interrupts with kept settings.
    pub requests: BTreeMap<u32, BTreeSet<u64>>,
    /// The list of CPUs that are online.
    pub cpus: String,
}

/// Reads [`State`].
#[derive(Debug)]
pub struct Reader {
    route: Netlink,
}

impl Reader {
    /// # Errors
    /// There is no netlink socket.
    pub fn open() -> io::Result<Self> {
        Ok(Self { route: Netlink::route()? })
    }

    /// Reads the machine, with the queues of the interfaces `kept` and the requests of `irqs`.
    ///
    /// # Errors
    /// The kernel does not list its interfaces.
    pub fn read(&mut self, kept: &BTreeSet<String>, irqs: &BTreeSet<u32>) -> io::Result<State> {
        let of = |(index, link): (u32, host::interface::Link)| {
            let queues = if kept.contains(&link.name) { queues(&link.name) } else { BTreeSet::new() };
            (index, Interface { name: link.name, up: link.up, queues })
        };
        Ok(State {
            interfaces: links(&mut self.route)?.into_iter().map(of).collect(),
            irqs: names("/proc/irq").filter_map(|name| name.parse().ok()).collect(),
            requests: irqs.iter().map(|&irq| (irq, inodes(&format!("/proc/irq/{irq}")))).collect(),
            cpus: fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default().trim().to_owned(),
        })
    }
}

fn queues(name: &str) -> BTreeSet<String> {
    names(Path::new("/sys/class/net").join(name).join("queues")).collect()
}

fn names(folder: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn inodes(folder: &str) -> BTreeSet<u64> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.ino()).collect()
}

impl State {
    /// The first difference from an earlier state, in words. Queues and requests that the earlier state lacks are no difference: the plan decides
    /// for which interfaces and interrupts they are read.
    pub fn change_since(&self, earlier: &Self) -> Option<String> {
        if self.cpus != earlier.cpus {
            return Some(format!("CPUs {} are online", self.cpus));
        }
        for (index, now) in &self.interfaces {
            match earlier.interfaces.get(index) {
                None => return Some(format!("{} appeared", now.name)),
                Some(before) if before.name != now.name => {
                    return Some(format!("{} was renamed to {}", before.name, now.name));
                }
                Some(before) if before.up != now.up => {
                    return Some(format!("{} went {}", now.name, if now.up { "up" } else { "down" }));
                }
                Some(before) if before.queues != now.queues && !before.queues.is_empty() => {
                    let [rx, tx] = ["rx-", "tx-"].map(|kind| {
                        let count = |it: &Interface| it.queues.iter().filter(|name| name.starts_with(kind)).count();
                        format!("{} {} (before {})", &kind[..2], count(now), count(before))
                    });
                    return Some(format!("the queues of {} changed: {rx}, {tx}", now.name));
                }
                Some(_) => {}
            }
        }
        if let Some((_, gone)) = earlier.interfaces.iter().find(|(index, _)| !self.interfaces.contains_key(index)) {
            return Some(format!("{} was removed", gone.name));
        }
        let again = |(irq, inodes): &(&u32, &BTreeSet<u64>)| {
            earlier.requests.get(irq).is_some_and(|before| before != *inodes && !before.is_empty())
        };
        if let Some((irq, _)) = self.requests.iter().find(again) {
            return Some(format!("IRQ {irq} was requested again"));
        }
        (self.irqs != earlier.irqs).then(|| "the list of interrupts changed".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let eth = Interface { name: "eth0".into(), up: true, queues: ["rx-0".to_owned(), "tx-0".into()].into() };
        State {
            interfaces: [(2, eth)].into(),
            irqs: [40, 41].into(),
            requests: [(40, [7, 8].into())].into(),
            cpus: "0-1".into(),
        }
    }

    #[test]
    fn each_difference_is_named() {
        let changed = |change: fn(&mut State)| {
            let mut now = state();
            change(&mut now);
            now.change_since(&state())
        };
        assert_eq!(changed(|_| {}), None);
        let renamed = changed(|now| now.interfaces.get_mut(&2).unwrap().name = "lan0".into());
        assert_eq!(renamed.as_deref(), Some("eth0 was renamed to lan0"));
        assert_eq!(changed(|now| now.interfaces.get_mut(&2).unwrap().up = false).as_deref(), Some("eth0 went down"));
        assert_eq!(changed(|now| now.interfaces.clear()).as_deref(), Some("eth0 was removed"));
        let again = changed(|now| now.requests = [(40, [7, 9].into())].into());
        assert_eq!(again.as_deref(), Some("IRQ 40 was requested again"));
        assert_eq!(changed(|now| now.cpus = "0".into()).as_deref(), Some("CPUs 0 are online"));
        assert!(changed(|now| now.irqs = [40].into()).is_some());
        let fewer = changed(|now| now.interfaces.get_mut(&2).unwrap().queues.retain(|name| name != "rx-0"));
        assert_eq!(fewer.as_deref(), Some("the queues of eth0 changed: rx 0 (before 1), tx 1 (before 1)"));
        // The request of an interrupt that is kept from now on is no change.
        assert_eq!(changed(|now| drop(now.requests.insert(41, [1].into()))), None);
    }

    #[test]
    fn this_machine_is_read() {
        let read = Reader::open().unwrap().read(&["lo".to_owned()].into(), &BTreeSet::new()).unwrap();
        assert!(read.interfaces.values().any(|it| it.name == "lo" && it.queues.contains("rx-0")), "{read:?}");
        assert!(!read.cpus.is_empty());
    }
}
