//! A slot: a feature's place in an interface's chain, taken, filled, emptied, handed on.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use libbpf_rs::{MapCore, MapHandle, OpenObject, libbpf_sys};
use sys::interface::index;
use sys::lock_file::{LockError, LockFile, Until};

use super::{
    ENTRY, PROGRAM, Place, RuleNames, is_chain,
    maps::{self, Maps, NAMES, RESTS, Rests, cross, kept, lend, link_of, none, put, sits},
    raw,
    repair::Repairs,
    state::{ChainState, STATE, state_cpus},
};
use crate::{
    link::{Attached, XdpError, XdpLink, XdpMode, attached, link_info, program_info, program_name},
    pin,
    program::to_io,
};

/// Attempts to take a place in which a program runs, half a second of them: its owner may just be ending. On a busy machine, where it ends later, they
/// take longer.
const OCCUPIED_TRIES_MAX: u32 = 50;
/// The wait for a place that is being left or filled, as long as that for the lock: the kernel empties it on a busy CPU late, and not before the last
/// process has closed its map, such as a child of the owner's that has not come to its exec(2).
const CHANGING_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// A place in the chain of an interface, or several. Dropping it empties them, unless it is pinned ([`Slot::end`] does then too).
#[derive(Debug)]
pub struct Slot {
    pub(super) places: Vec<SlotPlace>,
    pub(super) interface: String,
    mode: XdpMode,
    link: Attachment,
    maps: SlotMaps,
    names: MapHandle,
    pub(super) state: ChainState,
    /// The programs that are called behind each place while somebody is there.
    rests: Rests,
    /// A program was put here, and the places before go on to it.
    is_called: bool,
    pinned: bool,
    pub(super) repairs: Repairs,
}

#[derive(Debug)]
pub(super) struct SlotPlace {
    pub(super) place: Place,
    pub(super) map: MapHandle,
    /// The program put into the place at the end; none: another process pinned the place, and it is loaded at the end.
    none: Option<OwnedFd>,
    /// The program that was put there last, with its id; none: none was, or it cannot be had.
    pub(super) program: Option<(OwnedFd, u32)>,
}

/// A place that another slot has.
struct Busy {
    place: Place,
    id: u32,
    /// The owner leaves the place, or has not filled it yet.
    is_changing: bool,
}

/// Reason why a place was not taken.
enum TakeError {
    Busy(Busy),
    Error(XdpError),
}

impl From<XdpError> for TakeError {
    fn from(error: XdpError) -> Self {
        Self::Error(error)
    }
}

/// State of the chain's attachment.
#[derive(Debug)]
enum Attachment {
    /// Attached together with the first program.
    Pending(OwnedFd),
    Link(XdpLink),
}

/// Maps that a program is loaded with to run in a place.
#[derive(Debug, Clone)]
pub struct SlotMaps(Arc<Held>);

#[derive(Debug)]
struct Held {
    rests: MapHandle,
    state: MapHandle,
}

impl SlotMaps {
    pub(super) fn of(rests: MapHandle, state: MapHandle) -> Self {
        Self(Arc::new(Held { rests, state }))
    }

    /// Has an object that is about to be loaded use these maps, under these names.
    pub(crate) fn lend(&self, object: &mut OpenObject, rests: &str, state: &str) -> libbpf_rs::Result<()> {
        lend(object, rests, &self.0.rests)?;
        lend(object, state, &self.0.state)
    }

    /// The value of `chain_cpus_mask` in such a program.
    pub(crate) fn cpus_mask() -> Result<u64, XdpError> {
        Ok(state_cpus()? as u64 - 1)
    }

    pub(super) fn rests_map(&self) -> &MapHandle {
        &self.0.rests
    }

    /// True if both are of one place.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The descriptor of what follows behind each place, by [`Place`].
    pub(crate) fn rests(&self) -> i32 {
        raw(&self.0.rests)
    }

    pub(crate) fn state(&self) -> Result<ChainState, XdpError> {
        ChainState::of(&self.0.state)
    }
}

