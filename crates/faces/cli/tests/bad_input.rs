//! Bad input of `spread`, `undo`, `top`: one clear message with the cause and the way out, the right exit code, and the
//! machine as it was.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::MutexGuard,
};

use assert_cmd::cargo::CommandCargoExt;
use nix::fcntl::{Flock, FlockArg};
use testbed::{Kept, fixture, refused, skip, steering, unspread};

fn evenkeel() -> Command {
    Command::cargo_bin("evenkeel").unwrap()
}

fn run(args: &[&str]) -> Output {
    evenkeel().args(args).output().unwrap()
}

/// Every affinity and steering mask of the machine.
fn settings() -> Vec<(PathBuf, String)> {
    steering().into_iter().filter_map(|p| Some((p.clone(), fs::read_to_string(p).ok()?))).collect()
}

/// The turn of a test in which `spread apply` has something to do on this machine; none, with the reason said, elsewhere.
fn turn() -> Option<(Kept, MutexGuard<'static, ()>)> {
    let turn = testbed::turn()?;
    let files = steering();
    let kept = Kept::new(files.clone());
    unspread(&files);
    let plan = run(&["spread", "plan", "--shell"]);
    let has_work = plan.status.success() && String::from_utf8_lossy(&plan.stdout).lines().any(|l| !l.starts_with('#'));
    if !has_work {
        skip("this machine has no interrupts to spread");
        return None;
    }
    Some((kept, turn))
}

#[test]
fn a_saved_machine_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let tar = fs::read(fixture("dual-socket-24cpu")).unwrap();
    fs::write(place("cut.tar"), &tar[..tar.len() / 3 + 77]).unwrap();
    fs::write(place("text"), "hello\n").unwrap();
    fs::write(place("nothing"), "").unwrap();
    fs::create_dir(place("empty")).unwrap();
    for (name, words) in [
        ("cut.tar", ["not a complete plain tar", "save it again"]),
        ("text", ["not a complete plain tar", "save it again"]),
        ("nothing", ["neither proc/ nor sys/", "evenkeel snapshot"]),
        ("empty", ["neither proc/ nor sys/", "evenkeel snapshot"]),
        ("missing", ["No such file", "evenkeel snapshot"]),
    ] {
        for verb in ["plan", "members"] {
            refused(&run(&["spread", verb, "--root", place(name).to_str().unwrap()]), 2, &words);
        }
    }
}

#[test]
fn a_saved_machine_that_lacks_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let unpacked = Command::new("tar").arg("xf").arg(fixture("dual-socket-24cpu")).args(["-C", root]).status();
    assert!(unpacked.unwrap().success());
    let lose = |rel: &str| {
        let path = folder.path().join(rel);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    };
    let plan = || run(&["spread", "plan", "--root", root]);
    lose("ethtool");
    assert!(plan().status.success(), "the plan needs no ethtool answers");
    lose("proc/irq");
    let output = plan();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("smp_affinity_list"));
    for part in ["proc/interrupts", "sys/class/net", "sys/devices/system/cpu"] {
        let aside = folder.path().join("aside");
        fs::rename(folder.path().join(part), &aside).unwrap();
        refused(&plan(), 3, &[part, "does not exist in the saved copy"]);
        fs::rename(&aside, folder.path().join(part)).unwrap();
    }
}

#[test]
fn an_unknown_interface_is_answered_with_those_there_are() {
    let saved = fixture("dual-socket-24cpu");
    let saved = saved.to_str().unwrap();
    for args in [
        vec!["spread", "plan", "ek-none"],
        vec!["spread", "apply", "ek-none"],
        vec!["spread", "status", "ek-none"],
        vec!["spread", "members", "ek-none"],
        vec!["top", "ek-none", "--once"],
        vec!["gen", "ek-none", "--udp", "--rate", "1"],
    ] {
        refused(&run(&args), 3, &["no interface `ek-none` in this network namespace", "lo"]);
    }
    refused(&run(&["spread", "plan", "ek-none", "--root", saved]), 3, &["ek-none", "eth0, eth1"]);
}

#[test]
fn a_flag_of_tcpdump_is_named_as_it_is_called_here_and_no_interface_lists_them() {
    for (line, named) in [
        ("capture lo -C 10", "-w FILE"),
        ("capture lo -G 10 -w x.pcap", "--rotate-interval"),
        ("capture lo -W 10", "-C"),
        ("capture lo -Q up", "inout"),
        ("capture -r x --count", "--count-only"),
        ("capture -r x --count udp", "--count-only"),
        ("capture lo -Z nobody", "by itself"),
        ("capture lo -d", "tcpdump -d"),
        ("capture lo -B 4096", "--buffer"),
        ("capture lo -K", "not checked"),
        ("capture lo -F f", "command line"),
        ("capture lo -I", "monitor"),
        ("capture lo -j host", "those of the kernel"),
        ("capture lo -L", "link type"),
        ("capture lo --time-stamp-precision=nano", "nanoseconds"),
        ("capture lo --dont-verify-checksums", "not checked"),
        ("capture lo -nn -z gzip", "whole"),
        ("capture lo -#", "cat -n"),
        ("capture", "There are: lo"),
        ("capture -nlSU", "There are: lo"),
    ] {
        refused(&run(&line.split(' ').collect::<Vec<_>>()), 2, &[named]);
    }
}

