//! Cost of open and of used connections of one node to others.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

use super::{
    MessagesError,
    end::{MESSAGE_TIMEOUT, PORT},
};
use crate::bridged::{Bridged, connected};
use link::{Engine, Handle, Raw};

/// Time without messages in which processor time is counted.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// Longest sleep of a node.
const SLEEP_MAX: Duration = Duration::from_secs(1);
const MESSAGE_BYTES: usize = 64;

/// Cost of many connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub(super) end_bytes: f64,
    pub(super) used_end_bytes: f64,
    pub(super) idle_cpu: f64,
    pub(super) message_cpu_ns: f64,
}

/// Opens so many connections from one node to `nodes` others, and uses each once.
pub(super) fn crowd(connections: u32, nodes: u32) -> Result<Costs, MessagesError> {
    let bed = Bridged::new("crowd", nodes + 1)?;
    let mut engines = Vec::new();
    for place in &bed.places {
        engines.push(place.engine()?);
    }
    let mut one = engines.remove(0);
    let before = resident()?;
    let ours = join(&mut one, &mut engines, connections as usize)?;
    let open = resident()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let echoes: Vec<_> = engines.into_iter().map(|engine| scope.spawn(move || echo(engine, stop))).collect();
        let mut work = || {
            // Workload opening them left to do is done.
            idle(&mut one, SLEEP_MAX)?;
            let began = spent()?;
            idle(&mut one, IDLE_TIME)?;
            let idle_cpu = (spent()? - began).as_secs_f64() / IDLE_TIME.as_secs_f64();
            let began = spent()?;
            let (message, mut place) = ([0x5a; MESSAGE_BYTES], [0; MESSAGE_BYTES]);
            for &handle in &ours {
                one.send(handle, &message)?;
                let sent = Instant::now();
                while one.receive(handle, &mut place)?.is_none() {
                    if one.wait(Duration::ZERO, SLEEP_MAX)? == 0 && sent.elapsed() > MESSAGE_TIMEOUT {
                        return Err(MessagesError::Silent("link"));
                    }
                }
            }
            let message_cpu_ns = (spent()? - began).as_secs_f64() * 1e9 / f64::from(connections);
            let used = resident()?;
            let ends = 2.0 * f64::from(connections);
            let each = |now: u64| now.saturating_sub(before) as f64 / ends;
            Ok(Costs { end_bytes: each(open), used_end_bytes: each(used), idle_cpu, message_cpu_ns })
        };
        let costs = work();
        stop.store(true, Ordering::Relaxed);
        for echo in echoes {
            echo.join().map_err(|_| MessagesError::Panicked("the end that answers"))??;
        }
        costs
    })
}

/// Connections of `one`, in turn to each of the others, which accept them.
fn join(one: &mut Engine<Raw>, others: &mut [Engine<Raw>], count: usize) -> Result<Vec<Handle>, MessagesError> {
    let each = count.div_ceil(others.len());
    for other in others.iter_mut() {
        other.listen(PORT, false, each)?;
    }
    let mut all = Vec::with_capacity(count);
    for n in 0..count {
        let at = n % others.len();
        let [ours, _] = connected(one, &mut others[at], PORT, false)?;
        all.push(ours);
    }
    Ok(all)
}

fn echo(mut engine: Engine<Raw>, stop: &AtomicBool) -> Result<(), MessagesError> {
    let mut place = [0; MESSAGE_BYTES];
    while !stop.load(Ordering::Relaxed) {
        engine.wait(Duration::ZERO, SLEEP_MAX)?;
        while let Some(handle) = engine.next_changed() {
            while engine.receive(handle, &mut place)?.is_some() {
                engine.send(handle, &place)?;
            }
        }
    }
    Ok(())
}

fn idle(engine: &mut Engine<Raw>, time: Duration) -> Result<(), MessagesError> {
    let began = Instant::now();
    while let left = time.saturating_sub(began.elapsed())
        && !left.is_zero()
    {
        engine.wait(Duration::ZERO, left.min(SLEEP_MAX))?;
    }
    Ok(())
}

/// Processor time of this process so far.
fn spent() -> Result<Duration, MessagesError> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    Ok(Duration::from(time.map_err(|e| MessagesError::system("read the processor time")(e.into()))?))
}

/// Bytes of memory that this process has.
fn resident() -> Result<u64, MessagesError> {
    let text =
        fs::read_to_string("/proc/self/smaps_rollup").map_err(MessagesError::system("read /proc/self/smaps_rollup"))?;
    let kib =
        text.lines().find_map(|line| line.strip_prefix("Anonymous:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Ok(1024 * kib.unwrap_or(0_u64))
}
