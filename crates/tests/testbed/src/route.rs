//! `evenkeel route` between two hosts.

use std::{
    ops::Deref,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{HostsBed, Running, json, log, wait_reporting};

/// The hosts, and the program. The rules that a router left are taken off when it is dropped.
#[derive(Debug)]
pub struct RouteBed {
    program: &'static str,
    /// False: the rules go with the namespace.
    pub stops: bool,
    hosts: HostsBed,
}

impl Deref for RouteBed {
    type Target = HostsBed;

    fn deref(&self) -> &HostsBed {
        &self.hosts
    }
}

impl Drop for RouteBed {
    fn drop(&mut self) {
        if self.stops {
            // Whatever a failed test has left in the BPF file system.
            let _ = self.ask(&["stop"]);
        }
    }
}

impl RouteBed {
    /// `program` is evenkeel.
    pub fn new(program: &'static str, tag: &str) -> Option<Self> {
        Some(Self { program, stops: true, hosts: HostsBed::new(tag)? })
    }

    /// `evenkeel` with these arguments, in the router's namespace.
    pub fn evenkeel(&self, arguments: &[&str]) -> Command {
        let mut command = self.router().command(self.program);
        command.args(arguments);
        command
    }

    /// `evenkeel route`, likewise.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.evenkeel(&[&["route"], arguments].concat())
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    /// Starts a router on both interfaces; it answers when this comes back.
    #[track_caller]
    pub fn run(&self, more: &[&str]) -> Running {
        self.start(&mut self.command(&[&["run", "--quiet"], &self.ports()[..], more].concat()))
    }

    /// Likewise, by this command.
    #[track_caller]
    pub fn start(&self, command: &mut Command) -> Running {
        let file = self.bed.path("log");
        let running = Running::logged(command, &file);
        wait_reporting("the router answers", || self.ask(&["status"]).status.success(), || log(&file));
        running
    }

    #[track_caller]
    pub fn status(&self) -> Value {
        json(&self.ask(&["status", "--json"]))
    }

    #[track_caller]
    pub fn is_in(&self, mode: &str) -> bool {
        self.status()["mode"] == mode
    }

    /// Frames that the fast path forwarded.
    #[track_caller]
    pub fn forwarded(&self) -> u64 {
        let status = self.status();
        let ports = status["ports"].as_array().expect("ports").iter();
        ports.map(|port| port["totals"]["forwarded"].as_u64().expect("a number")).sum()
    }
}