impl Slot {
    /// Takes a place in the chain of `interface`; where there is none, one is made, which goes on the interface with the first program. One that
    /// is being left is waited for.
    ///
    /// # Errors
    /// [`XdpError::Occupied`] by a program that is no chain, [`XdpError::Taken`] by who sits there, [`XdpError::Leaving`], [`XdpError::OtherMode`],
    /// [`XdpError::OtherChain`]; what the kernel refuses.
    pub fn take(interface: &str, mode: XdpMode, places: &[Place]) -> Result<Self, XdpError> {
        let began = Instant::now();
        let mut occupied_tries = 0;
        loop {
            // Neither the lock nor a descriptor of the place is held meanwhile: its owner needs the one to leave, and the kernel empties the place
            // of one that was killed only without the other.
            let busy = match Self::take_now(interface, mode, places) {
                Ok(slot) => return Ok(slot),
                Err(TakeError::Error(error)) => return Err(error),
                Err(TakeError::Busy(busy)) => busy,
            };
            occupied_tries += u32::from(!busy.is_changing);
            let (interface, place, id) = (interface.to_owned(), busy.place.words(), busy.id);
            match busy.is_changing {
                true if began.elapsed() >= CHANGING_TIMEOUT => {
                    return Err(XdpError::Leaving { interface, place, id, waited_s: CHANGING_TIMEOUT.as_secs() });
                }
                false if occupied_tries >= OCCUPIED_TRIES_MAX => return Err(XdpError::Taken { interface, place, id }),
                _ => {}
            }
            if sys::lock_file::is_stopping() {
                let source = io::Error::new(io::ErrorKind::Interrupted, "this process was told to end");
                return Err(XdpError::on(&interface, "wait for a place in the chain")(source));
            }
            sleep(RETRY_PERIOD);
        }
    }

