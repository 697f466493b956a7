//! Messages there and back, between two threads that have a CPU each.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use model::link_bench::PingRound;

use super::{
    MessagesError,
    end::{End, pin},
};

/// Messages per warm-up message.
const WARM_UP_DIVISOR: u32 = 10;

/// Exchanges so many messages.
pub(super) fn pings(
    [mut here, mut there]: [Box<dyn End>; 2],
    cpus: [u32; 2],
    bytes: u32,
    count: u32,
) -> Result<PingRound, MessagesError> {
    let all = with_warm_up(count);
    let done = AtomicBool::new(false);
    let (times, echoed) = thread::scope(|scope| {
        let done = &done;
        let echo = scope.spawn(move || {
            pin(cpus[1])?;
            echo(&mut *there, bytes, all)?;
            while !done.load(Ordering::Acquire) {
                there.serve()?;
                thread::yield_now();
            }
            Ok(())
        });
        let ask = scope.spawn(move || {
            let options = pin(cpus[0]).and_then(|()| ask(&mut *here, bytes, all));
            done.store(true, Ordering::Release);
            options
        });
        (ask.join(), echo.join())
    });
    let echoed: Result<(), MessagesError> = echoed.map_err(|_| MessagesError::Panicked("the end that answers"))?;
    let times = times.map_err(|_| MessagesError::Panicked("the end that asks"))??;
    echoed?;
    Ok(round(times, count))
}

/// So many messages, and those that go before.
pub(super) fn with_warm_up(count: u32) -> u32 {
    count + count / WARM_UP_DIVISOR + 1
}

/// Sends each of so many messages back.
pub(super) fn echo(end: &mut dyn End, bytes: u32, count: u32) -> Result<(), MessagesError> {
    let mut place = vec![0; bytes as usize];
    for _ in 0..count {
        end.receive(&mut place)?;
        end.send(&place)?;
    }
    Ok(())
}

/// Statistics of the last `count` times.
pub(super) fn round(mut times: Vec<u64>, count: u32) -> PingRound {
    let mut counted = times.split_off(times.len() - count as usize);
    counted.sort_unstable();
    let rank = |percent: usize| counted[(counted.len() * percent).div_ceil(100).max(1) - 1];
    PingRound { samples: count, min_ns: counted[0], p50_ns: rank(50), p99_ns: rank(99) }
}

/// Sends so many messages, each once the one before is back; how long each took, in nanoseconds.
pub(super) fn ask(end: &mut dyn End, bytes: u32, count: u32) -> Result<Vec<u64>, MessagesError> {
    let (mut place, mut times) = (vec![0; bytes as usize], Vec::with_capacity(count as usize));
    let mut message = vec![0x5a; bytes as usize];
    for i in 0..count {
        message[0] = i as u8;
        let began = Instant::now();
        end.send(&message)?;
        end.receive(&mut place)?;
        times.push(began.elapsed().as_nanos() as u64);
        if place != message {
            return Err(MessagesError::Changed(i));
        }
    }
    Ok(times)
}
