//! The report of card models in guests: text at several widths, and a page that needs no network.

mod page;
mod text;

use model::{
    bench::guest::{Burst, Card, GuestRun, PerFrame, Verb, VerbOutcome},
    run::Machine,
    sources,
};
use report::{Look, guest_page, guest_text};
use text::unwrapped;

/// Nobody counted this.
fn card(nic: &str, writes: f64) -> Card {
    let burst = |frames: u32| {
        let of = 1.0 / f64::from(frames);
        let median =
            PerFrame { reads: 0.5 * writes * of, writes: writes * of, notifications: of, interrupts: 2.0 * of };
        Burst { frames, runs: vec![median; 3], median, spread: 0.016, lost: 0 }
    };
    let verb = |command: &str, fares, sentence: &str| Verb {
        command: command.into(),
        outcome: fares,
        message: sentence.into(),
    };
    let native = match nic {
        "virtio" => verb("shield run eth0 --xdp-mode native", VerbOutcome::Works, "shield: filtering on eth0"),
        _ => verb(
            "shield run eth0 --xdp-mode native",
            VerbOutcome::Refused,
            "evenkeel: the driver of eth0 cannot run the XDP program in native mode",
        ),
    };
    Card {
        nic: nic.into(),
        driver: "made_up".into(),
        queues: 1,
        ring: (nic != "virtio").then_some(256),
        offloads: ["rx-checksumming", "tx-checksumming", "generic-receive-offload"].map(str::to_owned).to_vec(),
        native_xdp: if nic == "virtio" { Ok(()) } else { Err("no".into()) },
        ready_s: 7.6,
        bursts: vec![burst(1), burst(8)],
        verbs: vec![verb("ledger", VerbOutcome::Works, "0.00 % unexplained"), native],
        qemu: ["-nic", "none", "-append", "console=ttyS0 init=/evenkeel"].map(str::to_owned).to_vec(),
        libvirt: format!("<interface type='ethernet'><model type='{nic}'/></interface>"),
    }
}

fn run() -> GuestRun {
    GuestRun {
        timestamp: "2026-01-02T03:04:05Z".into(),
        machine: Machine { hostname: "made-up".into(), kernel: "6.1.0".into(), ..Machine::default() },
        emulation_reason: "it was asked for (--emulated)".into(),
        kernel: "6.1.0-50-amd64".into(),
        qemu: "QEMU emulator version 7.2.0".into(),
        runs: 3,
        cards: vec![card("virtio", 0.0), card("e1000", 5.79), card("e1000e", 3.18), card("vmxnet3", 1.88)],
        skipped: vec!["virtio-vhost: the host's kernel has no vhost-net (no /dev/vhost-net)".into()],
        exit_ns: Some(1200.0),
        measured_exit_ns: Err("/dev/kvm: no such file".into()),
        sources: sources::firewall_rates(),
        notes: vec!["A note".into()],
    }
}

#[test]
fn the_verdict_stands_first_and_is_amber_where_there_is_none() {
    let page = guest_page(&run()).unwrap();
    let (verdict, skipped) = (page.find("class=\"conclusion\""), page.find("Left out"));
    assert!(verdict.is_some() && verdict < skipped && verdict < page.find("class=\"warning\""), "{page}");
    let sentence = "None of 8 commands of evenkeel fails on these cards; 3 refused, since the driver or the kernel lacks something.";
    let second = "At a burst of 1 each forwarded frame takes 1.00 (virtio) to 9.69 (e1000) accesses to a device.";
    for shown in [page, unwrapped(&guest_text(&run(), Look::plain(400)))] {
        assert!(shown.contains(sentence) && shown.contains(second), "{shown}");
    }
    assert!(unwrapped(&guest_text(&run(), Look::plain(400))).starts_with(sentence));
    let nothing = GuestRun { cards: Vec::new(), ..run() };
    let page = guest_page(&nothing).unwrap();
    assert!(page.contains("class=\"conclusion void\"") && page.contains("No verdict: no card was counted."), "{page}");
}

#[test]
fn a_command_that_fails_is_in_the_verdict() {
    let mut run = run();
    run.cards[1].verbs[0].outcome = VerbOutcome::Fails;
    let text = unwrapped(&guest_text(&run, Look::plain(400)));
    assert!(text.starts_with("1 of 8 commands of evenkeel FAIL: ledger on e1000; 3 refused"), "{text}");
    assert!(guest_page(&run).unwrap().contains("class=\"conclusion void\""), "marked");
}

#[test]
fn the_page_stands_alone() {
    let page = guest_page(&run()).unwrap();
    page::stands_alone(&page, &["guest-accesses", "guest-interrupts", "guest-published"]);
    // Two published rates of the same card are told apart, and a long text is no column of single words.
    assert!(page.contains(">VirtIO, 64 bytes<") && page.contains(">VirtIO, 256 bytes<"));
    assert!(page.contains("<td class=\"long\">rx-checksumming, ") && page.contains(".long { min-width"));
}
