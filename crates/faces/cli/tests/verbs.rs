//! What holds for every verb: --json is JSON or refused, an interface that is not there is 3.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output, Stdio},
};

use assert_cmd::cargo::CommandCargoExt;
use testbed::{privileged, text};

fn run(line: &str) -> Output {
    Command::cargo_bin("evenkeel").unwrap().args(line.split(' ')).stdin(Stdio::null()).output().unwrap()
}

/// The verbs below `path`, by the help.
fn verbs(path: &str) -> Vec<String> {
    let help = text(&run(format!("{path} --help").trim_start()).stdout);
    // A verb is the first word of a line, with its description two blanks behind it.
    let verb = |line: &str| {
        let (name, _) = line.strip_prefix("  ")?.split_once("  ")?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        (is_name && name != "help").then(|| format!("{path} {name}").trim().to_owned())
    };
    help.lines().take_while(|line| *line != "Options:").filter_map(verb).collect()
}

fn all_verbs() -> Vec<String> {
    let mut all = verbs("");
    let below: Vec<String> = all.iter().flat_map(|verb| verbs(verb)).collect();
    all.extend(below);
    all
}

/// A verb with arguments that end soon, and what else is true of it.
enum Json {
    /// It is run with `--json` at the end: JSON, or refused with 2.
    Run(&'static str),
    /// It takes minutes or stays: that the flag is there is looked up in its help.
    Help,
}

fn json_of(verb: &str) -> Option<Json> {
    use Json::{Help, Run};
    Some(match verb {
        "demo" | "bench flood" | "profile sweep" | "shield run" | "route run" => Help,
        "bench" => Run("bench --dry-run"),
        "top" => Run("top --once --interval 0.1"),
        "ledger" => Run("ledger --once --interval 0.1"),
        "profile" => Run("profile --duration 100ms"),
        "spread" => Run("spread --root SAVED"),
        "spread plan" => Run("spread plan --root SAVED"),
        "spread members" => Run("spread members --root SAVED"),
        "spread apply" => Run("spread apply lo --dry-run --state FOLDER"),
        "spread status" => Run("spread status --interval 0.05 --state FOLDER"),
        "spread watch" => Run("spread watch --count 1 --interval 0.1 --dry-run --state FOLDER"),
        "doctor" => Run("doctor --root SAVED"),
        "doctor compare" => Run("doctor compare FOLDER/none FOLDER/none"),
        "shield" => Run("shield status lo"),
        "shield list" => Run("shield list"),
        "shield status" => Run("shield status lo"),
        "shield reload" => Run("shield reload lo"),
        "shield stop" => Run("shield stop lo"),
        "shield check" => Run("shield check FOLDER/rules.toml"),
        "shield explain" => Run("shield explain FOLDER/none --rules FOLDER/rules.toml"),
        "shield plan" => Run("shield plan lo --rules FOLDER/rules.toml"),
        "shield unit" => Run("shield unit lo --rules FOLDER/rules.toml"),
        "route" | "route status" => Run("route status"),
        "route mode" => Run("route mode standard"),
        "route cpus" => Run("route cpus 0"),
        "route rules" => Run("route rules"),
        "route compare" => Run("route compare --dry-run"),
        "route check" => Run("route check lo lo"),
        "route reload" => Run("route reload"),
        "route stop" => Run("route stop"),
        "route unit" => Run("route unit lo lo"),
        "link unit" => Run("link unit lo --cluster 10.0.0.0/24"),
        "link serve" | "link bench" => Help,
        "link" | "link status" => Run("link status"),
        "link nodes" => Run("link nodes lo"),
        "link ping" => Run("link ping ek-none"),
        "link check" => Run("link check"),
        "link copy" => Run("link copy FOLDER/rules.toml ek-none:x"),
        "link speedup" => Run("link speedup --nodes 1,2,3 --step 1ms --repeats 3 --count 1"),
        // It becomes the program, which has flags of its own.
        "link run" => Run("link run"),
        "link stop" => Run("link stop"),
        "report" => Run("report show FOLDER/none"),
        "report show" => Run("report show FOLDER/none"),
        "report compare" => Run("report compare FOLDER/none FOLDER/none"),
        "keep" => Run("keep --etc FOLDER --state FOLDER"),
        "keep status" => Run("keep status --etc FOLDER --state FOLDER"),
        "keep add" => Run("keep add spread lo --etc FOLDER"),
        "keep run" => Run("keep run --once --etc FOLDER --state FOLDER"),
        "keep off" => Run("keep off ek-none --etc FOLDER --state FOLDER"),
        "keep unit" => Run("keep unit"),
        "undo" => Run("undo --list --state FOLDER"),
        "confirm" => Run("confirm --state FOLDER"),
        "clean" => Run("clean --dry-run"),
        "capture" => Run("capture lo --duration 0.1 --quiet"),
        "gen" => Run("gen lo --udp --rate 10 --duration 100ms"),
        "snapshot" => Run("snapshot FOLDER/saved.tar"),
        "selftest" => Run("selftest"),
        "completions" => Run("completions bash"),
        "man" => Run("man FOLDER"),
        _ => return None,
    })
}

/// Each line is a document, or all of it is one.
fn is_json(text: &str) -> bool {
    let one = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok_and(|v| v.is_object());
    one(text) || (!text.trim().is_empty() && text.lines().all(one))
}

fn with_places(line: &str, folder: &Path) -> String {
    let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/dual-socket-24cpu.tar");
    line.replace("FOLDER", folder.to_str().unwrap()).replace("SAVED", saved.to_str().unwrap())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.toml"), "[[rule]]\nname = \"all\"\naction = \"drop\"\n").unwrap();
    folder
}

