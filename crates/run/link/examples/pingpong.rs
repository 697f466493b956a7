//! There and back through the brokers of two network namespaces, both ends awake: `pingpong server PORT` in one, `pingpong client ADDRESS PORT N
//! BYTES` in the other. Prints the median and the 99th percentile.

use std::{
    env, process,
    time::{Duration, Instant},
};

use link::{Claim, LinkError, State};

const SPIN_TIME: Duration = Duration::from_secs(3600);

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["server", port] => server(port.parse().expect("a port")),
        ["client", to, port, count, bytes] => {
            let number = |text: &str| text.parse::<usize>().expect("a number");
            client(to, port.parse().expect("a port"), number(count), number(bytes))
        }
        ["sink", port] => sink(port.parse().expect("a port")),
        ["source", to, port, bytes] => source(to, port.parse().expect("a port"), bytes.parse().expect("bytes")),
        _ => {
            println!("pingpong server PORT | pingpong client ADDRESS PORT N BYTES");
            process::exit(2);
        }
    };
    if let Err(error) = done {
        println!("{error}");
        process::exit(1);
    }
}

fn server(port: u16) -> Result<(), LinkError> {
    let (claim, mut engine) = Claim::take()?;
    claim.listen(port)?;
    engine.listen(port, false, 1)?;
    let peer = loop {
        engine.wait(SPIN_TIME, Duration::from_millis(100))?;
        if let Some(peer) = engine.accept(port) {
            break peer;
        }
    };
    let mut place = vec![0; 1 << 16];
    while !engine.is_at_end(peer) && engine.state(peer) == Some(State::Open) {
        engine.poll()?;
        while let Some(len) = engine.receive(peer, &mut place)? {
            engine.send(peer, &place[..len])?;
        }
    }
    Ok(())
}

fn client(to: &str, port: u16, count: usize, bytes: usize) -> Result<(), LinkError> {
    let (_claim, mut engine) = Claim::take()?;
    let peer = engine.connect(to.parse().expect("an address"), port, false)?;
    while engine.state(peer) == Some(State::Opening) {
        engine.wait(SPIN_TIME, Duration::from_millis(100))?;
    }
    let (message, mut place) = (vec![7; bytes], vec![0; 1 << 16]);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        engine.send(peer, &message)?;
        while engine.receive(peer, &mut place)?.is_none() {
            engine.poll()?;
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("{bytes} bytes: median {:?}, 99 % {:?}", times[count / 2], times[count * 99 / 100]);
    println!("{:?} {:?}", engine.counts(peer), engine.round_trip(peer));
    Ok(())
}

fn sink(port: u16) -> Result<(), LinkError> {
    let (claim, mut engine) = Claim::take()?;
    claim.listen(port)?;
    engine.listen(port, true, 1)?;
    let peer = loop {
        engine.wait(SPIN_TIME, Duration::from_millis(100))?;
        if let Some(peer) = engine.accept(port) {
            break peer;
        }
    };
    let mut bytes = 0;
    while !engine.is_at_end(peer) && engine.state(peer) == Some(State::Open) {
        engine.poll()?;
        bytes += engine.read(peer, |_| {})?;
    }
    while engine.close(peer).is_err() || engine.state(peer) == Some(State::Open) {
        engine.poll()?;
    }
    println!("{bytes} bytes arrived; {:?}", engine.counts(peer));
    Ok(())
}

fn source(to: &str, port: u16, bytes: usize) -> Result<(), LinkError> {
    let (_claim, mut engine) = Claim::take()?;
    let peer = engine.connect(to.parse().expect("an address"), port, true)?;
    while engine.state(peer) == Some(State::Opening) {
        engine.wait(SPIN_TIME, Duration::from_millis(100))?;
    }
    let piece = vec![7; 1 << 16];
    let (began, mut left) = (Instant::now(), bytes);
    while left > 0 {
        left -= engine.write(peer, &piece[..left.min(piece.len())])?;
        engine.poll()?;
    }
    while engine.close(peer).is_err() || engine.state(peer) == Some(State::Open) {
        engine.poll()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{bytes} bytes in {seconds:.3} s: {:.0} MB/s; {:?}", bytes as f64 / 1e6 / seconds, engine.counts(peer));
    Ok(())
}
