//! Choice of how challenged SYNs are answered in front of this machine.
//!
//! By cookies where nothing but the kernel's TCP sees the SYN. Netfilter would see no SYN and no SYN-ACK of such a connection: its first packet is the
//! ACK, which rules about new connections drop, and which address translation does not know. Where netfilter has rules, sources are authenticated
//! instead, and the kernel makes the connection of the SYN that follows, with all that its rules say about it. So they are where this machine
//! forwards: a cookie ends at a listener of this machine, and the hosts behind it would be left to the flood.
//!
//! Where no program can make the connection of a right ACK (before Linux 6.9, in generic mode, with drivers that take no metadata), the kernel does by
//! itself, as with its own cookies, while a listener's queue is full.

use std::{fs, time::Duration};

use bpf::{
    ProgramError, XdpError, XdpMode,
    filter::{CookieMode, GatewayCookies, HostCookies, SourceCookies},
};
use host::{interface::Wiring, stack::Hooks};
use model::{
    clock::monotonic_ns,
    shield::{ChallengeMethod, ChallengeStatus},
};

use super::settings::Settings;
use crate::error::ShieldError;

/// Handshakes that were begun by cookies are let end for so long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The chosen way and its reason; reviewed while the shield runs.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) hooks: Hooks,
    pub(super) now: Option<ChallengeStatus>,
    /// Until then, by the monotonic clock, cookies of before are let in; 0: none are.
    pub(super) until_ns: u64,
}

impl Choice {
    /// The choice for these settings. Between two interfaces there is none.
    pub(super) fn start(settings: &Settings) -> Self {
        let mut choice = Self { hooks: Hooks::open(), now: None, until_ns: 0 };
        choice.now = choice.look(settings, false);
        choice
    }

    /// Chooses by what is there now. `unmarked`: right ACKs were lost because the driver takes no metadata.
    pub(super) fn look(&mut self, settings: &Settings, unmarked: bool) -> Option<ChallengeStatus> {
        if settings.between.is_some() {
            return None;
        }
        let generic = settings.mode == XdpMode::Generic;
        Some(choose(&mut self.hooks, &settings.interface, generic, unmarked))
    }

    pub(super) fn is_cookies(&self) -> bool {
        self.now.as_ref().is_some_and(|now| now.method == ChallengeMethod::Cookies)
    }

    /// Cookies that were sent before are let in for a while.
    pub(super) fn let_handshakes_end(&mut self) {
        self.until_ns = monotonic_ns() + HANDSHAKE_TIMEOUT.as_nanos() as u64;
    }

    /// Returns whether cookies of before are let in.
    pub(super) fn lets_handshakes_end(&self) -> bool {
        self.until_ns > monotonic_ns()
    }

    pub(super) fn mode(&self, settings: &Settings) -> Result<CookieMode, ShieldError> {
        if settings.between.is_some() {
            return Ok(CookieMode::Gateway(GatewayCookies::default()));
        }
        let host = HostCookies::of(&settings.interface)?;
        Ok(match self.now.as_ref().map(|now| now.method) {
            Some(ChallengeMethod::Cookies) => CookieMode::Host(host),
            Some(ChallengeMethod::KernelCookies) => CookieMode::Kernel(host),
            Some(ChallengeMethod::Sources) | None => {
                let known_s = GatewayCookies::default().known_s;
                CookieMode::Sources(SourceCookies { known_s, until_ns: self.until_ns, host })
            }
        })
    }
}

/// Returns how SYNs would be answered in front of an interface of this machine, for checks that name no interface.
pub fn challenge_here() -> ChallengeStatus {
    choose(&mut Hooks::open(), "", false, false)
}

fn choose(hooks: &mut Hooks, interface: &str, generic: bool, unmarked: bool) -> ChallengeStatus {
    let sources = |why: String| ChallengeStatus { method: ChallengeMethod::Sources, reason: why };
    match hooks.look(interface) {
        Ok(None) => {}
        Ok(Some(what)) => return sources(what),
        Err(error) => return sources(format!("netfilter's rules cannot be read ({error})")),
    }
    if let Some(setting) = forwards(interface) {
        return sources(format!("this machine forwards packets ({setting}=1), and hosts behind it are protected too"));
    }
    if let Some(master) = master(interface) {
        return sources(format!("{interface} is a port of {master}, which hands packets to the sockets"));
    }
    match HostCookies::kernel_needs(interface) {
        Ok(()) => {}
        Err(XdpError::Unsupported { .. }) => return sources("net.ipv4.tcp_syncookies is 0".to_owned()),
        Err(error) => return sources(error.to_string()),
    }
    let kernel = |why: String| ChallengeStatus { method: ChallengeMethod::KernelCookies, reason: why };
    match HostCookies::needs(interface) {
        Ok(()) => {}
        Err(XdpError::Program(ProgramError::Kernel { function, since, .. })) => {
            return kernel(format!("making connections from SYN cookies in XDP takes {function} (Linux {since})"));
        }
        Err(error) => return sources(error.to_string()),
    }
    if generic {
        return kernel("generic XDP cannot tell the kernel which ACK is valid".to_owned());
    }
    if unmarked {
        return kernel(format!(
            "the driver of {interface} passes no XDP metadata, which tells the kernel which ACK is valid"
        ));
    }
    let why = "no netfilter rules apply between the interface and the sockets".to_owned();
    ChallengeStatus { method: ChallengeMethod::Cookies, reason: why }
}

/// The bridge, bond or VRF that the interface is a port of; none: it is of none, or there is no such interface.
pub(super) fn master(interface: &str) -> Option<String> {
    Wiring::read().ok()?.master(interface)
}

/// The setting by which packets that `interface` receives go on to other hosts; none: they do not. IPv4 asks the interface, IPv6 the machine.
pub(super) fn forwards(interface: &str) -> Option<String> {
    let first = if interface.is_empty() { "all" } else { interface };
    let is_on = |path: String| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    if is_on(format!("/proc/sys/net/ipv4/conf/{first}/forwarding")) {
        return Some(format!("net.ipv4.conf.{first}.forwarding"));
    }
    let all = is_on("/proc/sys/net/ipv6/conf/all/forwarding".to_owned());
    all.then(|| "net.ipv6.conf.all.forwarding".to_owned())
}
