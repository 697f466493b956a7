//! Resources of SYN cookies beside the program: maps, and the program that makes connections.

use std::fs;

use bpf::filter::{AckProgram, CookieMode, Cookies, HostCookies, ShieldAck};
use host::session;
use model::shield::ChallengeStatus;
use rules::{Action, Rule};

use super::{challenge::Choice, settings::Settings};
use crate::error::ShieldError;

/// Pin of the program that makes connections of right cookies.
const ACK: &str = "ack";
/// Sources of each family that are remembered to exist: about 20 MB each.
const KNOWN_SOURCES_MAX: u32 = 1 << 18;

/// The way in which challenged SYNs are answered, and what that takes beside the program.
#[derive(Debug)]
pub(super) struct SynAnswers {
    pub(super) choice: Choice,
    pub(super) cookies: Option<Cookies>,
    /// Settings that SYN-ACKs go by of the programs that were loaded last.
    pub(super) host: Option<HostCookies>,
    pub(super) ack: Option<ShieldAck>,
}

impl SynAnswers {
    pub(super) fn start(settings: &Settings) -> Self {
        let mut choice = Choice::start(settings);
        if !choice.is_cookies() && accepted(settings) {
            choice.let_handshakes_end();
        }
        Self { choice, cookies: None, host: None, ack: None }
    }

    /// The way in which challenged SYNs are answered; none: nothing challenges.
    pub(super) fn challenge(&self) -> Option<&ChallengeStatus> {
        self.choice.now.as_ref().filter(|_| self.cookies.is_some() || self.host.is_some())
    }

    /// Goes over to the way that was chosen.
    pub(super) fn change(&mut self, settings: &Settings) -> Result<(), ShieldError> {
        match self.choice.is_cookies() {
            true => self.choice.until_ns = 0,
            false if self.ack.is_some() => self.choice.let_handshakes_end(),
            false => {}
        }
        if self.cookies.is_some() {
            let cookies = cookies(settings, &self.choice)?;
            if self.ack.is_none() {
                self.ack = accept(settings, Some(&cookies), &self.choice, None)?;
            }
            self.cookies = Some(cookies);
        }
        Ok(())
    }

    /// Leaves SYNs to the kernel that would be answered by cookies, or answers them again.
    pub(super) fn withhold(&self, withhold: bool) -> Result<(), ShieldError> {
        if let Some(cookies) = &self.cookies {
            cookies.connected()?.set_withheld(withhold);
        }
        Ok(())
    }
}

/// Returns whether one of these rules challenges.
pub(super) fn challenges(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.action == Action::Challenge)
}

/// The maps of the cookies: those that a process before this one left, or new ones.
pub(super) fn cookies(settings: &Settings, choice: &Choice) -> Result<Cookies, ShieldError> {
    let mode = choice.mode(settings)?;
    let pins = &settings.paths.pins;
    let cookies = match Cookies::open(&settings.interface, mode.clone(), pins)? {
        Some(mut cookies) => {
            if !is_host(&cookies) {
                cookies.make_room(KNOWN_SOURCES_MAX, pins)?;
            }
            cookies
        }
        None => {
            let cookies = Cookies::create(&settings.interface, mode, KNOWN_SOURCES_MAX)?;
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
pub(super) fn update_connections(cookies: Option<&Cookies>, challenge: bool) -> Result<(), ShieldError> {
    let Some(cookies) = cookies.filter(|cookies| !matches!(cookies.mode(), CookieMode::Gateway(_))) else {
        return Ok(());
    };
    let connected = cookies.connected()?;
    if challenge && is_host(cookies) {
        return connected.rebuild(session::connections).map_err(|error| ShieldError::Lacking(error.to_string()));
    }
    connected.mark_incomplete();
    Ok(())
}

/// Reports that bits of ended connections fill the filter.
pub(super) fn is_saturated(cookies: &Cookies) -> bool {
    is_host(cookies) && cookies.connected().is_ok_and(|connected| connected.is_saturated())
}

fn is_host(cookies: &Cookies) -> bool {
    matches!(cookies.mode(), CookieMode::Host(_) | CookieMode::Kernel(_))
}

/// Returns whether a process before this one has left the program that makes connections of cookies.
fn accepted(settings: &Settings) -> bool {
    settings.paths.pins.join(ACK).exists()
}

/// Removes the program that makes connections of cookies.
pub(super) fn accept_no_more(settings: &Settings) -> Result<(), ShieldError> {
    let path = settings.paths.pins.join(ACK);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(ShieldError::File { operation: "remove", path, source })
        }
        _ => Ok(()),
    }
}

/// Returns whether a program makes connections of the ACKs that bring these cookies back.
pub(super) fn makes_connections(cookies: &Cookies) -> bool {
    matches!(cookies.mode(), CookieMode::Host(_))
}

/// The program that makes connections of the ACKs with right cookies, kept beside the others. Where sources are asked and where the kernel makes
/// them by itself there is none, but while handshakes end that cookies began. `loaded`: it was loaded before.
pub(super) fn accept(
    settings: &Settings,
    cookies: Option<&Cookies>,
    choice: &Choice,
    loaded: Option<AckProgram>,
) -> Result<Option<ShieldAck>, ShieldError> {
    let path = settings.paths.pins.join(ACK);
    if !cookies.is_some_and(|cookies| makes_connections(cookies) || choice.lets_handshakes_end()) {
        return Ok(None);
    }
    if path.exists() {
        if let Ok(ack) = AckProgram::load().and_then(|program| ShieldAck::take_over(program, &path)) {
            return Ok(Some(ack));
        }
        accept_no_more(settings)?;
    }
    let ack = ShieldAck::attach(loaded.map_or_else(AckProgram::load, Ok)?, &settings.interface)?;
    ack.pin(&path)?;
    Ok(Some(ack))
}
