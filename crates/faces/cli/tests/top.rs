//! `evenkeel top` from outside: what it prints and how it ends.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use testbed::{ended, refused};

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("top").args(arguments).output().expect("the program starts")
}

#[test]
fn one_json_document_on_a_line_for_each_interval() {
    let output = top(&["--json", "--count", "2", "--interval", "0.1"]);
    ended(&output, 0);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        let document: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(document["schema"], "evenkeel.top/1");
        let interval = document["interval_s"].as_f64().expect("a number");
        assert!(interval > 0.0);
        let cores = document["cores"].as_array().expect("cores");
        assert!(!cores.is_empty());
        for core in cores {
            let part = |name: &str| core[format!("{name}_percent")].as_f64().expect("a number");
            let sum: f64 = ["user", "system", "irq", "softirq", "steal", "idle"].map(part).iter().sum();
            assert!((sum - 100.0).abs() < 1e-6, "the parts add up: {core}");
        }
        assert!(document["interfaces"].as_array().is_some_and(|list| !list.is_empty()), "no interface: {line}");
    }
}

#[test]
fn text_without_a_terminal_ends_by_itself() {
    let output = top(&["--once", "--all", "--interval", "0.1"]);
    ended(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("INTERFACE") && text.contains("SOFT"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('─'), "plain text for a pipe: {text}");
}

#[test]
fn in_the_background_of_a_terminal_there_is_no_view_and_nothing_stops() {
    // With `tostop` a line from the background stops a job too.
    let job =
        format!("stty tostop; '{}' top --interval 0.1 & wait $!; echo ended by $?", env!("CARGO_BIN_EXE_evenkeel"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &format!("bash -mc \"{job}\""), "/dev/null"]);
    let output = script.output().expect("script starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("interval 0.10 s") && text.contains("ended by 0"), "{text}");
    assert!(!text.contains("\u{1b}[?1049h"), "no screen of its own: {text}");
}

#[test]
fn a_view_ends_with_its_terminal() {
    for verb in ["top", "ledger --no-trace"] {
        let folder = tempfile::tempdir().expect("a folder");
        let code = folder.path().join("code");
        // The shell ignores SIGHUP and writes the exit code, which is 134 for a program that aborts.
        let program = env!("CARGO_BIN_EXE_evenkeel");
        let job = folder.path().join("job");
        let text = format!("trap : HUP\n'{program}' {verb} --interval 0.1\necho $? > '{}'\n", code.display());
        std::fs::write(&job, text).expect("a file");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &format!("exec bash '{}'", job.display()), "/dev/null"]);
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
        let mut shown = BufReader::new(script.stdout.take().expect("its output"));
        shown.read_until(b'h', &mut Vec::new()).expect("the view begins");
        thread::sleep(Duration::from_millis(300));
        script.kill().expect("the terminal closes");
        script.wait().expect("it has");
        let read = || std::fs::read_to_string(&code).unwrap_or_default();
        testbed::wait("the program has ended", || read().ends_with('\n'));
        assert_eq!(read(), "0\n", "{verb}");
    }
}

#[test]
fn a_terminal_without_a_cursor_gets_text() {
    for verb in ["top", "ledger --no-trace"] {
        for term in ["dumb", ""] {
            let job = format!("'{}' {verb} --interval 0.1 --count 2", env!("CARGO_BIN_EXE_evenkeel"));
            let mut script = Command::new("script");
            script.args(["--quiet", "--return", "--command", &job, "/dev/null"]).env("TERM", term);
            // The count bounds the text too; a view would end by it as well.
            let output = script.output().expect("script starts");
            ended(&output, 0);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(!text.is_empty() && !text.contains('\u{1b}'), "{verb} with TERM={term}: {text:?}");
        }
    }
}

#[test]
fn wrong_use_says_what_and_ends_with_2() {
    for (arguments, says) in [
        (["--root", "x.tar"].as_slice(), "--settings"),
        (["--interval", "0"].as_slice(), "--interval"),
        (["--once", "--count", "2"].as_slice(), "cannot be used with"),
    ] {
        refused(&top(arguments), 2, &[says]);
    }
}
