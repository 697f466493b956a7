//! The maps of a chain: made with it, or found by its resident program.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, OpenObject, libbpf_sys, skel::Skel};

use super::{
    PROGRAM, Place, raw,
    state::{STATE, state_bytes},
};
use crate::{
    link::XdpError,
    program::to_io,
    skel::{chain::ChainSkelBuilder, chain_cross::ChainCrossSkelBuilder, chain_none::ChainNoneSkelBuilder},
};

/// Rules' names by counter, and what follows behind each place.
pub(super) const NAMES: &str = "ek_names";
pub(crate) const RESTS: &str = "ek_rests";
/// Index of the programs of [`RESTS`] while nothing calls them: CHAIN_KEPT.
const KEPT: u32 = Place::ALL.len() as u32;

/// The programs that go on behind each place.
pub(super) type Rests = Vec<(Place, OwnedFd)>;

/// The maps of the resident program by position: in the order of its instructions, and then of what [`Maps::create`] binds to it.
fn order() -> [&'static str; 10] {
    let [before, filter, behind, crossing, route, link, end] = Place::ALL.map(Place::map);
    [before, filter, behind, route, link, end, STATE, NAMES, RESTS, crossing]
}

/// Descriptors of a chain's maps. Whoever keeps that of a place which is not his own keeps it filled when its owner dies.
#[derive(Default)]
pub(crate) struct Maps(Vec<(String, MapHandle)>);

impl Maps {
    /// New ones, the resident program, which runs nowhere yet, and what follows behind each place.
    pub(super) fn create() -> Result<(Self, OwnedFd, Rests), XdpError> {
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<ChainSkelBuilder>(&mut object)?;
        open.maps.data_chain.set_value_size(state_bytes()? as u32).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let entry = PROGRAM.descriptor(skel.progs.ek_chain1.as_fd())?;
        let mut maps = Self::default();
        for map in skel.object().maps() {
            maps.keep(MapHandle::try_from(&map).map_err(failed)?)?;
        }
        let rests = [
            (Place::Before, skel.progs.ek_rest_before.as_fd()),
            (Place::Filter, skel.progs.ek_rest_filter.as_fd()),
            (Place::Behind, skel.progs.ek_rest_behind.as_fd()),
            (Place::Route, skel.progs.ek_rest_route.as_fd()),
            (Place::Link, skel.progs.ek_rest_link.as_fd()),
        ];
        let mut kept = Rests::new();
        for (place, program) in rests {
            put(maps.get(RESTS)?, KEPT + place as u32, program).map_err(|e| PROGRAM.failed("fill a map", e))?;
            kept.push((place, PROGRAM.descriptor(program)?));
        }
        // The resident program does not use them, but by it they are found.
        for name in [STATE, NAMES, RESTS, Place::Crossing.map()] {
            // SAFETY: both descriptors are alive during the call, which has no options.
            let code = unsafe { libbpf_sys::bpf_prog_bind_map(raw(&entry), raw(maps.get(name)?), std::ptr::null()) };
            if code < 0 {
                let source = io::Error::from_raw_os_error(-code);
                return Err(PROGRAM.failed("bind a map to the resident program", source).into());
            }
        }
        // Others find them by their position.
        let (ids, order) = (map_ids(raw(&entry))?, order());
        for (at, name) in order.iter().enumerate() {
            let id = maps.get(name)?.info().map_err(failed)?.info.id;
            if ids.get(at) != Some(&id) || ids.len() != order.len() {
                return Err(XdpError::setting(format!("the map {name} is not number {at} of the resident program")));
            }
        }
        Ok((maps, entry, kept))
    }

    /// Maps of the program with that id whose name `wanted` accepts. All are opened to read their names: not for the resident
    /// program of a chain ([`Maps::of_chain`]).
    ///
    /// # Errors
    /// CAP_SYS_ADMIN is missing, or the program is gone.
    pub(crate) fn of(program: u32, wanted: impl Fn(&str) -> bool) -> Result<Self, XdpError> {
        Self::opened(program, |_| true, wanted)
    }

    /// Maps of a chain's resident program that `wanted` accepts. Others are not opened: the kernel empties a place without an owner whenever
    /// a descriptor of it is closed, a little later, when somebody may have filled it meanwhile.
    pub(super) fn of_chain(entry: u32, wanted: impl Fn(&str) -> bool) -> Result<Self, XdpError> {
        let order = order();
        Self::opened(entry, |at| order.get(at).is_some_and(|name| wanted(name)), &wanted)
    }

