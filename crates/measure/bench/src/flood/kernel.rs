//! The protections that come with the kernel.

use std::{io::Write, net::SocketAddr, process::Stdio};

use lab::NamespaceHandle;

use super::{
    addresses::Addresses,
    protection::{About, Counter, Place, Protecting, Protection},
};
use crate::BenchError;

/// SYNs per second that the limit at ingress lets in.
const LIMIT_PPS: u32 = 50_000;
/// SYNs at once.
const LIMIT_BURST: u32 = 5_000;
/// The table of our rules.
const TABLE: &str = "ek_flood";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelMode {
    None,
    /// SYN cookies once the queue is full: the kernel's default.
    Plain,
    Cookies,
    /// A limit at the ingress hook of nftables.
    NftIngress,
    SynProxy,
}

/// All of them, the least protection first.
pub(super) const KERNEL_MODES: [KernelMode; 5] =
    [KernelMode::None, KernelMode::Plain, KernelMode::Cookies, KernelMode::NftIngress, KernelMode::SynProxy];

impl KernelMode {
    /// Sysctls, without the prefix `net.`.
    fn sysctls(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::None => vec![("ipv4.tcp_syncookies", "0")],
            Self::Plain | Self::NftIngress => vec![("ipv4.tcp_syncookies", "1")],
            Self::Cookies => vec![("ipv4.tcp_syncookies", "2")],
            Self::SynProxy => vec![("ipv4.tcp_syncookies", "1"), ("ipv4.tcp_timestamps", "1")],
        }
    }

    /// Rules for `nft -f`, if any.
    fn rules(self, interface: &str, server: SocketAddr) -> Option<String> {
        let port = server.port();
        // What is left of the link's MTU of 1500 bytes.
        let (family, mss) = if server.is_ipv6() { ("ip6", 1440) } else { ("ip", 1460) };
        match self {
            Self::None | Self::Plain | Self::Cookies => None,
            Self::NftIngress => Some(format!(
                "table netdev {TABLE} {{\n\
                 \x20 chain in {{\n\
                 \x20   type filter hook ingress device \"{interface}\" priority filter;\n\
                 \x20   tcp dport {port} tcp flags & (syn | ack) == syn limit rate over {LIMIT_PPS}/second burst {LIMIT_BURST} packets counter drop\n\
                 \x20 }}\n\
                 }}\n"
            )),
            // As nft(8) has it.
            Self::SynProxy => Some(format!(
                "table {family} {TABLE} {{\n\
                 \x20 chain first {{\n\
                 \x20   type filter hook prerouting priority raw;\n\
                 \x20   iifname \"{interface}\" tcp dport {port} tcp flags syn notrack\n\
                 \x20 }}\n\
                 \x20 chain in {{\n\
                 \x20   type filter hook input priority filter;\n\
                 \x20   tcp dport {port} ct state invalid,untracked synproxy mss {mss} wscale 7 timestamp sack-perm\n\
                 \x20   ct state invalid counter drop\n\
                 \x20 }}\n\
                 }}\n"
            )),
        }
    }
}

impl Protection for KernelMode {
    fn about(&self) -> About {
        let limited = format!(
            "nftables lets {LIMIT_PPS} SYNs a second in at the ingress hook, whoever sends them; then the plain kernel"
        );
        match self {
            Self::None => About::new(
                "none",
                "no cookies",
                "the kernel without SYN cookies: a full queue of half-open connections drops SYNs",
            ),
            Self::Plain => About::new(
                "plain",
                "plain kernel",
                "the kernel as it comes: SYN cookies once the queue of half-open connections is full",
            ),
            Self::Cookies => About::new("cookies", "syncookies=2", "the kernel answers every SYN by a cookie"),
            Self::NftIngress => About::new("nft-ingress", "nft ingress", limited),
            Self::SynProxy => About::new(
                "synproxy",
                "nft synproxy",
                "nftables' synproxy answers SYNs and opens the connection again to the listener",
            ),
        }
    }

    fn settings(&self, ipv6: bool) -> Vec<String> {
        let sysctls = self.sysctls();
        let mut lines: Vec<String> = sysctls.iter().map(|(n, v)| format!("sysctl -w net.{n}={v}")).collect();
        lines.extend(self.rules("IN", Addresses::new(ipv6).server).iter().flat_map(|r| r.lines()).map(str::to_owned));
        lines
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Protecting>, BenchError> {
        for (name, value) in self.sysctls() {
            place.host.set_sysctl(&format!("net.{name}"), value)?;
        }
        let rules = self.rules(place.interface, place.server);
        if let Some(rules) = &rules {
            load(place.host, rules)?;
        }
        if *self == Self::SynProxy {
            // It is there once connections are tracked: an ACK must not become a connection by itself.
            place.host.set_sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")?;
        }
        Ok(Box::new(Working { mode: *self, host: place.host.clone() }))
    }
}

struct Working {
    mode: KernelMode,
    host: NamespaceHandle,
}

impl Protecting for Working {
    fn counters(&mut self) -> Result<Vec<Counter>, BenchError> {
        let what = match self.mode {
            KernelMode::None | KernelMode::Plain | KernelMode::Cookies => return Ok(Vec::new()),
            KernelMode::NftIngress => "limit of nftables",
            KernelMode::SynProxy => "nftables, invalid",
        };
        let text = command(&self.host, "nft", &["list", "ruleset"])?;
        Ok(vec![Counter { what: what.to_owned(), packets: counted(&text), ended: true }])
    }

    fn stop(self: Box<Self>) -> Result<(), BenchError> {
        // The namespace goes, with all that is set in it.
        Ok(())
    }
}

/// The packets of all counters in what `nft list ruleset` says.
fn counted(ruleset: &str) -> u64 {
    let counters = ruleset.split("counter packets ").skip(1);
    counters.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

pub(super) fn load(host: &NamespaceHandle, rules: &str) -> Result<(), BenchError> {
    let failed = |why: String| BenchError::Machine(format!("nft does not take the rules of the lab: {why}"));
    let fed = host.run(|| {
        let mut nft = sys::program::command("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = nft.stdin.take() {
            stdin.write_all(rules.as_bytes())?;
        }
        nft.wait_with_output()
    })?;
    let output = fed.map_err(|e| failed(format!("{e}; install nftables")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Runs a program in a namespace; its error text is the error.
pub(super) fn command(ns: &NamespaceHandle, program: &str, arguments: &[&str]) -> Result<String, BenchError> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = ns
        .run(|| sys::program::command(program).args(arguments).output())?
        .map_err(|error| BenchError::Machine(format!("cannot run `{}`: {error}; install {program}", shown())))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(BenchError::Machine(format!("`{}` in the lab: {}", shown(), why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_what_nft_says() {
        let text = "limit rate over 5/second counter packets 17 bytes 680 drop\n ct state invalid counter packets 3 bytes 1 drop";
        assert_eq!((counted(text), counted("")), (20, 0));
    }
}
