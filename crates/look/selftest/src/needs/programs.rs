//! Trials of programs of other packages that verbs start.

use std::{ffi::OsStr, time::Duration};

use sys::{privilege::Capability, program};

use crate::{
    Place, process,
    trial::{Need, Tried, words},
};

/// Time within which a program prints its version.
const TIMEOUT: Duration = Duration::from_secs(5);
const TABLE: &str = "ekselftest";

pub(super) const NEEDS: &[Need] = &[
    Need {
        name: "nft",
        verbs: &["doctor", "route"],
        capabilities: &[],
        trial: |_| version("nft", "--version"),
        fix: "install the package nftables",
    },
    Need {
        name: "a table of nftables",
        verbs: &["shield", "route", "bench"],
        capabilities: &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN],
        trial: table,
        fix: "install nftables; boot a kernel with CONFIG_NF_TABLES (modprobe nf_tables)",
    },
    Need {
        name: "ip",
        verbs: &["bench"],
        capabilities: &[],
        trial: |_| version("ip", "-V"),
        fix: "install the package iproute2",
    },
    Need {
        name: "ssh",
        verbs: &["doctor --nodes", "link check", "link bench"],
        capabilities: &[],
        trial: |_| version("ssh", "-V"),
        fix: "install the package openssh-client",
    },
];

fn version(name: &str, flag: &str) -> Result<Tried, String> {
    if program::find(OsStr::new(name)).is_none() {
        return Err(format!("there is no program `{name}`"));
    }
    let ran = process::run(program::command(name).arg(flag), TIMEOUT).map_err(words)?;
    match ran.code {
        Some(0) => Ok(Tried::works(ran.last_words())),
        _ => Err(ran.last_words()),
    }
}

fn table(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    for action in ["add", "delete"] {
        let ask = || process::run(program::command("nft").args([action, "table", "inet", TABLE]), TIMEOUT);
        let ran = bed.middle.run(ask).map_err(words)?.map_err(words)?;
        if ran.code != Some(0) {
            return Err(ran.last_words());
        }
    }
    Ok(Tried::works(""))
}