/// A word that is no command, an argument that is spelled like another one, a file that is not there.
#[test]
fn a_wrong_word_is_answered_with_the_right_ones() {
    refused(&run(&["spread", "show"]), 3, &["no interface `show`", "status", "watch"]);
    refused(&run(&["doctor", "eth0"]), 2, &["`eth0`", "--only"]);
    let printed = |args: &[&str]| String::from_utf8_lossy(&run(args).stderr).into_owned();
    let bogus = printed(&["capture", "--bogus"]);
    assert!(
        bogus.contains("--bogus") && !bogus.contains("--blocks <N>"),
        "no usage with what nobody asked for: {bogus}"
    );
    let both = printed(&["shield", "run"]);
    assert!(both.contains("<INTERFACE>") && both.contains("--between <A,B>"), "{both}");
    let file = printed(&["capture", "-r", "ek-none.pcap"]);
    assert_eq!(file.matches("ek-none.pcap").count(), 1, "{file}");
}

#[test]
fn wrong_arguments_are_named_before_anything_is_made() {
    for (line, named) in [
        ("profile sweep --duration 0.1", "--duration"),
        ("profile sweep --cpus 4000", "CPU 4000"),
        ("profile sweep --dut toaster", "capture"),
        ("profile sweep --loads 0", "a number of loads from 1 to 50"),
        ("profile sweep --repeats 0", "a number of repeats from 1 to 20"),
        ("profile sweep --html /no/such/folder/x.html", "/no/such/folder/x.html"),
        ("route compare --duration 10ms", "--duration"),
        ("route compare --cpus 4000", "CPU 4000"),
        ("route compare --modes shadow", "stateful"),
        ("route compare --loads 0", "a number of loads from 1 to 50"),
        ("route compare --repeats 0", "a number of rounds from 1 to 20"),
        ("route compare --loss-ratio 60%", "60%"),
        ("route compare --html /no/such/folder/x.html", "/no/such/folder/x.html"),
        ("demo --duration 0", "--duration"),
        ("demo --cpus 4000", "online are"),
        ("demo --rate 3", "--rate takes"),
        ("demo --html /no/such/folder/page.html", "cannot write /no/such/folder/page.html"),
        ("bench --ports eth2", "eth2 alone is named"),
        ("bench --ports eth2,eth2", "eth2 is named twice"),
        ("bench --ports a,b,c", "3 ports are named"),
        ("bench --ports a,b --dut router", "cannot be used with"),
        ("bench --dut toaster", "`toaster`; there are wire, router"),
        ("bench --tests speed", "`speed`; there are throughput, loss"),
        ("bench --preset fast", "`fast`; there are quick, study"),
        ("bench --flows 0", "--flows takes 1 to 1000000, not 0"),
        ("bench --flows 1000001", "not 1000001"),
        ("bench --sizes 63", "63 bytes"),
        ("bench --sizes 64 --ipv6", "ask for 84"),
        ("bench --sizes 2000", "take an MTU of 1982"),
        ("bench --sizes x", "x"),
        ("bench --datagrams=70000", "65507"),
        ("bench --loss-ratio 60%", "from 0 to 50 %"),
        ("bench --duration 0", "--duration"),
        ("bench --repeats 0", "a number of trials from 1 to 1000"),
        ("bench --rule-count 0", "a number of rules from 1 to 100000"),
        ("bench --cpus 4000", "CPU 4000"),
        ("bench --pcap /no/such/file.pcap", "/no/such/file.pcap"),
        ("bench --resume /no/such/run.json", "cannot read the run /no/such/run.json"),
        ("bench --resume x.json --flows 3", "cannot be used with"),
        ("spread --cpus 0-8000", "there is no CPU"),
        ("spread --cpus 3-1", "runs backwards"),
        ("spread --coalesce rx-usecs=many", "is not a number"),
        ("undo no-such-session --state /nonexistent", "no session `no-such-session`"),
    ] {
        let output = run(&line.split(' ').collect::<Vec<_>>());
        // Who may write nowhere and measure nothing is told that first.
        if nix::unistd::geteuid().is_root() || !String::from_utf8_lossy(&output.stderr).contains("run as root") {
            refused(&output, 2, &[named]);
            assert!(output.stdout.is_empty(), "{line}");
        }
    }
    refused(&run(&["spread", "plan", "ek-no-such"]), 3, &["ek-no-such"]);
}

#[test]
fn what_is_no_number_is_answered_with_one() {
    for (line, words) in [
        ("spread --rfs x", ["'x' for '--rfs <N>'", "a number of flows, such as 32768"]),
        ("demo --rate fast", ["'fast' for '--rate <RATE>'", "such as 250000, 100k or 1.5Mpps"]),
        ("doctor --fix --measure 601", ["'601' for '--measure <TIME>'", "from 1s to 10m"]),
        ("capture lo --snaplen 1x", ["'1x' for '--snaplen <BYTES>'", "a number of bytes from 16"]),
    ] {
        refused(&run(&line.split(' ').collect::<Vec<_>>()), 2, &words);
    }
    // The units of `gen` are read, and what is wrong is told next.
    for rate in ["1M", "100k", "1.5Mpps"] {
        refused(&run(&["demo", "--rate", rate, "--cpus", "4095"]), 2, &["--cpus names CPU 4095"]);
    }
}

