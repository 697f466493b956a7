//! `evenkeel ledger` on boxes that lose packets in XDP.

use std::process::Command;

use bpf::{XdpDrop, XdpMode};

use testbed::{
    alone, ended,
    losses::{BOX, LOADS, Road, road},
    skip,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

#[test]
fn a_program_that_drops() {
    let _alone = alone();
    // The driver's counter belongs to the one program that it runs; of a generic one the kernel's drop reason alone tells.
    for (mode, words) in
        [(XdpMode::Native, "by the XDP program xdp_drop (id "), (XdpMode::Generic, "by the generic XDP program")]
    {
        let Some(road) = road(EVENKEEL, "ekxdrop") else { return };
        let attach = || XdpDrop::attach(road.entry.interface(), mode);
        let program = match road.entry.run(attach) {
            Ok(program) => program,
            Err(e) => return skip(e),
        };
        for load in LOADS {
            let frames = || program.counts().expect("its counts").frames;
            let (found, lost) = road.measure(|| {
                let before = frames();
                road.send_udp(BOX, 9, load);
                frames() - before
            });
            found.holds("xdp", "", words, lost);
        }
    }
}

/// Attaches a program that redirects everything to an interface of the box.
fn redirect(road: &Road, target: &str) {
    let source = road.path("redirect.c");
    let object = road.path("redirect.o");
    let index = road.entry.output(&format!("cat /sys/class/net/{target}/ifindex"));
    // bpf_redirect is helper 23 (include/uapi/linux/bpf.h).
    let program = format!(
        "__attribute__((section(\"xdp\"), used)) int ek_redirect(void *context)\n\
         {{\n\treturn ((long (*)(unsigned, unsigned long))23)({}, 0);\n}}\n\
         char LICENSE[] __attribute__((section(\"license\"), used)) = \"GPL\";\n",
        index.trim()
    );
    std::fs::write(&source, program).expect("a file can be written");
    let built =
        Command::new("clang").args(["-O2", "-g", "-target", "bpf", "-c"]).arg(&source).arg("-o").arg(&object).status();
    assert!(built.expect("clang is installed").success());
    // Not with a /sys of its own, where no bpffs is mounted.
    let mut ip = road.entry.command("ip");
    ip.args(["link", "set", "dev", road.entry.interface(), "xdpdrv", "obj"]).arg(&object).args(["sec", "xdp"]);
    ended(&ip.output().expect("the program ip"), 0);
}

#[test]
fn a_redirect_into_a_device_that_is_down() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekxdown") else { return };
    road.entry.output("ip link add ekdown type veth peer name ekdownp");
    redirect(&road, "ekdown");
    for load in LOADS {
        let (found, lost) = road.measure(|| {
            let before = seen(&road);
            road.send_udp(BOX, 9, load);
            seen(&road) - before
        });
        found.holds("xdp", "", "redirect", lost);
    }
}

/// Frames that the program saw (`ethtool -S`, veth's own count).
fn seen(road: &Road) -> u64 {
    let text = road.entry.output(&format!("ethtool -S {}", road.entry.interface()));
    let line = text.lines().find(|line| line.contains("rx_queue_0_xdp_packets")).expect("the counter");
    line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}
