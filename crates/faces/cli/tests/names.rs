//! Names of interfaces: alternative ones are taken by every verb, labels of addresses are refused, and what is no text is left alone.

use std::{os::unix::ffi::OsStrExt as _, process::Output};

use testbed::{DROP_9, ShieldBed, json, printed, text, words};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
const SHORT_NAME: &str = "ekuplink0";
/// Longer than a name may be.
const LONG_NAME: &str = "ek-the-uplink-to-the-building-next-door";

fn evenkeel(bed: &ShieldBed, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(EVENKEEL);
    command.args(arguments).stdin(std::process::Stdio::null());
    bed.host.run(|| command.output()).expect("the program starts")
}

#[test]
fn an_alternative_name_is_a_name_for_every_verb() {
    let Some(mut bed) = ShieldBed::host(EVENKEEL, "eknmA") else { return };
    let (real, rules) = (bed.interface.clone(), bed.rules(DROP_9));
    for name in [SHORT_NAME, LONG_NAME] {
        bed.ip(&format!("link property add dev {real} altname {name}"));
        let drop = ["--rule", "drop protocol=udp"];
        for verb in [
            &["capture", "-i", name, "-q", "--duration", "200ms"][..],
            &["ledger", name, "--once", "--no-trace", "-i", "200ms"],
            &["top", name, "--once", "-i", "200ms"],
            &["top", name, "--settings"],
            &words(&format!("gen {name} --udp --dst 198.18.0.1 --dst-mac 02:00:00:00:00:09 --rate 10 --count 1")),
            &["spread", "plan", name],
        ] {
            let output = evenkeel(&bed, verb);
            let printed = printed(&output);
            assert!(output.status.code().is_some_and(|code| code < 2), "{verb:?}: {printed}");
        }
        let plan = bed.shield_does(&[&["plan", name][..], &drop].concat());
        assert!(text(&plan.stdout).contains(&format!("device \"{real}\"")), "{}", text(&plan.stdout));
        let unit = bed.shield_does(&["unit", name, "--rules", &rules]);
        assert!(text(&unit.stdout).contains(&format!("run {real} ")), "{}", text(&unit.stdout));
    }
    // A shield is kept, and found, under the one name that the interface has.
    bed.interface = SHORT_NAME.to_owned();
    bed.run(&rules, &[]);
    for name in [real.as_str(), SHORT_NAME, LONG_NAME] {
        assert_eq!(
            json(&bed.shield_does(&["status", name, "--json", "--interval", "0.1"]))["interface"],
            real.as_str()
        );
        bed.shield_does(&["reload", name]);
    }
    bed.interface = LONG_NAME.to_owned();
    bed.stop();
}

#[test]
fn a_label_of_an_address_is_refused_with_the_name_of_the_interface() {
    let Some(bed) = ShieldBed::host(EVENKEEL, "eknmB") else { return };
    let (real, label) = (&bed.interface, &format!("{}:1", bed.interface));
    bed.ip(&format!("address add 198.18.0.77/24 dev {real} label {label}"));
    let drop = ["--rule", "drop protocol=udp"];
    for verb in [
        &["capture", "-i", label][..],
        &["ledger", label, "--once"],
        &["top", label, "--once"],
        &["gen", label, "--udp", "--dst", "198.18.0.1", "--rate", "10", "--count", "1"],
        &["spread", "plan", label],
        &[&["shield", "plan", label][..], &drop].concat(),
        &[&["shield", "run", label][..], &drop].concat(),
        &["route", "check", label, real],
        &["link", "serve", label],
    ] {
        let output = evenkeel(&bed, verb);
        let printed = printed(&output);
        assert!(
            output.status.code() == Some(3) && printed.contains("label") && printed.contains(real.as_str()),
            "{verb:?}: {printed}"
        );
    }
}

#[test]
fn an_interface_whose_name_is_no_text_stands_in_nobodys_way() {
    let Some(bed) = ShieldBed::host(EVENKEEL, "eknmC") else { return };
    let odd = std::ffi::OsStr::from_bytes(b"ek\xff\xfeq");
    let mut command = std::process::Command::new("ip");
    command.args(["link", "add", "name"]).arg(odd).args(["type", "veth", "peer", "name", "eknmpeer"]);
    let added = bed.host.run(|| command.output()).expect("ip starts");
    assert!(added.status.success(), "{}", printed(&added));
    for verb in [
        &["spread", "plan", &bed.interface][..],
        &["doctor", "--only", "backlog"],
        &["top", "--once", "--all", "-i", "200ms"],
    ] {
        let output = evenkeel(&bed, verb);
        assert!(output.status.code().is_some_and(|code| code < 2), "{verb:?}: {}", printed(&output));
    }
}

#[test]
fn without_type_information_of_the_kernel_it_is_named() {
    let Some(bed) = ShieldBed::host(EVENKEEL, "eknmD") else { return };
    let script = format!(
        "mount -t tmpfs none /sys/kernel/btf && exec {EVENKEEL} shield run {} --quiet --rule 'drop protocol=udp'",
        bed.interface
    );
    let output = bed.host.command("unshare").args(["-m", "sh", "-c", &script]).output().expect("unshare");
    assert!(output.status.code() == Some(3) && printed(&output).contains("BTF"), "{}", printed(&output));
}