#[test]
fn json_is_json_or_refused() {
    let Some(()) = privileged() else { return };
    let folder = folder();
    let mut wrong = Vec::new();
    for verb in all_verbs() {
        let Some(how) = json_of(&verb) else {
            wrong.push(format!("{verb}: a new verb: say in this table how it is tried"));
            continue;
        };
        match how {
            Json::Help if !text(&run(&format!("{verb} --help")).stdout).contains("--json") => {
                wrong.push(format!("{verb}: its help knows no --json"));
            }
            Json::Help => {}
            Json::Run(line) => {
                let output = run(&format!("{} --json", with_places(line, folder.path())));
                let (code, out) = (output.status.code(), text(&output.stdout));
                // What is lacking is told on stderr, with nothing on stdout.
                let refused = matches!(code, Some(1..=3)) && out.is_empty() && !output.stderr.is_empty();
                if !refused && !is_json(&out) {
                    wrong.push(format!("{line} --json: code {code:?}, {out:.200}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // What is less usual than the plain verb.
    for line in [
        "undo --state FOLDER",
        "doctor --list",
        "doctor --dry-run",
        "doctor --fix --dry-run --root SAVED",
        "top --settings",
        "top --settings --root SAVED",
        "spread apply lo --dry-run",
    ] {
        let output = run(&format!("{} --json", with_places(line, folder.path())));
        let out = text(&output.stdout);
        let refused = matches!(output.status.code(), Some(2 | 3)) && out.is_empty();
        assert!(refused || is_json(&out), "{line} --json: {out:.200}");
        if !out.is_empty() {
            let document: serde_json::Value = serde_json::from_str(&out).unwrap();
            let schema = document["schema"].as_str().unwrap_or_default();
            assert!(schema.starts_with("evenkeel.") && schema.ends_with("/1"), "{line} --json: {out:.200}");
        }
    }
}

/// The same in a mount namespace in which an empty file system lies over `over`.
fn run_without(over: &str, line: &str) -> Output {
    let script = format!("mount --make-rprivate / && mount -t tmpfs none {over} && exec \"$0\" \"$@\"");
    let program = Command::cargo_bin("evenkeel").unwrap();
    // Whoever does not refuse may go on for minutes.
    let mut command = Command::new("timeout");
    command.args(["20", "unshare", "--mount", "sh", "-c", &script]).arg(program.get_program()).args(line.split(' '));
    command.stdin(Stdio::null()).output().unwrap()
}

/// Answers that nothing is there would be wrong: it is not seen.
#[test]
fn a_machine_that_cannot_be_read_is_3_in_every_verb() {
    let Some(()) = privileged() else { return };
    let folder = folder();
    let mut wrong = Vec::new();
    for verb in all_verbs() {
        let line = match (verb.as_str(), json_of(&verb)) {
            ("shield run", _) => "shield run lo --rules FOLDER/rules.toml",
            ("route run", _) => "route run lo lo",
            ("link serve", _) => "link serve lo",
            ("link run", _) => "link run true",
            ("bench", _) => "bench",
            (verb, Some(Json::Help)) => verb,
            // Of a saved machine they answer.
            ("spread" | "spread plan" | "spread members", _) => verb.as_str(),
            ("doctor", _) => "doctor",
            (_, Some(Json::Run(line))) => line,
            (_, None) => continue,
        };
        let line = with_places(line, folder.path());
        let word = line.split(' ').next().unwrap_or_default();
        let is_pure = matches!(word, "report" | "completions" | "man")
            || ["shield explain", "shield plan", "doctor compare"].contains(&verb.as_str());
        let needs_broker = ["", " status", " ping", " check", " copy", " run", " stop"].map(|end| format!("link{end}"));
        for over in ["/proc", "/sys"] {
            let output = run_without(over, &line);
            let (code, err) = (output.status.code(), text(&output.stderr));
            let refused = code == Some(3) && err.starts_with(&format!("evenkeel: {over} is not mounted here"));
            let is_one = err.lines().count() == 1 && output.stdout.is_empty();
            let goes_on = is_pure || (over == "/sys" && needs_broker.contains(&verb));
            if goes_on == refused || (refused && !is_one) {
                wrong.push(format!("{line} without {over}: code {code:?}, {err:.300}"));
            }
        }
    }
    // What was saved elsewhere is looked at anywhere.
    for line in
        ["spread --root SAVED", "spread members --root SAVED", "doctor --root SAVED", "top --settings --root SAVED"]
    {
        for over in ["/proc", "/sys"] {
            let output = run_without(over, &with_places(line, folder.path()));
            if !matches!(output.status.code(), Some(0 | 1)) {
                wrong.push(format!("{line} without {over}: {:.300}", text(&output.stderr)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_interface_that_is_not_there_is_3_in_every_verb() {
    let Some(()) = privileged() else { return };
    let folder = folder();
    let mut wrong = Vec::new();
    for line in [
        "top ek-none --once --interval 0.1",
        "top ek-none --settings",
        "ledger ek-none --once --interval 0.1",
        "profile --per ek-none --duration 100ms",
        "spread plan ek-none",
        "spread plan ek-none --root SAVED",
        "spread members ek-none",
        "spread apply ek-none --dry-run",
        "spread status ek-none --interval 0.05",
        "spread watch ek-none --once",
        "capture ek-none",
        "capture -i ek-none",
        "gen ek-none --udp --rate 10",
        "bench --ports ek-none,ek-other",
        "selftest ek-none",
        "shield run ek-none --rules FOLDER/rules.toml",
        "shield status ek-none",
        "shield stop ek-none",
        "shield reload ek-none",
        "shield plan ek-none --rules FOLDER/rules.toml",
        "shield unit ek-none --rules FOLDER/rules.toml",
        "shield unit --between lo,ek-none --rules FOLDER/rules.toml",
        "route check ek-none lo",
        "route unit lo ek-none",
        "route run ek-none lo",
    ] {
        let output = run(&with_places(line, folder.path()));
        let message = text(&output.stderr);
        if output.status.code() != Some(3) || !message.contains("ek-none") {
            wrong.push(format!("{line}: {:?} {message}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_verb_is_in_the_help_and_has_one() {
    let all: BTreeSet<String> = all_verbs().into_iter().collect();
    for verb in ["completions", "man", "clean", "undo", "confirm", "shield run", "spread apply"] {
        assert!(all.contains(verb), "{verb}: {all:?}");
    }
    for verb in &all {
        assert!(run(&format!("{verb} --help")).status.success(), "{verb}");
    }
}

#[test]
fn the_labs_of_killed_runs_are_cleaned_and_no_others() {
    let Some(()) = privileged() else { return };
    let ip = |args: &[&str]| Command::new("ip").args(["netns"]).args(args).output().unwrap();
    // A process of that number cannot be; and a name that only looks like one of ours.
    let (dead, alien) = ("ek-8388609-1-test-a", "ek-verbs-alien");
    for name in [dead, alien] {
        assert!(ip(&["add", name]).status.success());
    }
    let shown = text(&run("clean --dry-run").stdout);
    assert!(shown.contains(&format!("ip netns delete {dead}")) && !shown.contains(alien), "{shown}");
    assert!(Path::new("/run/netns").join(dead).exists(), "a dry run removes nothing");
    let json: serde_json::Value = serde_json::from_slice(&run("clean --json").stdout).unwrap();
    let removed = json["namespaces"].as_array().unwrap();
    // Another test of this machine may have been faster: then it is gone all the same.
    let gone = !Path::new("/run/netns").join(dead).exists();
    let kept = Path::new("/run/netns").join(alien).exists();
    assert!(ip(&["delete", alien]).status.success());
    assert!(gone && kept && !removed.iter().any(|n| n == alien), "{json}");
}
