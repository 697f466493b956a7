//! The neighbours, where they run, the remedies.

use std::{fmt, path::Path, str::FromStr};

use crate::{BenchError, keyed::keyed};

/// The memory that a neighbour may have besides its dose, in MB: its program, and what the kernel counts with it.
const MEMORY_MORE_MB: f64 = 256.0;
/// The memory of the study's set, in MB.
const SET_MEMORY_MB: f64 = 1280.0;

/// Kind of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Computes. The dose is in CPUs.
    Cpu,
    /// Reads and writes files. The dose is a number of workers.
    Io,
    /// Writes memory. The dose is in MB.
    Memory,
    /// Computes, does I/O and writes memory, as the study's neighbour. The dose is in CPUs.
    Set,
    /// Sweeps the caches. The dose is a number of workers.
    Cache,
    /// Sends 512-byte frames both ways through a router of its own. The dose is in Mbit/s each way.
    Traffic,
}

keyed! {
    Kind: Cpu "cpu", Io "io", Memory "memory", Set "set", Cache "cache", Traffic "traffic";
    |word, all| format!("there is no neighbour `{word}`; there are {}", all.join(", "))
}

impl Kind {
    /// The dose without a wish, the most that is taken, and its unit.
    fn doses(self) -> (f64, f64, &'static str) {
        match self {
            Self::Cpu => (1.0, 64.0, "CPUs"),
            Self::Io | Self::Cache => (1.0, 64.0, "workers"),
            Self::Memory => (1024.0, 1_000_000.0, "MB"),
            Self::Set => (2.0, 64.0, "CPUs"),
            Self::Traffic => (100.0, 1000.0, "Mbit/s"),
        }
    }
}

/// A neighbour and its dose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    pub kind: Kind,
    /// The load. With 0 the neighbour is there and does nothing.
    pub dose: f64,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.key(), self.dose)
    }
}

impl FromStr for Neighbour {
    type Err = BenchError;

    /// `KIND` or `KIND:DOSE`.
    fn from_str(text: &str) -> Result<Self, BenchError> {
        let (word, dose) = text.split_once(':').map_or((text, None), |(word, dose)| (word, Some(dose)));
        let kind: Kind = word.parse()?;
        let (usual, most, unit) = kind.doses();
        let dose = dose.map_or(Ok(usual), |dose| {
            let wrong = || {
                BenchError::Setting(format!(
                    "the dose of {word} is 0 to {most} {unit}, such as {word}:{usual}, not `{dose}`"
                ))
            };
            dose.parse().ok().filter(|dose| (0.0..=most).contains(dose)).ok_or_else(wrong)
        })?;
        Ok(Self { kind, dose })
    }
}

impl Neighbour {
    /// The most CPU time that it may have, in CPUs; none: as much as it gets.
    pub(super) fn cpus(&self) -> Option<f64> {
        matches!(self.kind, Kind::Cpu | Kind::Set).then_some(self.dose)
    }

    /// The memory that it writes, in MB.
    pub(super) fn memory_mb(&self) -> f64 {
        match self.kind {
            Kind::Memory => self.dose,
            Kind::Set if self.dose > 0.0 => SET_MEMORY_MB,
            _ => 0.0,
        }
    }

    /// True if the neighbour's work has files.
    pub(super) fn writes_files(&self) -> bool {
        matches!(self.kind, Kind::Io | Kind::Set) && self.dose > 0.0
    }

    /// The processors of a guest that does its work.
    pub(super) fn processors(&self) -> u32 {
        self.cpus().map_or(1, |cpus| cpus.ceil().max(1.0) as u32)
    }

    /// stress-ng makes its work.
    pub(super) fn needs_stress(&self) -> bool {
        self.kind != Kind::Traffic && self.dose > 0.0
    }

    /// The memory that it may have at most, in MB.
    pub(super) fn memory_most_mb(&self) -> f64 {
        self.memory_mb() + MEMORY_MORE_MB
    }