    fn opened(
        program: u32,
        is_opened: impl Fn(usize) -> bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, XdpError> {
        let failed =
            |operation: &'static str| move |e: libbpf_rs::Error| XdpError::from(PROGRAM.failed(operation, to_io(&e)));
        let program = libbpf_rs::Program::fd_from_id(program).map_err(failed("open (which takes CAP_SYS_ADMIN)"))?;
        let mut maps = Self::default();
        for (_, id) in map_ids(raw(&program))?.into_iter().enumerate().filter(|(at, _)| is_opened(*at)) {
            let map = MapHandle::from_map_id(id).map_err(failed("open a map (which takes CAP_SYS_ADMIN)"))?;
            if map.name().to_str().is_some_and(&wanted) {
                maps.keep(map)?;
            }
        }
        Ok(maps)
    }

    fn keep(&mut self, map: MapHandle) -> Result<(), XdpError> {
        self.0.push((map.name().to_string_lossy().into_owned(), map));
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Result<&MapHandle, XdpError> {
        let found = self.0.iter().find(|(of, _)| of == name).map(|(_, map)| map);
        found.ok_or_else(|| XdpError::setting(format!("the program has no map {name}")))
    }

    /// Takes a map out, to be kept.
    pub(crate) fn take(&mut self, name: &str) -> Result<MapHandle, XdpError> {
        let at = self.0.iter().position(|(of, _)| of == name);
        let at = at.ok_or_else(|| XdpError::setting(format!("the program has no map {name}")))?;
        Ok(self.0.swap_remove(at).1)
    }
}

/// Programs behind each place of a running chain.
pub(super) fn kept(rests: &MapHandle) -> Result<Rests, XdpError> {
    let mut kept = Rests::new();
    for place in Place::ALL {
        if let Some(id) = sits(rests, KEPT + place as u32) {
            let program = libbpf_rs::Program::fd_from_id(id);
            kept.push((place, program.map_err(|e| PROGRAM.failed("open (which takes CAP_SYS_ADMIN)", to_io(&e)))?));
        }
    }
    Ok(kept)
}

/// The ids of a program's maps, in the order in which it refers to them.
fn map_ids(program: i32) -> Result<Vec<u32>, XdpError> {
    let mut ids = [0u32; 64];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `nr_map_ids` numbers to where `map_ids` points, and into `info`; both outlive the call.
    let code = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program, &raw mut info, &raw mut len) };
    if code < 0 {
        return Err(PROGRAM.failed("ask for the maps", io::Error::from_raw_os_error(-code)).into());
    }
    Ok(ids.into_iter().take(info.nr_map_ids as usize).collect())
}

/// The id of the program at `at` of an array of programs.
pub(super) fn sits(map: &MapHandle, at: u32) -> Option<u32> {
    let id = map.lookup(&at.to_ne_bytes(), MapFlags::ANY).ok()??;
    Some(u32::from_ne_bytes(id.try_into().ok()?))
}

/// The name of what stands in a place that its owner has taken and not filled, or has left.
pub(super) const NONE: &str = "ek_none";

/// Loads what stands in a place until its owner fills it, or the kernel has emptied it.
pub(super) fn none(place: Place, rests: &MapHandle) -> Result<OwnedFd, XdpError> {
    let failed = |source| PROGRAM.refused(source);
    let mut object = MaybeUninit::uninit();
    let mut open = PROGRAM.open::<ChainNoneSkelBuilder>(&mut object)?;
    if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
        (knobs.chain_on, knobs.none_place) = (true, place as u32);
    }
    open.maps.ek_rests.reuse_fd(rests.as_fd()).map_err(failed)?;
    let skel = PROGRAM.load(open)?;
    Ok(PROGRAM.descriptor(skel.progs.ek_none.as_fd())?)
}

/// Loads what follows behind a filter that sends frames to another interface.
pub(super) fn cross(crossing: &MapHandle) -> Result<OwnedFd, XdpError> {
    let mut object = MaybeUninit::uninit();
    let mut open = PROGRAM.open::<ChainCrossSkelBuilder>(&mut object)?;
    open.maps.ek_crossing.reuse_fd(crossing.as_fd()).map_err(|e| PROGRAM.refused(e))?;
    let skel = PROGRAM.load(open)?;
    Ok(PROGRAM.descriptor(skel.progs.ek_rest_cross.as_fd())?)
}

pub(super) fn put(map: &MapHandle, at: u32, program: BorrowedFd<'_>) -> io::Result<()> {
    let update = map.update(&at.to_ne_bytes(), &raw(program).to_ne_bytes(), MapFlags::ANY);
    update.map_err(|e| to_io(&e))
}

/// Has an object that is about to be loaded use a map of the chain.
pub(super) fn lend(object: &mut OpenObject, name: &str, map: &MapHandle) -> libbpf_rs::Result<()> {
    for mut own in object.maps_mut() {
        if own.name() == name {
            own.set_value_size(map.value_size())?;
            own.reuse_fd(map.as_fd())?;
        }
    }
    Ok(())
}

/// The link by which the program with that id is on the interface with that index.
///
/// # Errors
/// CAP_SYS_ADMIN is missing, or it is not there by a link.
pub(super) fn link_of(entry: u32, index: u32) -> io::Result<OwnedFd> {
    let mut id = 0;
    loop {
        // SAFETY: the kernel writes the next number into `id`.
        let code = unsafe { libbpf_sys::bpf_link_get_next_id(id, &raw mut id) };
        if code < 0 {
            return Err(io::Error::from_raw_os_error(-code));
        }
        // SAFETY: no pointer is passed.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        if fd < 0 {
            // It went in between.
            if fd == -libc::ENOENT {
                continue;
            }
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let link = unsafe { OwnedFd::from_raw_fd(fd) };
        if is_on(link.as_fd(), entry, index) {
            return Ok(link);
        }
    }
}

fn is_on(link: BorrowedFd<'_>, entry: u32, index: u32) -> bool {
    crate::link::link_info(link).is_ok_and(|info| {
        // SAFETY: for an XDP link the kernel fills this member of the union, and zeros are valid too.
        let on = unsafe { info.__bindgen_anon_1.xdp.ifindex };
        info.type_ == libbpf_sys::BPF_LINK_TYPE_XDP && info.prog_id == entry && on == index
    })
}
