//! A stream over a wire that loses frames at random. Measured: `cargo test --release -p link --test lossy -- --ignored --nocapture`.

use std::{
    thread,
    time::{Duration, Instant},
};

use bpf::{XdpMode, lossy_wire};
use link::{Engine, Raw, State};
use testbed::{Bed, End};

const PORT: u16 = 1000;
const TIMEOUT: Duration = Duration::from_secs(10);
const WAIT_TIME: Duration = Duration::from_millis(20);

fn node(end: &End) -> Engine<Raw> {
    let open = || Raw::open_ring(end.interface(), XdpMode::Native, 4 << 20).unwrap();
    end.run(|| Engine::new(open(), end.interface()).unwrap())
}

/// Sends so many bytes over a wire that loses so many frames of a million; none: over no third node. The seconds it took.
fn stream(lost: Option<u32>, bytes: usize) -> Option<f64> {
    let bed = Bed::new("linkl", &["left", "wire", "right"])?;
    let [left, right] = match lost {
        None => bed.join(["left", "right"], 1),
        Some(lost) => {
            let [left, near] = bed.join(["left", "wire"], 1);
            let [right, far] = bed.join(["right", "wire"], 1);
            near.run(|| {
                lossy_wire(near.interface(), far.interface(), lost).unwrap();
                lossy_wire(far.interface(), near.interface(), lost).unwrap();
            });
            [left, right]
        }
    };
    let (mut a, mut b) = (node(&left), node(&right));
    b.listen(PORT, true, 1).unwrap();
    let ours = a.connect(b.carrier().address(), PORT, true).unwrap();
    let mut theirs = None;
    while theirs.is_none() || a.state(ours) != Some(State::Open) {
        a.poll().unwrap();
        b.poll().unwrap();
        theirs = theirs.or_else(|| b.accept(PORT));
    }
    let theirs = theirs.unwrap();
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            sys::affinity::pin_current_thread(1).unwrap();
            let mut come = 0;
            while come < bytes {
                let count = b.read(theirs, |_| ()).unwrap();
                come += count;
                if count == 0 {
                    b.wait(TIMEOUT, WAIT_TIME).unwrap()
                } else {
                    b.poll().unwrap()
                };
            }
            let end = Instant::now();
            while end.elapsed() < Duration::from_millis(200) {
                b.wait(Duration::ZERO, WAIT_TIME).unwrap();
            }
        });
        sys::affinity::pin_current_thread(0).unwrap();
        let (piece, mut left) = (vec![0x5a; 1 << 16], bytes);
        while left > 0 {
            let count = a.write(ours, &piece[..left.min(1 << 16)]).unwrap();
            left -= count;
            if count == 0 {
                a.wait(TIMEOUT, WAIT_TIME).unwrap()
            } else {
                a.poll().unwrap()
            };
        }
        while !a.is_quiet() {
            a.wait(TIMEOUT, WAIT_TIME).unwrap();
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    println!("{lost:?} of a million lost: {seconds:.2} s, {:?}", a.counts(ours));
    Some(seconds)
}

#[test]
#[ignore = "a measurement"]
fn seconds_of_a_stream() {
    for lost in [None, Some(0), Some(100), Some(1_000), Some(3_000), Some(10_000), Some(30_000)] {
        stream(lost, 200_000_000);
    }
}

/// Few losses once cost more than many: each stopped the stream for as long as it took until another one showed it.
#[test]
fn a_stream_goes_on_at_its_rate_where_few_frames_are_lost() {
    const BYTES: usize = 40_000_000;
    let Some(whole) = stream(Some(0), BYTES) else { return };
    for lost in [1_000, 10_000] {
        let seconds = stream(Some(lost), BYTES).unwrap();
        assert!(seconds < 3.0 * whole + 0.3, "{lost} of a million lost: {seconds:.2} s, none: {whole:.2} s");
    }
}