    fn take_now(interface: &str, mode: XdpMode, places: &[Place]) -> Result<Self, TakeError> {
        let lock = lock(interface, Until::Stopped)?;
        let index = index(interface).map_err(XdpError::from)?;
        let (mut maps, link, rests) = loop {
            let Some(runs) = attached(interface)? else {
                let (maps, entry, rests) = Maps::create()?;
                for other in Place::ALL.into_iter().filter(|other| !places.contains(other)) {
                    leave(maps.get(other.map())?, &none(other, maps.get(RESTS)?)?);
                }
                break (maps, Attachment::Pending(entry), rests);
            };
            let id = runs.id;
            let found = find(interface, index, mode, places, runs)
                .and_then(|(maps, link)| Ok((kept(maps.get(RESTS)?)?, maps, link)));
            match found {
                Ok(_) if lock.is_none() => {
                    let source = io::Error::new(io::ErrorKind::PermissionDenied, "this takes root's user id");
                    return Err(XdpError::on(interface, "join the chain")(source).into());
                }
                Ok((rests, maps, link)) => break (maps, Attachment::Link(link), rests),
                // It went while it was looked at.
                Err(_) if attached(interface)?.is_none_or(|now| now.id != id) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let held = Held { rests: maps.take(RESTS)?, state: maps.take(STATE)? };
        let state = ChainState::of(&held.state)?;
        for place in places {
            is_free(*place, maps.get(place.map())?, &state).map_err(TakeError::Busy)?;
        }
        let taken = |place: &Place| {
            let map = maps.take(place.map())?;
            let none = none(*place, &held.rests)?;
            Ok::<_, XdpError>(SlotPlace { place: *place, map, none: Some(none), program: None })
        };
        let places: Vec<_> = places.iter().map(taken).collect::<Result<_, _>>()?;
        let names = maps.take(NAMES)?;
        let (maps, repairs) = (SlotMaps(Arc::new(held)), Repairs::default());
        let (interface, is_called, pinned) = (interface.to_owned(), false, false);
        let slot = Self { places, interface, mode, link, maps, names, state, rests, is_called, pinned, repairs };
        slot.claim()?;
        Ok(slot)
    }

    /// Makes the places this slot's own before anything is put there.
    fn claim(&self) -> Result<(), XdpError> {
        for taken in &self.places {
            if let Some(none) = &taken.none {
                self.state.user(taken.place).store(program_info(none.as_fd()).0, Ordering::Relaxed);
                put(&taken.map, 0, none.as_fd()).map_err(XdpError::on(&self.interface, "fill a place of the chain"))?;
            }
        }
        Ok(())
    }

    /// Maps that a program for this place is loaded with.
    pub fn maps(&self) -> SlotMaps {
        self.maps.clone()
    }

    /// Puts a program in the place, or in the place of the one that is there: each frame sees one of them. The first one of a chain puts
    /// the chain on the interface. `programs`: one for each place that was taken, filled from the last one on.
    ///
    /// # Errors
    /// [`XdpError::Raced`] if another's chain came meanwhile: begin again, with [`super::retry_if_raced`]; [`XdpError::System`] with what the kernel answers, and those of [`XdpLink::attach`]; what was there goes on.
    pub fn put(&mut self, programs: &[BorrowedFd<'_>]) -> Result<(), XdpError> {
        if self.link().is_some_and(|link| !link.is_alive()) {
            let source = io::Error::from_raw_os_error(libc::ENOLINK);
            return Err(XdpError::on(&self.interface, "replace the program")(source));
        }
        let _lock = (!self.is_called).then(|| lock(&self.interface, Until::Stopped)).transpose()?;
        // Until a place is filled, it goes on to the next one: a program that others see there gets frames.
        self.call_rests()?;
        for (taken, program) in self.places.iter_mut().zip(programs).rev() {
            let (id, kept) = (program_info(*program).0, PROGRAM.descriptor(*program)?);
            put(&taken.map, 0, *program).map_err(XdpError::on(&self.interface, "fill a place of the chain"))?;
            self.state.user(taken.place).store(id, Ordering::SeqCst);
            taken.program = Some((kept, id));
            if taken.place == Place::Crossing {
                let cross = cross(&taken.map)?;
                put(&self.maps.0.rests, Place::Crossing as u32, cross.as_fd())
                    .map_err(XdpError::on(&self.interface, "fill a place of the chain"))?;
            }
        }
        if let Attachment::Pending(entry) = &self.link {
            let link = XdpLink::attach(entry.as_fd(), PROGRAM, &self.interface, self.mode).map_err(|error| {
                let is_ours = attached(&self.interface).is_ok_and(|now| now.is_some_and(|now| is_chain(&now.name)));
                if is_ours { XdpError::Raced { interface: self.interface.clone() } } else { error }
            })?;
            self.mode = link.mode();
            self.link = Attachment::Link(link);
        }
        Ok(())
    }

    /// Has the places before go on to these. Once; those who leave take it back.
    fn call_rests(&mut self) -> Result<(), XdpError> {
        if self.is_called {
            return Ok(());
        }
        let last = self.places.iter().map(|taken| taken.place).filter(|place| *place != Place::Crossing);
        let last = last.map(|place| place as u32).max().unwrap_or(0);
        for (place, program) in self.rests.iter().filter(|(place, _)| (*place as u32) < last) {
            put(&self.maps.0.rests, *place as u32, program.as_fd())
                .map_err(XdpError::on(&self.interface, "have the places before go on to this one"))?;
        }
        self.is_called = true;
        Ok(())
    }

    /// Takes back what goes on from a place behind which nobody is any more. Who was killed counts as being there: that costs little.
    /// Without the lock (not `is_alone`), others may be coming just now: what goes on to them is put back then.
    fn end_rests(&self, is_alone: bool) {
        let chain = Place::ALL.into_iter().filter(|place| *place != Place::Crossing);
        for place in chain.clone().rev() {
            // It may be empty already.
            let _ = self.maps.0.rests.delete(&(place as u32).to_ne_bytes());
            if self.has_user(place) {
                break;
            }
        }
        if !is_alone {
            let last = chain.rev().find(|place| self.has_user(*place)).map_or(0, |place| place as u32);
            for (place, program) in self.rests.iter().filter(|(place, _)| (*place as u32) < last) {
                // As good as before.
                let _ = put(&self.maps.0.rests, *place as u32, program.as_fd());
            }
        }
    }

    fn has_user(&self, place: Place) -> bool {
        self.state.user(place).load(Ordering::SeqCst) != 0
    }

    /// Ends the place although it is pinned: it is emptied here, not by the kernel some time after its last name is removed. The names of
    /// [`Slot::pin`] are removed by the caller, afterwards.
    pub fn end(mut self) {
        self.unpin();
    }

    /// Has the place end with this slot although it was pinned. The names of [`Slot::pin`] are removed by the caller.
    pub fn unpin(&mut self) {
        self.pinned = false;
    }

    /// Loads what [`Slot::empty`] needs, for a place that another process made.
    fn prepare_end(&mut self) {
        let rests = &self.maps.0.rests;
        for taken in self.places.iter_mut().filter(|taken| taken.none.is_none()) {
            taken.none = none(taken.place, rests).ok();
        }
        if self.rests.is_empty() {
            self.rests = kept(rests).unwrap_or_default();
        }
    }

    /// Takes the programs out of the places. No frame is in one of them any more afterwards.
    fn empty(&self) {
        // A process that gave up its rights, as a capture does, gets no lock.
        let lock = lock(&self.interface, Until::Timeout);
        for taken in &self.places {
            if taken.place == Place::Crossing {
                let _ = self.maps.0.rests.delete(&(Place::Crossing as u32).to_ne_bytes());
            }
            // That it is empty already is as good.
            let _ = taken.map.delete(&0u32.to_ne_bytes());
            if let Some(none) = &taken.none {
                leave(&taken.map, none);
            }
            // Last: a place that has a user is nobody else's, also while it is empty.
            self.state.user(taken.place).store(0, Ordering::SeqCst);
        }
        self.end_rests(matches!(lock, Ok(Some(_))));
    }

    /// The id of the program in the first place; 0: none.
    pub fn program_id(&self) -> u32 {
        self.places.first().and_then(|taken| sits(&taken.map, 0)).unwrap_or(0)
    }

    /// The names of the rules of this interface's shield.
    pub fn rule_names(&self) -> Result<RuleNames, XdpError> {
        RuleNames::of(&self.names)
    }

    /// The mode in which the kernel says that the chain runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The link of the chain; none: it is on no interface yet.
    pub(super) fn link(&self) -> Option<&XdpLink> {
        match &self.link {
            Attachment::Pending(_) => None,
            Attachment::Link(link) => Some(link),
        }
    }

    /// True if the interface still exists and runs the chain without programs of others in these places, or the chain waits for its first program.
    pub fn is_alive(&self) -> bool {
        self.link().is_none_or(XdpLink::is_alive) && self.intruder().is_none()
    }

    /// Reason why the chain is not alive, in words; none: it is.
    pub fn why_ended(&self) -> Option<String> {
        if self.link().is_none_or(XdpLink::is_alive) {
            return self.intruder().map(|(place, id)| {
                format!(
                    "another tool put the program `{}` (id {id}) in the place of {} in the chain of {}",
                    program_name(id),
                    place.words(),
                    self.interface
                )
            });
        }
        Some(match attached(&self.interface) {
            Err(_) => format!("{} was removed", self.interface),
            Ok(None) => {
                format!("another tool took evenkeel's program off {} (as `bpftool link detach` does)", self.interface)
            }
            Ok(Some(Attached { id, name, .. })) => format!(
                "another tool took evenkeel's program off {} (as `bpftool link detach` does); it runs the XDP program `{name}` (id {id}) now",
                self.interface
            ),
        })
    }

    /// The name that the interface has now; none: it is gone, or in another network namespace.
    pub fn interface_name(&self) -> Option<String> {
        match self.link() {
            Some(link) => link.interface_name(),
            None => Some(self.interface.clone()),
        }
    }

    /// True if this network namespace has the interface: it may have been moved to another one, where the programs go on.
    pub fn is_here(&self) -> bool {
        self.interface_name().is_some()
    }

    /// Follows the interface's new name.
    pub(crate) fn rename(&mut self, name: String) {
        self.interface = name;
    }

    /// Keeps the place as it is, and the chain, beyond the end of this process, under `path` and names that begin with it, in a BPF file
    /// system; `path` itself comes last. Of several places that were taken, the first one.
    ///
    /// # Errors
    /// [`XdpError::Pin`] with the path; a chain that is not on its interface yet cannot be kept.
    pub fn pin(&mut self, path: &Path) -> Result<(), XdpError> {
        let (Attachment::Link(link), Some(taken)) = (&self.link, self.places.first()) else {
            return Err(XdpError::pin("pin the program as", path, io::ErrorKind::NotConnected.into()));
        };
        let [place, rests, state, names] = &beside(path);
        let all = [
            (taken.map.as_fd(), place.as_path()),
            (self.maps.0.rests.as_fd(), rests),
            (self.maps.0.state.as_fd(), state),
            (self.names.as_fd(), names),
            (link.as_fd(), path),
        ];
        for (n, (fd, path)) in all.iter().enumerate() {
            if let Err(error) = pin::keep(*fd, path) {
                // The first failure is what is told.
                for (_, path) in &all[..n] {
                    let _ = fs::remove_file(path);
                }
                return Err(error);
            }
        }
        self.pinned = true;
        Ok(())
    }

    /// True if the link pinned as `path` is on no interface any more: that was removed, in whichever network namespace it was. False also where
    /// it cannot be asked.
    pub fn is_over(path: &Path) -> bool {
        let info = pin::open(path).ok().and_then(|link| link_info(link.as_fd()).ok());
        info.is_some_and(|info| {
            // SAFETY: for an XDP link the kernel fills this member of the union, and zeros are valid too.
            let on = unsafe { info.__bindgen_anon_1.xdp.ifindex };
            info.type_ == libbpf_sys::BPF_LINK_TYPE_XDP && on == 0
        })
    }

    /// The place that another process pinned as `path`, on an interface of this network namespace.
    ///
    /// # Errors
    /// [`XdpError::Pin`] if there is none, its interface is gone, or another version pinned it.
    pub fn open(path: &Path, place: Place) -> Result<Self, XdpError> {
        let link = XdpLink::adopt(pin::open(path)?).map_err(|source| XdpError::pin("take over", path, source))?;
        let (link, interface) = link;
        let [map, rests, state, names] = beside(path);
        let open = |path: &Path| MapHandle::from_pinned_path(path).map_err(|e| XdpError::pin("open", path, to_io(&e)));
        let held = Held { rests: open(&rests)?, state: open(&state)? };
        let (names, state) = (open(&names)?, ChainState::of(&held.state)?);
        let map = open(&map)?;
        // What runs there, to be put back until something else is put; without CAP_SYS_ADMIN it cannot be had.
        let program = sits(&map, 0).and_then(|id| Some((libbpf_rs::Program::fd_from_id(id).ok()?, id)));
        let places = vec![SlotPlace { place, map, none: None, program }];
        let (mode, link, maps) = (link.mode(), Attachment::Link(link), SlotMaps(Arc::new(held)));
        let repairs = Repairs::default();
        let (rests, is_called, pinned) = (Rests::new(), true, true);
        Ok(Self { places, interface, mode, link, maps, names, state, rests, is_called, pinned, repairs })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.pinned {
            self.prepare_end();
            self.empty();
        }
    }
}

/// Leaves something in a place whose descriptor is about to be closed.
fn leave(map: &MapHandle, none: &OwnedFd) {
    // Without it, only whoever comes in the next milliseconds is worse off.
    let _ = put(map, 0, none.as_fd());
}

/// The chain that `interface` runs already, and its maps as far as `places` need them.
fn find(
    interface: &str,
    index: u32,
    mode: XdpMode,
    places: &[Place],
    runs: Attached,
) -> Result<(Maps, XdpLink), XdpError> {
    let name = interface.to_owned();
    if !is_chain(&runs.name) {
        return Err(XdpError::Occupied { interface: name, attached: runs });
    }
    if runs.name != ENTRY {
        return Err(XdpError::OtherChain { interface: name, attached: runs });
    }
    if runs.mode != mode {
        let users = super::users_in_words(runs.id);
        return Err(XdpError::OtherMode { users, interface: name, runs: runs.mode, requested: mode });
    }
    let own = |name: &str| places.iter().any(|place| place.map() == name);
    let maps = Maps::of_chain(runs.id, |name| own(name) || [RESTS, STATE, NAMES].contains(&name))?;
    let link = link_of(runs.id, index);
    let link = link.map_err(XdpError::on(interface, "find the chain's link (which takes CAP_SYS_ADMIN)"))?;
    let (link, _) = XdpLink::adopt(link).map_err(XdpError::on(interface, "join the chain"))?;
    Ok((maps, link))
}

/// True if the place is free.
fn is_free(place: Place, map: &MapHandle, state: &ChainState) -> Result<(), Busy> {
    if let Some(id) = sits(map, 0) {
        let is_changing = matches!(program_name(id).as_str(), "" | maps::NONE);
        return Err(Busy { place, id, is_changing });
    }
    match state.user(place).load(Ordering::Relaxed) {
        0 => Ok(()),
        id if program_name(id).is_empty() => Ok(()),
        // Its owner will put it back, or was killed just now.
        id => Err(Busy { place, id, is_changing: true }),
    }
}

/// Lock by which chains of this network namespace are joined and left one after the other. None: this process is not root's, which makes chains and
/// joins none.
fn lock(interface: &str, until: Until) -> Result<Option<LockFile>, XdpError> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_err(XdpError::on(interface, "tell the namespace"))?;
    match LockFile::take(&format!("chain@{}", namespace.ino()), until) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.is_denied() && !nix::unistd::geteuid().is_root() => Ok(None),
        Err(error @ LockError::Held { .. }) => Err(XdpError::on(interface, "join or leave the chain")(error.into())),
        Err(error) => Err(XdpError::on(interface, "join the chain")(error.into())),
    }
}

/// The names beside that of the link: of the place, of what follows, of the state, and of the rules' names.
fn beside(path: &Path) -> [PathBuf; 4] {
    ["place", "rests", "state", "names"].map(|what| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push("_");
        name.push(what);
        path.with_file_name(name)
    })
}
