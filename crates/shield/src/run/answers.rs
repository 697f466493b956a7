//! What SYN cookies need beside the program: maps, and the program that makes connections.

use std::fs;

use bpf::shield::{CookieMode, Cookies, GatewayCookies, HostCookies, ShieldAck};

use super::{session, settings::Settings};
use crate::{
    error::ShieldError,
    rules::{Action, Rule, file::RuleFile},
};

/// Pin of the program that makes connections of right cookies.
const ACK: &str = "ack";
/// Sources of each family that a gateway remembers to exist: about 20 MB each.
const KNOWN_SOURCES: u32 = 1 << 18;

/// Whether SYN cookies are needed.
pub(super) fn challenges(file: &RuleFile) -> bool {
    challenge(&file.rules.rules)
}

/// Whether any of these asks for them.
pub(super) fn challenge(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.action == Action::Challenge)
}

/// The maps of the cookies: those that a process before this one left, or new ones.
pub(super) fn cookies(settings: &Settings) -> Result<Cookies, ShieldError> {
    let mode = match settings.between {
        None => CookieMode::Host(HostCookies::of(&settings.interface)?),
        Some(_) => CookieMode::Gateway(GatewayCookies::default()),
    };
    let pins = &settings.places.pins;
    let cookies = match Cookies::open(&settings.interface, mode.clone(), pins)? {
        Some(cookies) => cookies,
        None => {
            let cookies = Cookies::create(&settings.interface, mode, KNOWN_SOURCES)?;
            cookies.pin(pins)?;
            cookies
        }
    };
    match &settings.between {
        Some(pair) => Ok(cookies.also_for(&pair.second)?),
        None => Ok(cookies),
    }
}

/// Tells the program whether it knows all connections, whose SYNs are not answered: it sees new ones while rules challenge. To be called
/// when such rules have begun to hold, or have ended.
///
/// # Errors
/// The connections cannot be read; then the program looks for that of each SYN, which costs time under a flood and nothing else.
pub(super) fn know_connections(cookies: Option<&Cookies>, challenge: bool) -> Result<(), ShieldError> {
    let Some(cookies) = cookies.filter(|cookies| is_host(cookies)) else { return Ok(()) };
    let connected = cookies.connected()?;
    if challenge {
        return connected.renew(session::connections);
    }
    connected.doubt();
    Ok(())
}

/// Whether bits of connections that ended are in the way.
pub(super) fn is_crowded(cookies: &Cookies) -> bool {
    is_host(cookies) && cookies.connected().is_ok_and(|connected| connected.is_crowded())
}

fn is_host(cookies: &Cookies) -> bool {
    matches!(cookies.mode(), CookieMode::Host(_))
}

/// The program that makes connections of the ACKs with right cookies, kept beside the others; a gateway needs none.
pub(super) fn accept(settings: &Settings, cookies: Option<&Cookies>) -> Result<Option<ShieldAck>, ShieldError> {
    if !cookies.is_some_and(is_host) {
        return Ok(None);
    }
    let path = settings.places.pins.join(ACK);
    if path.exists() {
        if let Ok(ack) = ShieldAck::take_over(&path) {
            return Ok(Some(ack));
        }
        fs::remove_file(&path).map_err(|source| ShieldError::Place {
            operation: "remove",
            path: path.clone(),
            source,
        })?;
    }
    let ack = ShieldAck::attach(&settings.interface)?;
    ack.pin(&path)?;
    Ok(Some(ack))
}
