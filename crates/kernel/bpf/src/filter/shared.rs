//! The maps that go on when rules are reloaded or the program is replaced: counters, the buckets of limits, the heartbeat.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io,
    mem::{MaybeUninit, offset_of},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use libbpf_rs::{
    MapCore, MapHandle, OpenObject,
    skel::{OpenSkel, Skel},
};
use rules::tables::COUNTERS;
use sys::{map_mmap::SharedMemory, owner::trusted_folder};

use super::{
    PROGRAM,
    counts::{CPU_BYTES, ShieldCounts, read},
    seen::SeenSources,
};
use crate::{
    link::XdpError,
    program::{ProgramError, to_io},
    skel::shield::{
        ShieldSkelBuilder,
        types::{limit_bucket, limit_sources, shield_beat},
    },
};

const COUNTS: &str = ".data.sh_counts";
const BUCKETS: &str = ".data.sh_bucket";
const SOURCES: &str = ".data.sh_sources";
const SEEN: &str = ".data.sh_seen";
const BEAT: &str = ".data.sh_beat";
/// All maps that go on from one program to the next, by name.
const SHARED: [&str; 5] = [COUNTS, BUCKETS, SOURCES, SEEN, BEAT];
/// Sets of four sources that limits per source have room for: 262,144 sources in 4 MB.
const SOURCE_SETS: usize = 1 << 16;
/// Changes whenever the meaning of a shared map does.
const VERSION: u64 = 2;

/// The maps that all programs of one interface share, one after the other.
///
/// Maps that live as long as this, a program that uses them, or their pins ([`ShieldShared::pin`]).
#[derive(Debug)]
pub struct ShieldShared {
    maps: Vec<(&'static str, MapHandle)>,
    counts: SharedMemory,
    beat: SharedMemory,
    seen: SharedMemory,
    cpus: usize,
}

impl ShieldShared {
    /// New ones; the heart has beaten once.
    pub fn create() -> Result<Self, XdpError> {
        let failed = |source| PROGRAM.refused(source);
        let cpus = cpus()?;
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<ShieldSkelBuilder>(&mut object)?;
        for mut program in open.open_object_mut().progs_mut() {
            program.set_autoload(false);
        }
        for mut map in open.open_object_mut().maps_mut() {
            let size = match map.name().to_str() {
                Some(COUNTS) => cpus * CPU_BYTES,
                Some(BUCKETS) => COUNTERS * size_of::<limit_bucket>(),
                Some(SOURCES) => SOURCE_SETS * size_of::<limit_sources>(),
                Some(SEEN) => SeenSources::BYTES,
                _ => continue,
            };
            map.set_value_size(size as u32).map_err(failed)?;
        }
        let skel = PROGRAM.load(open)?;
        let mut maps = Vec::new();
        for map in skel.object().maps() {
            if let Some(&name) = SHARED.iter().find(|&&name| map.name() == name) {
                maps.push((name, MapHandle::try_from(&map).map_err(failed)?));
            }
        }
        let shared = Self::of(maps, cpus)?;
        // Odd: it is a factor of a hash.
        shared.word(offset_of!(shield_beat, seed)).store(RandomState::new().hash_one(0) | 1, Ordering::Relaxed);
        shared.word(offset_of!(shield_beat, version)).store(VERSION, Ordering::Relaxed);
        shared.beat();
        Ok(shared)
    }

