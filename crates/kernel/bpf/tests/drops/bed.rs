//! A network namespace that goes with its thread, and what the kernel counts in it.

use std::{fs, os::unix::fs::MetadataExt};

use testbed::run;

/// A namespace with its loopback up, entered by this thread.
pub(crate) struct Bed {
    pub(crate) netns: u32,
    pub(crate) left: String,
    pub(crate) right: String,
    pub(crate) left_index: u32,
    pub(crate) right_index: u32,
}

/// Runs `test` in a new namespace. A failure in there fails the test.
pub(crate) fn in_namespace(test: impl FnOnce(&mut Bed) + Send + 'static) {
    testbed::in_namespace(move || {
        let netns = fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32;
        let mut bed = Bed { netns, left: "ekleft".into(), right: "ekright".into(), left_index: 0, right_index: 0 };
        test(&mut bed);
    });
}

impl Bed {
    /// A veth pair, both ends here; with `napi`, the right end takes redirected frames.
    pub(crate) fn add_veth(&mut self, napi: bool) {
        run(&format!("ip link add {} type veth peer name {}", self.left, self.right));
        if napi {
            run(&format!("ethtool -K {} gro on", self.right));
        }
        for end in [&self.left, &self.right] {
            run(&format!("ip link set {end} up"));
        }
        self.left_index = nix::net::if_::if_nametoindex(self.left.as_str()).unwrap();
        self.right_index = nix::net::if_::if_nametoindex(self.right.as_str()).unwrap();
    }

    pub(crate) fn snmp(&self, protocol: &str, name: &str) -> u64 {
        let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut lines = text.lines().filter_map(|l| l.strip_prefix(&format!("{protocol}: ")));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|n| n == name).unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    }

    /// Frames for other hosts that the right end dropped, as the kernel counts them.
    pub(crate) fn other_host(&self) -> u64 {
        let text = run(&format!("ip -j -s -s link show {}", self.right));
        let (_, rest) =
            text.split_once("\"otherhost\":").or_else(|| text.split_once("otherhost_dropped\":")).expect(&text);
        rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    }
}
