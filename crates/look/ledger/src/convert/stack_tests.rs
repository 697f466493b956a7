//! From the counters of the stack to the input of the arithmetic.

use host::{interface::Link, stack::Socket};

use super::*;

/// Sockets of `/proc/net/raw` are known by their inode, which is no cookie.
#[test]
fn an_inode_is_no_cookie() {
    let line =
        "  sl\n   1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7 2 0 9\n";
    let root = Root::from_files([("proc/net/raw".to_owned(), line.to_owned())].into());
    let stack = StackCounters::read(&root);
    assert_eq!(stack.sockets.values().map(|s: &Socket| s.inode).collect::<Vec<_>>(), [7]);
    let found = sockets(&stack, &BTreeMap::<u32, Link>::new());
    assert_eq!((found[0].cookie, found[0].inode, found[0].packets), (0, 7, 9));
}

/// virtio_net counts a frame that XDP dropped in `rx0_xdp_drops` and in `rx0_drops`.
#[test]
fn a_drop_of_xdp_is_no_other_drop_of_virtio() {
    let loss = |queue| host::stack::NicLoss {
        name: format!("rx{queue}_drops"),
        queue: Some(queue),
        class: LossClass::Other,
        counted: Counted::InLink,
        tx: false,
        packets: 500,
    };
    let nic = |driver: &str| NicLosses {
        driver: driver.into(),
        losses: vec![loss(0), loss(1)],
        xdp: [(0, [(XdpCount::Drops, 500)].into()), (1, [(XdpCount::Drops, 493)].into())].into(),
    };
    let packets = |driver| nic_losses(&nic(driver)).iter().map(|l| (l.queue, l.packets)).collect::<Vec<_>>();
    assert_eq!(packets("virtio_net"), [(Some(1), 7)]);
    assert_eq!(packets("veth"), [(Some(0), 500), (Some(1), 500)]);
    assert_eq!(xdp_done(&nic("virtio_net"), None).map(|x| (x.dropped, x.nested)), Some((993, true)));
}