#[test]
fn a_saved_run_that_is_not_there_is_answered_with_how_one_is_made() {
    for (line, way) in [
        ("report show /ek-none", "evenkeel bench flood --save FILE"),
        ("report compare /ek-none /ek-none", "evenkeel bench --save FILE"),
        ("bench --resume /ek-none", "evenkeel bench --save FILE"),
        ("bench flood --show /ek-none", "evenkeel bench flood --save FILE"),
        ("profile --compare /ek-none /ek-none", "evenkeel profile --save FILE"),
    ] {
        refused(&run(&line.split(' ').collect::<Vec<_>>()), 2, &["/ek-none", "No such file", way]);
    }
}

#[test]
fn one_report_is_compared_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("one.json");
    let saved = fixture("dual-socket-24cpu");
    fs::write(&report, run(&["doctor", "--json", "--root", saved.to_str().unwrap()]).stdout).unwrap();
    let one = report.to_str().unwrap();
    refused(&run(&["doctor", "compare", one]), 2, &["name at least two reports"]);
    assert!(run(&["doctor", "compare", one, one]).status.success());
}

#[test]
fn without_privilege_the_capability_is_named_and_nothing_else_is_reported() {
    let Some(_turn) = turn() else { return };
    let before = settings();
    let program = evenkeel();
    for (args, capability) in [
        (vec!["spread", "apply"], "CAP_NET_ADMIN"),
        (vec!["spread", "watch", "--count", "1"], "CAP_BPF"),
        (vec!["demo"], "CAP_NET_RAW"),
    ] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(program.get_program())
            .args(&args)
            .output()
            .unwrap();
        refused(&output, 3, &[capability, "run as root", &args.join(" ").replace(" --count 1", "")]);
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("setcap"),
            "capabilities are not enough for {args:?}"
        );
        assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(settings(), before);
}

#[test]
fn a_read_only_proc_or_sys_leaves_all_as_it_was() {
    let Some(_turn) = turn() else { return };
    let before = settings();
    let program = evenkeel();
    for mount in ["/proc", "/sys"] {
        let state = tempfile::tempdir().unwrap();
        let script = format!("mount -o remount,ro,bind {mount} && exec \"$0\" spread apply --state \"$1\"");
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .arg(program.get_program())
            .arg(state.path())
            .output()
            .unwrap();
        if String::from_utf8_lossy(&output.stderr).contains("unshare") {
            return skip("no mount namespaces here");
        }
        if output.status.success() && mount == "/sys" {
            // A plan without RPS and XPS writes nothing there.
            assert!(run(&["undo", "--state", state.path().to_str().unwrap()]).status.success());
        } else {
            refused(&output, 3, &["Read-only file system", "with /proc and /sys writable", "Nothing"]);
        }
        assert_eq!(settings(), before);
    }
}

#[test]
fn a_journal_that_cannot_be_kept_or_read_stops_apply_before_the_first_change() {
    let Some(_turn) = turn() else { return };
    let before = settings();
    let folder = tempfile::tempdir().unwrap();
    let apply = |state: &Path| run(&["spread", "apply", "--state", state.to_str().unwrap()]);

    refused(&apply(Path::new("/dev/null")), 3, &["Not a directory", "--state"]);

    let damaged = folder.path().join("journal");
    fs::create_dir(&damaged).unwrap();
    fs::write(damaged.join("1-1.jsonl"), "no record\n").unwrap();
    refused(&apply(folder.path()), 3, &["1-1.jsonl, line 1", "move the file away"]);
    refused(&run(&["undo", "--state", folder.path().to_str().unwrap()]), 3, &["1-1.jsonl, line 1"]);
    fs::remove_file(damaged.join("1-1.jsonl")).unwrap();

    let lock = fs::File::create(damaged.join("lock")).unwrap();
    let held = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
    refused(&apply(folder.path()), 3, &["another evenkeel", "wait until it ends"]);
    drop(held);

    let script =
        "mount -t tmpfs -o size=4k,mode=700 ek \"$1\" && mkdir \"$1/journal\" && head -c 4096 /dev/zero > \"$1/ballast\"
        exec \"$0\" spread apply --state \"$1\"";
    let program = evenkeel();
    let full = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(program.get_program())
        .arg(folder.path())
        .output()
        .unwrap();
    refused(&full, 3, &["No space left on device", "make room", "--state"]);
    assert_eq!(settings(), before);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let saved = fixture("mlx5-64q-128cpu");
    for args in [vec!["spread", "plan", "--full", "--root"], vec!["spread", "members", "--json", "--root"]] {
        let mut child =
            evenkeel().args(&args).arg(&saved).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("panicked") && !stderr.contains("evenkeel:"), "{stderr}");
    }
}
