//! Trials of XDP, AF_XDP and tcx on veth pairs of the lab.

use bpf::{
    LivePace, LivePacket, LiveSender, RouteEgressWatch, RoutePort, RouteSlots, RouteTables, XdpDrop, XdpFib, XdpMode,
    XskRedirect,
};
use sys::{
    privilege::Capability,
    xsk::{CopyMode, XskReceiver, XskSettings},
};

use std::{os::fd::AsFd, time::Duration};

use crate::{
    Place,
    bed::{Bed, NEAR, OTHER, SENT_COUNT},
    trial::{Need, Tried, words},
};

const NEEDED: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN];
const VETH: &str = "boot a kernel of Linux 6.1 or newer with CONFIG_BPF_SYSCALL and XDP on veth";
const PORT: u16 = 9;
const FRAMES: u32 = 64;
/// Limit of one wait for frames.
const WAIT: Duration = Duration::from_millis(500);

pub(super) const NEEDS: &[Need] = &[
    Need {
        name: "XDP, native (veth)",
        verbs: &["shield", "route", "link", "capture", "bench", "demo"],
        capabilities: NEEDED,
        trial: |place| dropped(place, XdpMode::Native),
        fix: VETH,
    },
    Need {
        name: "XDP, generic",
        verbs: &["shield", "route", "capture"],
        capabilities: NEEDED,
        trial: |place| dropped(place, XdpMode::Generic),
        fix: VETH,
    },
    Need {
        name: "AF_XDP, copied",
        verbs: &["capture"],
        capabilities: NEEDED,
        trial: xsk,
        fix: "use --backend ring or tap",
    },
    Need {
        name: "live frames",
        verbs: &["gen", "bench", "demo"],
        capabilities: NEEDED,
        trial: live,
        fix: "use gen --backend tx-ring; live frames need Linux 5.18 or newer",
    },
    Need {
        name: "look-up of routes in XDP",
        verbs: &["route"],
        capabilities: NEEDED,
        trial: fib,
        fix: "leave forwarding to the kernel (mode standard)",
    },
    Need {
        name: "conntrack in XDP",
        verbs: &["route"],
        capabilities: NEEDED,
        trial: conntrack,
        fix: "modprobe nf_conntrack, or use mode routed (mode stateful needs Linux 6.2)",
    },
    Need {
        name: "tcx",
        verbs: &["route", "link"],
        capabilities: NEEDED,
        trial: tcx,
        fix: "run route with --trial 0 and link without --group (tcx needs Linux 6.6)",
    },
];

fn dropped(place: &Place<'_>, mode: XdpMode) -> Result<Tried, String> {
    let bed = place.bed()?;
    let drop = bed.middle.run(|| XdpDrop::attach(&bed.near.name, mode)).map_err(words)?.map_err(words)?;
    bed.send(NEAR, PORT, SENT_COUNT).map_err(words)?;
    let count = bed.counted(|| drop.counts().map(|counts| counts.frames)).map_err(words)?;
    Ok(Tried::arrived(count, SENT_COUNT, VETH))
}

fn xsk(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let settings = XskSettings {
        ifindex: bed.near.index,
        queue: 0,
        frames: FRAMES,
        frame_bytes: 2048,
        copy: CopyMode::Copy,
        huge_pages: false,
        busy_poll: None,
        node: None,
    };
    let (mut receiver, mut redirect) = bed
        .middle
        .run(|| -> Result<_, String> {
            let receiver = XskReceiver::open(&settings).map_err(words)?;
            let mut redirect = XskRedirect::load(1, None).map_err(words)?;
            redirect.set_socket(0, receiver.as_fd()).map_err(words)?;
            redirect.attach(&bed.near.name, XdpMode::Native).map_err(words)?;
            Ok((receiver, redirect))
        })
        .map_err(words)??;
    bed.send(NEAR, PORT, SENT_COUNT).map_err(words)?;
    let mut count = 0;
    while count < SENT_COUNT && receiver.wait(WAIT).map_err(words)? {
        count += u64::from(receiver.receive(FRAMES, |_| {}));
    }
    redirect.detach();
    Ok(Tried::arrived(count, SENT_COUNT, "use --backend ring or tap"))
}

/// An Ethernet frame with an experimental EtherType, from the left host to the box.
fn frame(bed: &Bed) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&bed.near.mac.0);
    frame[6..12].copy_from_slice(&bed.left_end.mac.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn live(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let drop = bed.middle.run(|| XdpDrop::attach(&bed.near.name, XdpMode::Native)).map_err(words)?.map_err(words)?;
    let frame = frame(bed);
    let packet = LivePacket { headers: &frame[..14], frame_len: frame.len() };
    let pace = LivePace { pps: None, count: Some(SENT_COUNT), duration: Duration::from_secs(1), nap: None };
    let send = || LiveSender::load(&bed.left_end.name, frame.clone(), &[packet], None, pace)?.run();
    bed.left.run(send).map_err(words)?.map_err(words)?;
    let count = bed.counted(|| drop.counts().map(|counts| counts.frames)).map_err(words)?;
    Ok(Tried::arrived(count, SENT_COUNT, "use gen --backend tx-ring"))
}

fn fib(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let ports = [bed.near.name.as_str(), &bed.far.name];
    let fib = bed.middle.run(|| XdpFib::attach(&ports, XdpMode::Generic)).map_err(words)?.map_err(words)?;
    let _listening = bed.listen(PORT).map_err(words)?;
    bed.send(OTHER, PORT, SENT_COUNT).map_err(words)?;
    let count = bed.counted(|| fib.counts().map(|counts| counts.forwarded)).map_err(words)?;
    Ok(Tried::arrived(count, SENT_COUNT, "leave forwarding to the kernel (mode standard)"))
}

fn conntrack(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let load = || {
        let tables = RouteTables::create(RouteSlots::all(64))?;
        RoutePort::load(&tables, 0, &bed.near.name, bed.near.mac.0, XdpMode::Generic, true)?.add_state(&tables)
    };
    bed.middle.run(load).map_err(words)?.map_err(words)?;
    Ok(Tried::works(""))
}

fn tcx(place: &Place<'_>) -> Result<Tried, String> {
    let bed = place.bed()?;
    let attach = || RouteEgressWatch::attach(&RouteTables::create(RouteSlots::all(64))?, &bed.near.name);
    bed.middle.run(attach).map_err(words)?.map_err(words)?;
    Ok(Tried::works(""))
}
