//! Cookies of which the kernel makes the connections by itself: Linux before 6.9, generic mode, drivers without metadata. Needs root.

use std::{net::TcpListener, thread, time::Duration};

use nix::sys::socket::{Backlog, listen};
use testbed::{
    cookies::{
        CLIENT, CookieBed, Mode, SERVER, at, echo_on,
        frames::{ACK, Frame},
        talk, talk_long,
    },
    wait,
};

/// The kernel's answer with net.ipv4.tcp_syncookies=2.
fn always(tag: &str) -> Option<CookieBed> {
    let bed = CookieBed::new(tag, Mode::Kernel)?;
    bed.server.set("net.ipv4.tcp_syncookies", "2");
    Some(bed)
}

#[test]
fn the_kernel_makes_connections_of_cookies_of_both_families() {
    let Some(bed) = always("ckown") else { return };
    for family in [0, 1] {
        let to = bed.echo(SERVER[family]);
        let mut stream = bed.connect(to).unwrap();
        talk(&mut stream);
        let options = bed.server.output("ss -tieOHn state established");
        assert!(!["wscale:", " sack", " ts "].iter().any(|option| options.contains(option)), "{options}");
        // Through a window that is not scaled.
        talk_long(&mut stream);
        drop(stream);
        wait("the connection ends", || bed.server.output("ss -tieOHn state established").is_empty());
    }
    let counts = bed.counts();
    // Data that come before the kernel has made the connection bring the cookie once more.
    assert!(counts.answered == 2 && counts.right >= 2 && counts.wrong == 0, "{counts:?}");
    assert_eq!(bed.server.counter("TcpExtSyncookiesSent"), 0, "the kernel has answered none itself");
    assert_eq!(bed.server.counter("TcpExtSyncookiesRecv"), 2, "it has taken both");
}

#[test]
fn while_the_queue_has_room_syns_pass_and_a_flood_that_fills_it_keeps_nobody_out() {
    let Some(bed) = CookieBed::new("ckfull", Mode::Kernel) else { return };
    let listener = bed.server.run(|| TcpListener::bind(at(SERVER[0]))).unwrap();
    // A queue that is soon full.
    listen(&listener, Backlog::new(64).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    echo_on(listener);
    talk(&mut bed.connect(to).unwrap());
    assert_eq!(bed.counts().answered, 0, "the kernel answered");
    thread::scope(|s| {
        s.spawn(|| bed.flood(4096, 100_000, 20_000.0));
        wait("the queue is full", || bed.counts().answered > 1000);
        for n in 0..50 {
            let mut stream = bed.connect(to).unwrap_or_else(|e| panic!("client {n}: {e}"));
            talk(&mut stream);
            thread::sleep(Duration::from_millis(20));
        }
    });
    let counts = bed.counts();
    assert!(counts.answered > 50_000 && counts.right >= 40, "{counts:?}");
    // Those that passed into a queue that was full by then.
    let own = bed.server.counter("TcpExtSyncookiesSent");
    assert!(own < 1000, "{own} are left to the kernel");
}

/// Beside an ACK flood no listener answers.
#[test]
fn wrong_acks_reach_no_listener() {
    let Some(bed) = always("ckwrong") else { return };
    let to = bed.echo(SERVER[0]);
    talk(&mut bed.connect(to).unwrap());
    let frame = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[0], SERVER[0]);
    let resets = bed.server.counter("TcpOutRsts");
    let wrong = [Frame { flags: ACK, ack: 77, seq: 5, ..frame }.bytes()];
    // A veth device has room for 256 frames, and loses some where its CPU is busy.
    let mut sent = 0;
    wait("a thousand are dropped", || {
        bed.send(&wrong, 100, 10_000.0);
        sent += 100;
        let dropped = bed.counts().wrong;
        assert!(dropped <= sent, "{dropped} of {sent}");
        dropped >= 1000
    });
    assert_eq!(bed.server.counter("TcpOutRsts"), resets);
    talk(&mut bed.connect(to).unwrap());
}