    /// Keeps them under `dir`, which is made, in a BPF file system; another process finds them there. All of
    /// them, or none: what was pinned before the one that fails is taken away again.
    pub fn pin(&mut self, dir: &Path) -> Result<(), XdpError> {
        let was_there = dir.exists();
        // In a folder that all can write to, somebody else may have put a link or a folder there.
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                trusted_folder(dir).map_err(|source| XdpError::pin("use the folder", dir, source))?;
            }
            made => made.map_err(|source| XdpError::pin("make", dir, source))?,
        }
        for n in 0..self.maps.len() {
            let (name, map) = &mut self.maps[n];
            let path = path_of(dir, name);
            if let Err(e) = map.pin(&path) {
                // The first failure is what is told.
                for (name, _) in &self.maps[..n] {
                    let _ = fs::remove_file(path_of(dir, name));
                }
                if !was_there {
                    let _ = fs::remove_dir(dir);
                }
                return Err(XdpError::pin("pin a map as", &path, to_io(&e)));
            }
        }
        Ok(())
    }

    /// Opens the maps that another process pinned.
    ///
    /// # Errors
    /// [`XdpError::Pin`] if one is missing or of a version of evenkeel that had other ones.
    pub fn open(dir: &Path) -> Result<Self, XdpError> {
        let cpus = cpus()?;
        let mut maps = Vec::new();
        for name in SHARED {
            let path = path_of(dir, name);
            let map = MapHandle::from_pinned_path(&path).map_err(|e| XdpError::pin("open", &path, to_io(&e)))?;
            let expected = match name {
                COUNTS => cpus * CPU_BYTES,
                BUCKETS => COUNTERS * size_of::<limit_bucket>(),
                SOURCES => SOURCE_SETS * size_of::<limit_sources>(),
                SEEN => SeenSources::BYTES,
                _ => size_of::<shield_beat>(),
            };
            if map.value_size() as usize != expected {
                return Err(other_version(&path));
            }
            maps.push((name, map));
        }
        let shared = Self::of(maps, cpus)?;
        if shared.word(offset_of!(shield_beat, version)).load(Ordering::Relaxed) != VERSION {
            return Err(other_version(&path_of(dir, BEAT)));
        }
        Ok(shared)
    }

    fn of(maps: Vec<(&'static str, MapHandle)>, cpus: usize) -> Result<Self, XdpError> {
        let map = |wanted: &str, bytes: usize, operation| {
            let found = maps.iter().find(|(name, _)| *name == wanted);
            let (_, map) = found.ok_or_else(|| ProgramError::Setting(format!("the program has no map {wanted}")))?;
            SharedMemory::of(map.as_fd(), bytes, 0).map_err(|source| PROGRAM.failed(operation, source))
        };
        let counts = map(COUNTS, cpus * CPU_BYTES, "map the counters")?;
        let beat = map(BEAT, size_of::<shield_beat>(), "map the heartbeat")?;
        let seen = map(SEEN, SeenSources::BYTES, "map the sources that were seen")?;
        Ok(Self { maps, counts, beat, seen, cpus })
    }

    /// The heart beats: to be called more often than the heartbeat's timeout.
    pub fn beat(&self) {
        self.word(offset_of!(shield_beat, at_ns)).store(model::clock::monotonic_ns(), Ordering::Relaxed);
    }

    /// CLOCK_MONOTONIC in nanoseconds of the last beat.
    pub fn last_beat_ns(&self) -> u64 {
        self.word(offset_of!(shield_beat, at_ns)).load(Ordering::Relaxed)
    }

    /// The sources that were seen before.
    pub fn seen(&self) -> SeenSources<'_> {
        SeenSources::of(&self.seen, self.seed())
    }

    /// The ends of all packets since the maps were made, over all CPUs.
    pub fn counts(&self) -> ShieldCounts {
        self.counts_of(COUNTERS)
    }

    /// As [`ShieldShared::counts`], of the rules that count in the first `slots` alone: on a machine of many CPUs, all are megabytes.
    pub fn counts_of(&self, slots: usize) -> ShieldCounts {
        read(&self.counts, self.cpus, slots)
    }

    pub(super) fn maps(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>, u32)> {
        self.maps.iter().map(|(name, map)| (*name, map.as_fd(), map.value_size()))
    }

    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    pub(super) fn seed(&self) -> u64 {
        self.word(offset_of!(shield_beat, seed)).load(Ordering::Relaxed)
    }

    pub(super) fn source_sets(&self) -> usize {
        SOURCE_SETS
    }

    /// Has the object that is about to be loaded use these maps.
    pub(super) fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            if let Some((_, fd, size)) = self.maps().find(|(name, ..)| map.name() == *name) {
                map.set_value_size(size)?;
                map.reuse_fd(fd)?;
            }
        }
        Ok(())
    }

    fn word(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        self.beat.word(offset)
    }
}

/// A map's file: names in a BPF file system have no dots.
fn path_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(name.trim_start_matches(".data."))
}

fn other_version(path: &Path) -> XdpError {
    let why = "it was made by a version of evenkeel whose counters and limits are others: end that one first, with `evenkeel shield stop`";
    XdpError::pin("take over", path, std::io::Error::other(why))
}

/// Possible CPUs, rounded up to a power of two.
fn cpus() -> Result<usize, XdpError> {
    libbpf_rs::num_possible_cpus().map(usize::next_power_of_two).map_err(|e| PROGRAM.refused(e).into())
}
