//! How a shield comes in front of an interface: anew, or taken over from a process that left one there.

use std::sync::Arc;

use bpf::{
    XdpMode,
    shield::{Shield, ShieldLink, ShieldShared},
};
use model::shield::ChallengeStatus;
use rules::file::RuleFile;

use super::{
    ahead::Ahead,
    answers::{accept, accept_no_more, accepted, challenges, cookies, know_connections},
    challenge::Choice,
    guard::{Guard, replace},
    heart::Heart,
    interface,
    left::Left,
    lock::{Lock, lock},
    machine,
    making::{Making, own_addresses},
    memory::{Memory, write_memory},
    settings::Settings,
    watch::{Counting, Plan},
    whose::whose,
};
use crate::{
    between::{self, Sides, Way},
    error::ShieldError,
};

impl Guard {
    /// Puts a shield with the rules of `file` in front of the interface, or takes over the one that a process left there: then its rules
    /// hold until the new ones are ready, and counters go on. `file` is what `settings.source` said when it was read and judged; it is
    /// not read again until a reload.
    ///
    /// # Errors
    /// Rules that are wrong, an interface that has a shield or another XDP program, what the kernel refuses.
    pub fn start(settings: Settings, file: RuleFile) -> Result<Self, ShieldError> {
        machine::same_clock()?;
        let notes: Vec<String> = machine::bpf_file_system(settings.places.bpf_file_system())?.into_iter().collect();
        let mounted = !notes.is_empty();
        let places = settings.places.clone();
        Self::alone(settings, file, notes).inspect_err(|_| {
            if mounted {
                // The failure itself is what is told.
                let _ = machine::unmount(places.bpf_file_system());
            }
        })
    }

    /// When nobody else has the interface.
    fn alone(settings: Settings, file: RuleFile, notes: Vec<String>) -> Result<Self, ShieldError> {
        match &settings.between {
            Some(pair) => between::is_free(pair, &settings.places)?,
            None => whose(&settings.interface, &settings.places).map_or(Ok(()), Err)?,
        }
        settings.places.make()?;
        let mut lock = Some(lock(&settings)?);
        let left = Left::find(&settings)?;
        let fresh = left.is_none();
        let places = settings.places.clone();
        Self::begin(settings, file, left, &mut lock, notes).inspect_err(|_| {
            // Whoever has the lock may remove what is there.
            if fresh && lock.is_some() {
                // The failure itself is what is told.
                let _ = places.remove();
            }
        })
    }

    fn begin(
        settings: Settings,
        mut file: RuleFile,
        left: Option<Left>,
        lock: &mut Option<Lock>,
        mut notes: Vec<String>,
    ) -> Result<Self, ShieldError> {
        if let Some(pair) = &settings.between {
            // With what was left, the link state goes on to be carried over; without, it begins anew.
            if left.is_none() {
                between::bring_up(pair, &settings.places.state)?;
            }
            notes.extend(between::check(pair, way(settings.mode), left.is_some())?);
        }
        notes.extend(interface::fit(&settings, &mut file)?);
        let (shared, links, memory) = match left {
            Some(Left { shared, link, second, memory, lost }) => {
                notes.extend(lost);
                (shared, Some((link, second)), memory)
            }
            None => {
                let mut shared = ShieldShared::create()?;
                shared.pin(&settings.places.pins)?;
                (Arc::new(shared), None, Memory::default())
            }
        };
        let heart = Heart::start(Arc::clone(&shared))?;
        let host = interface::host(&settings, &file);
        let mut choice = Choice::start(&settings);
        if !choice.is_cookies() && accepted(&settings) {
            choice.let_handshakes_end();
        }
        let cookies = challenges(&file).then(|| cookies(&settings, &choice)).transpose()?;
        let plan = Plan::of(None, &settings.interface, &file, &settings.places, Counting::Kernel, &mut notes)?;
        let own = own_addresses(&settings)?;
        let mut ahead = Ahead::new(&file.rules.protected);
        let mut made = Making {
            ahead: &mut ahead,
            urgent: false,
            settings: &settings,
            shared: &shared,
            file: &file,
            extra: &[],
            own: &own,
            memory,
            cookies: cookies.clone(),
            choice: &choice,
            watch: plan.config(None),
        };
        let (shield, read_at, job) = made.shield()?;
        let memory = made.memory;
        write_memory(&settings.places, &memory)?;
        let sides = match &settings.between {
            Some(pair) => Some(Sides::start(pair, true, &settings.places.state)?),
            None => None,
        };
        // Before the program that has it make connections: an ACK that it does not find would be answered by a RST.
        let ack = accept(&settings, cookies.as_ref(), &choice)?;
        let (link, second) = match links {
            Some((mut link, mut second)) => {
                replace(&mut link, second.as_mut(), &shield)?;
                (link, second)
            }
            None => attach(&shield, &settings)?,
        };
        let mut watchman = None;
        // It is the first.
        let _ = plan.carry_out(&mut watchman);
        if ack.is_none() {
            accept_no_more(&settings)?;
        }
        if let Err(error) = know_connections(cookies.as_ref(), challenges(&file)) {
            notes.push(error.to_string());
        }
        ahead.begin(job)?;
        let mut guard = Self {
            settings,
            shared,
            link,
            second,
            sides,
            cookies,
            choice,
            host,
            ack,
            file,
            memory,
            extra: Vec::new(),
            own,
            ahead,
            watchman,
            read_at,
            reloads: 0,
            refused: None,
            notes,
            heart,
            _lock: lock.take(),
        };
        let challenge = guard.challenge().map(ChallengeStatus::text);
        guard.notes.extend(challenge);
        Ok(guard)
    }
}

/// Puts the program in front of the interface, or of both.
fn attach(shield: &Shield, settings: &Settings) -> Result<(ShieldLink, Option<ShieldLink>), ShieldError> {
    let link = shield.attach(&settings.interface, settings.mode)?;
    let Some(pair) = &settings.between else {
        link.pin(&settings.places.link())?;
        return Ok((link, None));
    };
    let second = shield.attach(&pair.second, settings.mode)?;
    // Some drivers take frames only once they run a program.
    if settings.mode == XdpMode::Native {
        between::takes_frames(pair)?;
    }
    // Where the first one is, the second one is too.
    second.pin(&settings.places.second_link())?;
    link.pin(&settings.places.link())?;
    Ok((link, Some(second)))
}

fn way(mode: XdpMode) -> Way {
    match mode {
        XdpMode::Generic => Way::Generic,
        XdpMode::Native | XdpMode::Offload => Way::Native,
    }
}
