//! Labs on the real kernel. Needs root.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
    process::Command,
    time::Duration,
};

use lab::Lab;
use testbed::privileged;

#[test]
fn two_hosts_talk_over_a_veth_and_vanish() {
    let Some(()) = privileged() else { return };
    let lab = Lab::new("talk").unwrap();
    let (a, b) = (lab.namespace("a").unwrap(), lab.namespace("b").unwrap());
    let (a_if, b_if) = (lab.interface("a"), lab.interface("b"));
    let (end_a, end_b) = lab.veth((&a, &a_if), (&b, &b_if), 2).unwrap();
    let (addr_a, addr_b) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2));
    a.add_address(&a_if, IpAddr::V4(addr_a), 24).unwrap();
    b.add_address(&b_if, IpAddr::V4(addr_b), 24).unwrap();
    a.add_neighbour(&a_if, IpAddr::V4(addr_b), end_b.mac).unwrap();
    b.add_neighbour(&b_if, IpAddr::V4(addr_a), end_a.mac).unwrap();

    let server = b.run(|| UdpSocket::bind((addr_b, 7)).unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    a.run(|| UdpSocket::bind((addr_a, 0)).unwrap().send_to(b"even keel", (addr_b, 7)).unwrap()).unwrap();
    let mut buffer = [0; 64];
    let (n, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"even keel");
    assert_eq!(from.ip(), IpAddr::V4(addr_a));

    let seen = a.run(|| Path::new("/sys/class/net").join(&a_if).join("queues/rx-1").exists()).unwrap();
    assert!(seen, "a thread in the namespace sees the namespace's own /sys, with both queues");
    let names = [a.name().to_owned(), b.name().to_owned()];
    drop((server, a, b));
    for name in names {
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is gone");
    }
}

#[test]
fn hosts_on_a_bridge_talk_and_others_hear_nothing() {
    let Some(()) = privileged() else { return };
    let lab = Lab::new("bridged").unwrap();
    let hub = lab.namespace("hub").unwrap();
    let addresses = [1, 2, 3].map(|last| Ipv4Addr::new(198, 18, 0, last));
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for (i, address) in addresses.into_iter().enumerate() {
        let host = lab.namespace(&format!("host{i}")).unwrap();
        let names = [lab.interface(&format!("a{i}")), lab.interface(&format!("p{i}"))];
        let (end, port) = lab.veth((&host, &names[0]), (&hub, &names[1]), 1).unwrap();
        host.add_address(&end.name, IpAddr::V4(address), 24).unwrap();
        hosts.push((host, end));
        ports.push(port);
    }
    let behind: Vec<_> = ports.iter().zip(&hosts).map(|(port, (_, end))| (port, end.mac)).collect();
    lab.bridge(&hub, &lab.interface("br"), &behind).unwrap();
    assert!(lab.bridge(&hub, &lab.interface("br"), &[]).is_err(), "there is one of that name");
    let received = |i: usize| {
        let path = format!("/sys/class/net/{}/statistics/rx_packets", hosts[i].1.name);
        let text = hosts[i].0.run(|| fs::read_to_string(&path).unwrap()).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    hosts[0].0.add_neighbour(&hosts[0].1.name, IpAddr::V4(addresses[1]), hosts[1].1.mac).unwrap();
    let server = hosts[1].0.run(|| UdpSocket::bind((addresses[1], 7)).unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let client = hosts[0].0.run(|| UdpSocket::bind((addresses[0], 0)).unwrap()).unwrap();
    let before = received(2);
    for _ in 0..10 {
        client.send_to(b"even keel", (addresses[1], 7)).unwrap();
        assert_eq!(server.recv_from(&mut [0; 64]).unwrap().0, 9);
    }
    assert_eq!(received(2), before, "no frame to the second host came to the third");
}

#[test]
fn leftovers_of_a_dead_process_are_cleared_and_others_are_not() {
    let Some(()) = privileged() else { return };
    // The owner lives until its namespace is whole: other processes that clear what the dead left must not take it earlier.
    let mut owner = Command::new("sleep").arg("600").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", owner.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().to_owned();
    let left = format!("ek-{}-{started}-gone-x", owner.id());
    let foreign = format!("ekforeign{}", std::process::id());
    let made = [&left, &foreign].map(|name| Command::new("ip").args(["netns", "add", name]).status());
    let early = lab::clear_dead();
    let living_stays = Path::new("/run/netns").join(&left).exists();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(made.into_iter().all(|status| status.unwrap().success()));
    assert!(!early.unwrap().contains(&left) && living_stays, "what belongs to a living process stays");
    let cleared = lab::clear_dead();
    let foreign_stays = Path::new("/run/netns").join(&foreign).exists();
    Command::new("ip").args(["netns", "del", &foreign]).status().unwrap();
    assert!(cleared.unwrap().contains(&left) || !Path::new("/run/netns").join(&left).exists());
    assert!(foreign_stays, "a namespace that is not ours stays");
}

#[test]
fn a_bad_tag_is_refused_before_anything_is_made() {
    assert!(matches!(Lab::new("no/slash"), Err(lab::LabError::BadTag(_))));
}

#[test]
fn a_lab_that_panics_leaves_nothing() {
    let Some(()) = privileged() else { return };
    let result = std::panic::catch_unwind(|| {
        let lab = Lab::new("panics").unwrap();
        let _ns = lab.namespace("a").unwrap();
        panic!("on purpose");
    });
    assert!(result.is_err());
    let mine = format!("ek-{}-", std::process::id());
    let left: Vec<_> = fs::read_dir("/run/netns")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|n| n.starts_with(&mine) && n.contains("panics"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_cell_that_goes_late_leaves_the_door_of_the_next_one() {
    let Some(()) = privileged() else { return };
    testbed::in_namespace(|| {
        let first = lab::Cell::new("ekdoor", 1500).unwrap();
        first.close();
        let next = lab::Cell::new("ekdoor", 1500).unwrap();
        drop(first);
        let shown = Command::new("ip").args(["link", "show", "ekdoor"]).output().unwrap();
        assert!(shown.status.success(), "it is the next one's");
        drop(next);
        let shown = Command::new("ip").args(["link", "show", "ekdoor"]).output().unwrap();
        assert!(!shown.status.success(), "it is taken away");
    });
}
