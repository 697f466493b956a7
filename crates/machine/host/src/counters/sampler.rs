//! Reads the counters of the live machine, again and again, at little cost: files stay open, buffers are reused, and the
//! names of ethtool statistics are asked for once.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    time::{Instant, SystemTime},
};

use sys::ethtool::{Ethtool, EthtoolError};

use super::{
    Counters, CountersError, LinkCounters, QueueNames,
    links::{LinkStats, Links},
    qstats::{Qstats, Queues},
    text,
};

/// The calendar text and the names of interfaces are asked for anew after so many readings even if nothing seems to have
/// changed: an interface may have been renamed.
const NAMES_PERIOD_SAMPLES: u32 = 10;

/// Reads the counters of the machine that this program runs on, for the network namespace in which it was opened.
#[derive(Debug)]
pub struct Sampler {
    begun: Instant,
    stat: Kept,
    softirqs: Kept,
    softnet: Kept,
    interrupts: Kept,
    links: Links,
    qstats: Option<Qstats>,
    ethtool: Option<Ethtool>,
    /// Sources that could not be opened, and why.
    unopened: Vec<String>,
    names: BTreeMap<u32, Named>,
    readings: u32,
    values: Vec<u64>,
}

#[derive(Debug)]
struct Named {
    name: String,
    /// Its ethtool statistics that count a queue; none until asked for.
    queues: Option<QueueNames>,
}

impl Sampler {
    /// Opens everything that is read later.
    ///
    /// # Errors
    /// When /proc or netlink is not to be had. Missing per-queue counters are no error.
    pub fn open() -> Result<Self, CountersError> {
        let mut unopened = Vec::new();
        let qstats = Qstats::open().unwrap_or_else(|e| {
            unopened.push(format!("per-queue counters of the kernel cannot be read: {e}"));
            None
        });
        let ethtool = Ethtool::open().map_err(|e| unopened.push(format!("per-queue counters of drivers: {e}"))).ok();
        Ok(Self {
            begun: Instant::now(),
            stat: Kept::open("/proc/stat")?,
            softirqs: Kept::open("/proc/softirqs")?,
            softnet: Kept::open("/proc/thread-self/net/softnet_stat")?,
            interrupts: Kept::open("/proc/interrupts")?,
            links: Links::open().map_err(CountersError::Netlink)?,
            qstats,
            ethtool,
            unopened,
            names: BTreeMap::new(),
            readings: 0,
            values: Vec::new(),
        })
    }

    /// Reads every counter now.
    ///
    /// # Errors
    /// When /proc or netlink fails. An interface that vanishes in between is left out.
    pub fn read(&mut self) -> Result<Counters, CountersError> {
        // The interfaces first, right after the clock: their rates are what the interval is for.
        let at = self.begun.elapsed();
        let stats = self.links.read().map_err(CountersError::Links)?;
        let mut unread = self.unopened.clone();
        let qstats = self.qstats.as_mut().map_or_else(|| Ok(BTreeMap::new()), Qstats::read).unwrap_or_else(|e| {
            unread.push(format!("per-queue counters of the kernel cannot be read: {e}"));
            BTreeMap::new()
        });
        self.name(&stats)?;
        let links = self.join(stats, qstats, &mut unread);
        let mut counters = Counters { at, when: now(), links, unread, ..Counters::default() };
        counters.cpus = text::cpu_times(self.stat.read()?);
        counters.softirqs = text::softirqs(self.softirqs.read()?);
        counters.softnet = text::softnet(self.softnet.read()?, counters.cpus.keys().copied());
        counters.interrupts = text::interrupts(self.interrupts.read()?);
        Ok(counters)
    }

    /// Learns the names of the interfaces when there are new ones.
    fn name(&mut self, stats: &BTreeMap<u32, LinkStats>) -> Result<(), CountersError> {
        let due = self.readings.is_multiple_of(NAMES_PERIOD_SAMPLES);
        self.readings = self.readings.wrapping_add(1);
        if !due && stats.keys().eq(self.names.keys()) {
            return Ok(());
        }
        let listed = nix::net::if_::if_nameindex().map_err(|e| CountersError::Names(e.into()))?;
        let mut known = std::mem::take(&mut self.names);
        for interface in &listed {
            let name = interface.name().to_string_lossy().into_owned();
            let queues = known.remove(&interface.index()).filter(|k| k.name == name && !due).and_then(|k| k.queues);
            self.names.insert(interface.index(), Named { name, queues });
        }
        Ok(())
    }

    fn join(
        &mut self,
        stats: BTreeMap<u32, LinkStats>,
        mut qstats: BTreeMap<u32, Queues>,
        unread: &mut Vec<String>,
    ) -> BTreeMap<u32, LinkCounters> {
        let mut links = BTreeMap::new();
        for (index, stats) in stats {
            let Some(named) = self.names.get_mut(&index) else { continue };
            let queues = match qstats.remove(&index) {
                Some(queues) => queues,
                None => ethtool_queues(self.ethtool.as_mut(), named, &mut self.values).unwrap_or_else(|e| {
                    // One that went away in between is no failure.
                    if !matches!(e, EthtoolError::NoInterface(_)) {
                        unread.push(e.to_string());
                    }
                    Queues::new()
                }),
            };
            links.insert(index, LinkCounters { name: named.name.clone(), stats, queues });
        }
        links
    }
}

/// The counters of the queues by ethtool; empty when the driver has none.
fn ethtool_queues(
    ethtool: Option<&mut Ethtool>,
    named: &mut Named,
    values: &mut Vec<u64>,
) -> Result<Queues, EthtoolError> {
    let Some(ethtool) = ethtool else { return Ok(Queues::new()) };
    let names = match &mut named.queues {
        Some(names) => names,
        none => none.insert(QueueNames::find(&ethtool.stat_names(&named.name)?.unwrap_or_default())),
    };
    if names.is_empty() {
        return Ok(Queues::new());
    }
    let answer = ethtool.stat_values(&named.name, values);
    if matches!(answer, Ok(true)) && values.len() == names.len() {
        return Ok(names.gather(values));
    }
    // The driver has other queues now, or fails: ask for the names again next time.
    named.queues = None;
    answer.map(|_| Queues::new())
}

fn now() -> String {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{now:.3}")
}

/// A file of /proc that stays open.
#[derive(Debug)]
struct Kept {
    path: &'static str,
    file: File,
    buffer: Vec<u8>,
}

impl Kept {
    fn open(path: &'static str) -> Result<Self, CountersError> {
        let file = File::open(path).map_err(|source| CountersError::Read { path, source })?;
        Ok(Self { path, file, buffer: vec![0; 16 << 10] })
    }

    fn read(&mut self) -> Result<&str, CountersError> {
        let failed = |source| CountersError::Read { path: self.path, source };
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(2 * filled, 0);
            }
            match self.file.read_at(&mut self.buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        std::str::from_utf8(&self.buffer[..filled]).map_err(|e| failed(io::Error::new(io::ErrorKind::InvalidData, e)))
    }
}
