//! The rule table against stacks of several kernels (`stacks/README.md`).

use std::{collections::BTreeMap, fs, path::Path};

use model::{
    profile::{Class, Profile},
    run::Machine,
};
use profile::{Seen, Tally};

/// A line of a file of stacks.
struct Expected<'a> {
    line: usize,
    class: Class,
    seen: Seen<'a>,
}

fn parse(text: &str) -> Vec<Expected<'_>> {
    let parse = |(i, line)| -> Option<Expected<'_>> {
        let line: &str = line;
        let mut words = line.split(' ');
        let samples = words.next()?.parse().ok()?;
        let class = Class::from_key(words.next()?)?;
        let comm = words.next()?;
        let frames: Vec<&str> = words.next().map(|f| f.split(';').collect()).unwrap_or_default();
        Some(Expected {
            line: i + 1,
            class,
            seen: Seen { ours: false, cpu: 0, comm, user: frames.is_empty(), frames, samples },
        })
    };
    text.lines().enumerate().map(|l| parse(l).unwrap_or_else(|| panic!("line {}: {}", l.0 + 1, l.1))).collect()
}

fn files(folder: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stacks").join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
    });
    files.collect()
}

fn profile_of<'a>(stacks: impl IntoIterator<Item = &'a Seen<'a>>) -> Profile {
    let mut tally = Tally::new();
    for seen in stacks {
        tally.add(seen);
    }
    tally.profile(1.0, &BTreeMap::new(), None, Profile::new(String::new(), Machine::default(), 997))
}

#[test]
fn every_stack_has_the_class_it_is_to_have() {
    let mut wrong = Vec::new();
    let mut stacks = 0;
    for folder in ["6.18", "composed"] {
        for (file, text) in files(folder) {
            for expected in parse(&text) {
                let got = profile_of([&expected.seen]).dearest_or_idle();
                stacks += 1;
                if got != expected.class {
                    let what = expected.seen.frames.join(";");
                    wrong.push(format!("{folder}/{file}:{}: {got}, not {}: {what}", expected.line, expected.class));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {stacks} stacks:\n{}", wrong.len(), wrong.join("\n"));
    assert!(stacks > 500, "{stacks} stacks");
}

#[test]
fn little_of_what_was_recorded_is_unclassified() {
    for (file, text) in files("6.18") {
        let stacks = parse(&text);
        let profile = profile_of(stacks.iter().map(|e| &e.seen));
        assert!(profile.percent(Class::Unclassified) < 3.0, "{file}: {}", profile.percent(Class::Unclassified));
    }
}

#[test]
fn recorded_work_shows_in_the_class_of_its_scenario() {
    let files = files("6.18");
    let percent = |file: &str, class: Class| {
        let stacks = parse(&files[&format!("{file}.txt")]);
        profile_of(stacks.iter().map(|e| &e.seen)).percent_of_busy(class)
    };
    for (file, class) in [
        ("route", Class::Ip),
        ("nft", Class::Netfilter),
        ("conntrack", Class::Netfilter),
        ("bridge", Class::Bridge),
        ("ring", Class::Taps),
        ("tap", Class::Receive),
        ("xdp", Class::Bpf),
        ("xdpdrop", Class::Bpf),
        ("iperf", Class::Copying),
        ("tbf", Class::Transmit),
    ] {
        assert!(percent(file, class) > 5.0, "{file}: {class} {:.1} %", percent(file, class));
    }
    for (file, class) in
        [("route", Class::Netfilter), ("xdpdrop", Class::Ip), ("iperf", Class::Taps), ("nft", Class::Bridge)]
    {
        assert!(percent(file, class) < 1.0, "{file}: {class} {:.1} %", percent(file, class));
    }
}

/// The only class of a profile of one stack.
trait OnlyClass {
    fn dearest_or_idle(&self) -> Class;
}

impl OnlyClass for Profile {
    fn dearest_or_idle(&self) -> Class {
        assert_eq!(self.classes.len(), 1);
        self.classes[0].class
    }
}
