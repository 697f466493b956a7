//! SYNs and ACKs of all kinds against a shield that challenges: every answer is well-formed and no larger than its question. Needs root.

use std::net::TcpListener;

use bpf::filter::GatewayCookies;
use testbed::{
    cookies::{
        CookieBed, Mode, PORT, SERVER,
        hurt::{Tried, attack},
    },
    random::{self, Random},
};

const FRAME_COUNT: u64 = 20_000;

#[test]
fn a_host_answers_syns_and_nothing_else_and_never_by_more() {
    let Some(bed) = CookieBed::new("ckhurt", Mode::Host(|_| ())) else { return };
    let listen = |address| bed.server.run(|| TcpListener::bind((address, PORT))).unwrap();
    let _listeners = SERVER.map(listen);
    let mut tried = Tried::default();
    attack(&bed, &mut Random(11), FRAME_COUNT, random::splits(), &mut tried).unwrap();
    eprintln!("{tried:?}");
    assert!(tried.answered > FRAME_COUNT / 4 && tried.finished > 1000, "{tried:?}");
}

#[test]
fn a_gateway_asks_whoever_says_syn_and_never_by_more() {
    let Some(bed) =
        CookieBed::new("ckhurtg", Mode::Gateway(GatewayCookies { strict: true, ..GatewayCookies::default() }))
    else {
        return;
    };
    let mut tried = Tried::default();
    attack(&bed, &mut Random(12), FRAME_COUNT, random::splits(), &mut tried).unwrap();
    eprintln!("{tried:?}");
    assert!(tried.answered > FRAME_COUNT / 4 && tried.longer == 0, "{tried:?}");
}