    /// The arguments of stress-ng, which writes files in `folder`; none for what is there and does nothing, and for traffic.
    pub(super) fn stress(&self, folder: &Path) -> Option<Vec<String>> {
        if !self.needs_stress() {
            return None;
        }
        let workers = self.dose.ceil().max(1.0).to_string();
        let megabytes = format!("{}m", self.memory_mb().ceil().max(1.0));
        let folder = folder.display().to_string();
        let vm = ["--vm", "1", "--vm-bytes", &megabytes, "--vm-keep", "--vm-method", "write64"];
        let words: Vec<&str> = match self.kind {
            Kind::Cpu => vec!["--cpu", &workers, "--cpu-method", "matrixprod"],
            Kind::Io => vec!["--iomix", &workers, "--iomix-bytes", "64m", "--temp-path", &folder],
            Kind::Memory => vm.to_vec(),
            Kind::Set => {
                let mut words = vec!["--cpu", "1", "--cpu-method", "matrixprod", "--io", "1", "--temp-path", &folder];
                words.extend(vm);
                words
            }
            Kind::Cache => vec!["--cache", &workers],
            Kind::Traffic => return None,
        };
        Some(words.into_iter().map(str::to_owned).collect())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Processes in a control group.
    Process,
    /// A guest of its own, in such a group.
    Guest,
}

keyed! {
    Form: Process "process", Guest "guest";
    |word, all| format!("a neighbour is a {}, not a `{word}`", all.join(" or a "))
}

/// The place of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Spot {
    /// The cores of the box.
    Box,
    /// The hardware siblings of the cores of the box.
    Sibling,
    Other,
}

keyed! {
    Spot: Box "box", Sibling "sibling", Other "other";
    |word, all| format!("a neighbour runs on {}, not on `{word}`", all.join(", "))
}

/// Protection of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Nothing: its threads are scheduled like the neighbour's.
    None,
    /// The box's threads have nice -20.
    Nice,
    /// The neighbour is confined to the other CPUs.
    Cpuset,
    /// The box's threads run before all others (SCHED_FIFO).
    Fifo,
    /// The box's receive threads (NAPI's) run on another core.
    ThreadedNapi,
    /// The neighbour has a tenth of a CPU.
    Quota,
}

keyed! {
    Remedy: None "none", Nice "nice", Cpuset "cpuset", Fifo "fifo", ThreadedNapi "threaded-napi", Quota "quota";
    |word, all| format!("there is no remedy `{word}`; there are {}", all.join(", "))
}

impl Remedy {
    /// The effect of the remedy, in a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::None => "the box's threads have nice 0, as the neighbour's",
            Self::Nice => "the box's threads have nice -20",
            Self::Cpuset => "the neighbour's control group has the CPUs that are not the box's",
            Self::Fifo => "the box's threads run before all others (SCHED_FIFO, priority 1)",
            Self::ThreadedNapi => "the box's NAPI threads run on another core",
            Self::Quota => "the neighbour's control group has a tenth of a CPU",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(text: &str) -> Neighbour {
        text.parse().unwrap()
    }

    #[test]
    fn a_dose_may_be_left_out_and_is_bounded() {
        assert_eq!(neighbour("cpu").to_string(), "cpu:1");
        assert_eq!(neighbour("memory").to_string(), "memory:1024");
        assert_eq!(neighbour("traffic:0.5").dose, 0.5);
        for wrong in ["cpu:-1", "cpu:x", "cpu:65", "cpu:NaN", "cpu:", "disk"] {
            assert!(wrong.parse::<Neighbour>().is_err(), "{wrong}");
        }
        let message = "cpu:99".parse::<Neighbour>().unwrap_err().to_string();
        assert!(message.contains("0 to 64 CPUs") && message.contains("cpu:1"), "{message}");
    }

    #[test]
    fn stress_is_what_the_dose_says() {
        let words = |text: &str| neighbour(text).stress(Path::new("/t")).map(|words| words.join(" "));
        assert_eq!(words("cpu:1.5").unwrap(), "--cpu 2 --cpu-method matrixprod");
        assert!(words("memory:300").unwrap().contains("--vm-bytes 300m"));
        assert!(words("io").unwrap().contains("--temp-path /t"));
        assert!(words("set").unwrap().contains("--vm-bytes 1280m"));
        assert_eq!((words("cpu:0"), words("set:0"), words("traffic")), (None, None, None));
        assert_eq!((neighbour("cpu:0.5").cpus(), neighbour("io").cpus()), (Some(0.5), None));
        assert_eq!((neighbour("set").memory_mb(), neighbour("set:0").memory_mb()), (1280.0, 0.0));
    }
}
