//! Interfaces on which rules would not do what they say: refused, left out or told of.

use std::time::Duration;

use testbed::{DROP_9, SERVER, ShieldBed, Tun, printed};

const CHALLENGE: &str = "[[rule]]\nname = \"web\"\naction = \"challenge\"\nprotocol = \"tcp\"\ndestination-port = 80\n";
const PROTECT: &str = "protect = [\"198.18.0.2\"]\n";
const LIMIT: &str =
    "[[rule]]\nname = \"few\"\naction = \"limit\"\nrate = 100\nprotocol = \"udp\"\ndestination-port = 9\n";
const VLAN: &str = "[[rule]]\nname = \"five\"\naction = \"drop\"\nvlan = 5\n";
const LEFT_OUT: &str = "no SYN cookies, so an attack meets the next step at once";

fn bed(tag: &str) -> Option<ShieldBed> {
    ShieldBed::host(env!("CARGO_BIN_EXE_evenkeel"), tag)
}

/// What a start of the shield is refused with.
fn refused(bed: &ShieldBed, interface: &str, rules: &str) -> String {
    let output = bed.shield(&["run", interface, "--quiet", "--rules", rules]);
    let text = printed(&output);
    assert!(output.status.code() == Some(3) && text.lines().count() == 1, "one error: {text}");
    text
}

fn connects(bed: &ShieldBed) -> bool {
    bed.connects(Duration::from_secs(2))
}

/// Both ends in the host's namespace, and up; the shield of the bed is to be on the first.
fn pair_in_the_host(bed: &mut ShieldBed) -> (String, String) {
    let (one, other) = (format!("{}y", bed.interface), format!("{}z", bed.interface));
    bed.ip(&format!("link add {one} type veth peer name {other}"));
    bed.ip(&format!("link set {one} up"));
    bed.ip(&format!("link set {other} up"));
    bed.interface.clone_from(&one);
    (one, other)
}

#[test]
fn in_generic_mode_the_kernel_makes_the_connections_of_cookies() {
    let Some(mut bed) = bed("eksia") else { return };
    bed.protect(CHALLENGE, &["--xdp-mode", "generic"]);
    let status = bed.status();
    assert_eq!(status["challenge"]["method"], "kernel-cookies");
    assert!(status["challenge"]["reason"].as_str().is_some_and(|why| why.contains("generic")), "{status}");
    assert!(connects(&bed));
    assert_eq!(bed.status()["totals"]["challenged"], 0, "its queue has room");
    bed.host.set_sysctl("net.ipv4.tcp_syncookies", "2").expect("a setting");
    assert!(connects(&bed));
    assert!(bed.status()["totals"]["challenged"].as_u64() > Some(0), "{}", bed.status());
    bed.stop();
}

#[test]
fn where_the_kernel_takes_no_cookies_sources_are_authenticated() {
    let Some(mut bed) = bed("eksif") else { return };
    bed.host.set_sysctl("net.ipv4.tcp_syncookies", "0").expect("a setting");
    bed.protect(CHALLENGE, &[]);
    let status = bed.status();
    assert_eq!(status["challenge"]["method"], "sources");
    assert!(status["challenge"]["reason"].as_str().is_some_and(|why| why.contains("tcp_syncookies")), "{status}");
    assert!(connects(&bed));
    bed.stop();
}

