//! A neighbour that is a guest: QEMU with stress-ng in it, or a router in it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use guest::{Accel, Guest, Kernel, Nic, Root, Settings};
use tempfile::NamedTempFile;
use wire::FrameSize;

use super::{
    kind::{Kind, Neighbour},
    traffic::{End, FRAME_BYTES},
};
use crate::{
    BenchError,
    guest::{bed::Bed, inside},
};

/// A guest answers within this time, also where its CPU is taken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Memory of a guest besides a neighbour's dose, in MiB.
const MEMORY_MIB: u32 = 512;
/// Memory of this machine that a guest uses besides the dose, in MB, with what QEMU has for itself.
pub(super) const OVERHEAD_MB: f64 = 1024.0;
/// The size of its disk.
const DISK_BYTES: u64 = 256 << 20;
/// Mount point of the disk in the guest.
const DISK: &str = "/mnt";
const MODULES: [&str; 2] = ["virtio_blk", "ext4"];
/// Programs that it has besides those of every guest, and the packages that bring them.
const PROGRAMS: [(&str, &str); 2] = [("stress-ng", "stress-ng"), ("mount", "mount")];
const MAKE_FILES: (&str, &str) = ("mke2fs", "e2fsprogs");
const MEBIBYTES_PER_MB: f64 = 1e6 / (1024.0 * 1024.0);

/// Parts of neighbours in guests.
#[derive(Debug)]
pub struct Guests {
    kernel: Kernel,
    root: Root,
    accel: Accel,
    /// Reason why KVM carries no guest.
    emulation_reason: Option<String>,
}

/// The program that runs it, and its package.
const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

impl Guests {
    /// Makes their root, and boots one to see whether KVM carries them.
    pub fn prepare(kernel: Kernel, evenkeel: &Path) -> Result<Self, BenchError> {
        let find = |(name, package): (&'static str, &'static str)| {
            let missing = || BenchError::Machine(format!("{name} is missing: apt install {package}"));
            sys::program::find(name.as_ref()).ok_or_else(missing)
        };
        find(MAKE_FILES)?;
        find(QEMU)?;
        let programs: Vec<PathBuf> = PROGRAMS.into_iter().map(find).collect::<Result<_, _>>()?;
        let root = Root::with(&kernel, &Nic::Virtio, evenkeel, (&programs, &MODULES))?;
        let (accel, emulation_reason) = match guest::trial(&kernel, &root) {
            Ok(_) => (Accel::Kvm, None),
            Err(why) => (Accel::Emulation, Some(host::ssh::last_words(&why.to_string()))),
        };
        Ok(Self { kernel, root, accel, emulation_reason })
    }

    /// Describes the guests in a sentence.
    pub(super) fn note(&self) -> String {
        let by = match &self.emulation_reason {
            None => "run by KVM".to_owned(),
            Some(why) => format!(
                "emulated (QEMU's TCG), since KVM carries none here ({why}): they take the same CPU time and do less with it, so a guest's `traffic` may be less than its dose"
            ),
        };
        format!("Neighbours in a guest: QEMU in the control group, Linux {}, {by}", self.kernel.release)
    }
}

/// A guest that is a neighbour. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Neighbouring {
    guest: Guest,
    bed: Option<Bed>,
    _disk: Option<NamedTempFile>,
    is_working: bool,
}

impl Neighbouring {
    /// Starts one by the words `within`, which put it into its group; it does nothing yet.
    pub(super) fn start(guests: &Guests, neighbour: Neighbour, within: Vec<String>) -> Result<Self, BenchError> {
        let bed = match neighbour.kind {
            Kind::Traffic if neighbour.dose > 0.0 => Some(Bed::new(&Nic::Virtio)?),
            _ => None,
        };
        let disk = if neighbour.writes_files() { Some(disk()?) } else { None };
        let settings = Settings {
            nic: Nic::Virtio,
            cards: bed.as_ref().map_or_else(Vec::new, Bed::cards),
            accel: guests.accel,
            cpus: neighbour.processors(),
            memory_mib: MEMORY_MIB + (neighbour.memory_mb() * MEBIBYTES_PER_MB).ceil() as u32,
            traced: false,
            namespace: bed.as_ref().map(|bed| bed.space.path()),
            within,
            disk: disk.as_ref().map(|disk| disk.path().to_owned()),
        };
        let mut guest = Guest::start(&settings, &guests.kernel, &guests.root, ANSWER_TIMEOUT)?;
        if disk.is_some() {
            inside::checked(&mut guest, &["mount", "-t", "ext4", "/dev/vda", DISK])?;
        }
        Ok(Self { guest, bed, _disk: disk, is_working: false })
    }

    /// Has it do its work; what is to be sent through it, if it is a router.
    pub(super) fn begin(&mut self, neighbour: Neighbour) -> Result<Option<Vec<End>>, BenchError> {
        if let Some(bed) = &self.bed {
            inside::route(&mut self.guest, bed)?;
            let ends = bed.both_ways(FrameSize::with_fcs(FRAME_BYTES))?;
            return Ok(Some(ends.map(|(index, frame)| (bed.space.handle(), index, frame)).into()));
        }
        let folder = Path::new(if neighbour.writes_files() { DISK } else { "/tmp" });
        if let Some(words) = neighbour.stress(folder) {
            let words: Vec<&str> = ["stress-ng"].into_iter().chain(words.iter().map(String::as_str)).collect();
            self.guest.begin(&words)?;
            self.is_working = true;
        }
        Ok(None)
    }

    /// Fails if it has ended, or its work has.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        if self.is_working && !self.guest.is_running()? {
            let ran = self.guest.end(ANSWER_TIMEOUT)?;
            let message = host::ssh::last_words(&[ran.stdout, ran.stderr].concat());
            return Err(BenchError::Machine(format!("the neighbour in a guest ended with {}: {message}", ran.code)));
        }
        Ok(())
    }
}

/// A disk with an empty file system.
fn disk() -> Result<NamedTempFile, BenchError> {
    let failed = |e: std::io::Error| BenchError::Machine(format!("cannot make a disk for a guest: {e}"));
    let name = host::owner::name("bench", "disk");
    let file = tempfile::Builder::new().prefix(&format!("{name}-")).tempfile().map_err(failed)?;
    file.as_file().set_len(DISK_BYTES).map_err(failed)?;
    let done = sys::program::command(MAKE_FILES.0).args(["-q", "-F", "-t", "ext4"]).arg(file.path()).output();
    let done = done.map_err(failed)?;
    if !done.status.success() {
        let message = host::ssh::last_words(&String::from_utf8_lossy(&done.stderr));
        return Err(BenchError::Machine(format!("cannot make a disk for a guest: {message}")));
    }
    Ok(file)
}
