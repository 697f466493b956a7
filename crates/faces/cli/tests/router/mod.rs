//! Two hosts and a router between them, for tests of `evenkeel route`.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::process::{Command, Output};

use serde_json::Value;
use testbed::{Bed, End, Running, json, wait_reporting};

/// `a` - `r` - `b`, where `r` forwards: 198.18.1.0/24, 198.18.2.0/24.
pub struct World {
    pub bed: Bed,
    pub a: End,
    pub ports: [End; 2],
    pub b: End,
}

impl World {
    pub fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["a", "r", "b"])?;
        let ([a, ra], [rb, b]) = (bed.join(["a", "r"], 1), bed.join(["r", "b"], 1));
        for (end, address) in
            [(&a, "198.18.1.2/24"), (&ra, "198.18.1.1/24"), (&rb, "198.18.2.1/24"), (&b, "198.18.2.2/24")]
        {
            end.address(address);
            // Redirected frames are taken, and nobody leaves checksums to a device that is not there.
            end.feature("rx-gro", true);
            end.feature("tx-checksum-ip-generic", false);
        }
        a.space().output("ip route add default via 198.18.1.1");
        b.space().output("ip route add default via 198.18.2.1");
        ra.space().set("net.ipv4.ip_forward", "1");
        Some(Self { bed, a, ports: [ra, rb], b })
    }

    pub fn evenkeel(&self, arguments: &[&str]) -> Command {
        let mut command = self.ports[0].space().command(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("route").args(arguments);
        command
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        self.evenkeel(arguments).output().unwrap()
    }

    pub fn run(&self, more: &[&str]) -> Running {
        let names = [self.ports[0].interface(), self.ports[1].interface()];
        self.start(&mut self.evenkeel(&[&["run", "--quiet"], &names[..], more].concat()))
    }

    /// Starts a router; it answers when this comes back.
    pub fn start(&self, command: &mut Command) -> Running {
        let log = self.bed.path("log");
        let running = Running::logged(command, &log);
        wait_reporting("the router answers", || self.ask(&["status"]).status.success(), || testbed::log(&log));
        running
    }

    pub fn status(&self) -> Value {
        json(&self.ask(&["status", "--json"]))
    }

    pub fn is_in(&self, mode: &str) -> bool {
        self.status()["mode"] == mode
    }

    pub fn forwarded(&self) -> u64 {
        let ports = self.status();
        ports["ports"].as_array().unwrap().iter().map(|port| port["totals"]["forwarded"].as_u64().unwrap()).sum()
    }

    /// Whether `b` answers `a`.
    pub fn crosses(&self) -> bool {
        let mut ping = self.a.space().command("ping");
        ping.args(["-c", "1", "-W", "1", "198.18.2.2"]).output().unwrap().status.success()
    }
}