#[test]
fn a_veth_whose_peer_would_lose_answers_challenges_nobody() {
    let Some(mut bed) = bed("eksib") else { return };
    bed.client.feature("rx-gro", false);
    let rules = bed.rules(CHALLENGE);
    let refused = refused(&bed, &bed.interface, &rules);
    for part in ["the rule \"web\" challenges", "cannot transmit from XDP", "`ethtool -K PEER gro off`, then `gro on`"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    bed.rules(PROTECT);
    bed.run(&rules, &[]);
    assert!(bed.log().contains(LEFT_OUT) && bed.log().contains("gro on"), "{}", bed.log());
    assert!(!bed.log().contains("SYNs are answered"), "{}", bed.log());
    assert!(bed.status()["challenge"].is_null() && bed.warnings().contains("are not challenged"), "{}", bed.status());
    // The ladder follows, both ways.
    bed.client.feature("rx-gro", true);
    bed.wait("the step that challenges", || bed.status()["challenge"]["method"] == "cookies");
    assert!(bed.log().contains("SYNs of an attack are challenged from now on"), "{}", bed.log());
    assert_eq!(bed.warnings(), "[]");
    bed.client.feature("rx-gro", false);
    bed.wait("no such step", || bed.status()["challenge"].is_null());
    bed.stop();
    bed.client.feature("rx-gro", true);
    bed.rules(CHALLENGE);
    bed.run(&rules, &[]);
    assert!(connects(&bed));
    assert_eq!(bed.status()["totals"]["challenged"], 1);
    assert_eq!(bed.warnings(), "[]");
    bed.client.feature("rx-gro", false);
    assert!(bed.warnings().contains("cannot transmit from XDP"), "{}", bed.warnings());
}

#[test]
fn packets_that_come_merged_to_rules_that_count_them_are_warned_of() {
    let Some(mut bed) = bed("eksic") else { return };
    let (one, other) = pair_in_the_host(&mut bed);
    let (gro, tso) =
        (format!("ethtool -K {one} gro off"), format!("ethtool -K {other} tso off tx-udp-segmentation off"));
    bed.host.output(&format!("ethtool -K {one} gro on"));
    let rules = bed.protect(LIMIT, &[]);
    assert_eq!(bed.warnings(), "[]", "native");
    bed.stop();
    // Native XDP on a veth has its peer cut segments, and gives that back.
    bed.run(&rules, &["--xdp-mode", "generic"]);
    for printed in [bed.log(), bed.warnings()] {
        assert!(printed.contains(&gro) && printed.contains(&tso), "{printed}");
    }
    assert!(bed.warnings().contains("few"), "{}", bed.warnings());
    for command in [&gro, &tso] {
        bed.host.output(command);
    }
    assert_eq!(bed.warnings(), "[]");
    bed.host.output(&format!("ethtool -K {one} gro on"));
    assert!(bed.warnings().contains(&gro) && !bed.warnings().contains(&tso), "{}", bed.warnings());
    bed.rules(DROP_9);
    bed.reload();
    assert_eq!(bed.warnings(), "[]", "no rule counts packets");
}

#[test]
fn rules_about_tags_that_stand_beside_the_frames_are_refused() {
    let Some(mut bed) = bed("eksid") else { return };
    let rules = bed.protect(VLAN, &[]);
    assert!(bed.log().contains("cannot be checked from this network namespace"), "{}", bed.log());
    bed.stop();
    let (one, other) = pair_in_the_host(&mut bed);
    let way_out = format!("ethtool -K {other} txvlan off tx-vlan-stag-hw-insert off");
    let refused = refused(&bed, &one, &rules);
    assert!(refused.contains("\"five\"") && refused.contains(&way_out), "{refused}");
    bed.host.output(&way_out);
    bed.run(&rules, &[]);
    assert!(!bed.log().contains("VLAN"), "{}", bed.log());
}

#[test]
fn a_mac_address_that_changes_goes_on_to_be_answered_for() {
    let Some(mut bed) = bed("eksie") else { return };
    bed.protect(CHALLENGE, &[]);
    assert!(connects(&bed));
    assert_eq!(bed.status()["totals"]["challenged"], 1);
    let (mac, interface) = ("02:00:00:00:00:77", bed.interface.clone());
    bed.ip(&format!("link set {interface} address {mac}"));
    bed.wait("it is seen", || bed.log().contains(&format!("the MAC address of {interface} changed")));
    bed.client.output(&format!("ip neigh replace {SERVER} lladdr {mac} dev {}", bed.client.interface()));
    assert!(connects(&bed));
    assert_eq!(bed.status()["totals"]["challenged"], 2, "{}", bed.log());
    bed.ip(&format!("link set {interface} mtu 1400"));
    bed.wait("it is seen", || bed.log().contains(&format!("the MTU of {interface} changed")));
    assert_eq!(bed.log().matches("the answers to SYNs follow it").count(), 2, "{}", bed.log());
}

/// A UDP packet from the IP header on.
fn packet(port: u16) -> Vec<u8> {
    let mut packet =
        vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 1, 1, 198, 18, 1, 2, 4, 0, 0, 9, 0, 8, 0, 0];
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet
}

#[test]
fn an_interface_without_ethernet_headers_is_filtered_from_the_ip_header_on() {
    let Some(mut bed) = bed("eksig") else { return };
    let veth = std::mem::replace(&mut bed.interface, "ektun1".to_owned());
    let mut tun = Tun::build(&bed.host.clone(), &bed.interface);
    let rules = bed.rules(&format!("default = \"drop\"\n{DROP_9}[[rule]]\nname = \"ten\"\naction = \"pass\"\nprotocol = \"udp\"\ndestination-port = 10\n"));
    assert!(refused(&bed, &bed.interface, &rules).contains("--xdp-mode generic"));
    bed.run(&rules, &["--xdp-mode", "generic"]);
    tun.write(&[packet(9), packet(9), packet(10), packet(11)]);
    bed.wait("all four are judged", || bed.total("dropped") + bed.total("passed") == 4);
    assert_eq!((bed.count("nine"), bed.count("ten"), bed.total("dropped"), bed.total("not_ip")), (2, 1, 3, 0));
    bed.stop();
    bed.rules(CHALLENGE);
    for arguments in [
        &["run", "ektun1", "--xdp-mode", "generic"][..],
        &["run", "--between", &format!("{veth},ektun1"), "--xdp-mode", "generic"],
    ] {
        let output = bed.shield(&[arguments, &["--quiet", "--rules", &rules]].concat());
        assert!(
            output.status.code() == Some(3) && printed(&output).contains("ektun1 has no Ethernet headers"),
            "{}",
            printed(&output)
        );
    }
}
