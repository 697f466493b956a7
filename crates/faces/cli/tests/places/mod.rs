//! Places of the chain that others empty.
#![allow(unreachable_pub, reason = "test files share it")]

use std::process::Command;

use testbed::{ended, json};

fn bpftool(arguments: &[&str]) -> std::process::Output {
    Command::new("bpftool").arg("-j").args(arguments).output().unwrap()
}

/// Empties a place of the chain whose entry has this number behind its owner's back, as the kernel does after a program of others opened and closed it.
pub fn empty(entry: u32, place: &str) {
    let program = json(&bpftool(&["prog", "show", "id", &entry.to_string()]));
    let maps = program["map_ids"].as_array().unwrap().iter().map(ToString::to_string);
    let map = maps.into_iter().find(|id| json(&bpftool(&["map", "show", "id", id]))["name"] == place);
    let map = map.unwrap_or_else(|| panic!("{place} is not of the chain: {program}"));
    ended(&bpftool(&["map", "delete", "id", &map, "key", "0", "0", "0", "0"]), 0);
}
