//! The interface as programs in C have it: what the header says and the library exports, the examples between two nodes, and wrong arguments.

mod broker;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use broker::Serves;
use testbed::{Bed, End, Running, ended, log, printed, run};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The library that was built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libevenkeel_link.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// Programs that are built like those of a user, against a library that stands where `make install` would put it.
struct Built<'a> {
    bed: &'a Bed,
}

impl<'a> Built<'a> {
    fn new(bed: &'a Bed, sources: &[&str]) -> Self {
        let named = bed.path("libevenkeel_link.so.0");
        fs::copy(library(), &named).unwrap();
        std::os::unix::fs::symlink(&named, bed.path("libevenkeel_link.so")).unwrap();
        let built = Self { bed };
        for source in sources {
            let program = built.path(source);
            run(&format!(
                "cc -Wall -Wextra -Werror -pedantic -O2 -I{FOLDER}/include -o {} {FOLDER}/{source}.c -L{folder} -levenkeel_link",
                program.display(),
                folder = bed.path("").display(),
            ));
        }
        built
    }

    fn path(&self, source: &str) -> PathBuf {
        self.bed.path(Path::new(source).file_name().unwrap().to_str().unwrap())
    }

    fn of(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let mut command = Command::new(self.path(words.next().unwrap()));
        command.args(words).env("LD_LIBRARY_PATH", self.bed.path(""));
        command
    }

    fn start(&self, end: &End, line: &str) -> Running {
        end.run(|| Running::piped(&mut self.of(line)))
    }
}

/// The calls that the header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let code: String = header.split("/*").map(|piece| piece.split_once("*/").map_or(piece, |(_, code)| code)).collect();
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('));
    words
        .filter_map(|word| word.split_once('('))
        .map(|(name, _)| name.to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let header = fs::read_to_string(format!("{FOLDER}/include/evenkeel_link.h")).unwrap();
    let exported = run(&format!("nm -D --defined-only {}", library().display()));
    let exported: BTreeSet<_> = exported.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert!(exported.len() > 10 && exported == declared(&header), "{exported:?}\n{:?}", declared(&header));
    for language in ["-x c -std=c99", "-x c++ -std=c++11"] {
        run(&format!(
            "cc {language} -Wall -Wextra -Werror -pedantic-errors -fsyntax-only {FOLDER}/include/evenkeel_link.h"
        ));
    }
}

#[test]
fn the_program_of_the_docs_is_one() {
    let Some(bed) = Bed::new("linkcd", &[]) else { return };
    let text = fs::read_to_string(format!("{FOLDER}/../../../docs/run/link-c.md")).unwrap();
    let program = text.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    run(&format!(
        "cc -Wall -Wextra -Werror -pedantic -I{FOLDER}/include -fsyntax-only {}",
        bed.file("docs.c", program)
    ));
}

fn there_and_back(tag: &str, by_sockets: bool) {
    let Some((bed, [left, right])) = Bed::pair(tag) else { return };
    let built = Built::new(&bed, &["examples/pingpong", "examples/pipe"]);
    let (a, b) = (Serves::start(&left, "A", by_sockets), Serves::start(&right, "B", by_sockets));
    a.knows("B");
    let assert_printed = |server: Running, client: Running, words: &str| {
        let text = ended(&client.output(), 0);
        assert!(text.contains(words), "{text}");
        let text = ended(&server.output(), 0);
        b.has_nobody();
        text
    };
    for mode in ["", " --epoll"] {
        let server = built.start(&right, &format!("pingpong server 2000{mode}"));
        b.has_listener(2000);
        let client = built.start(&left, &format!("pingpong client B 2000 500 3000{mode}"));
        assert_printed(server, client, "500 messages of 3000 bytes there and back");
    }
    let sink = built.start(&right, "pingpong sink 2000");
    b.has_listener(2000);
    let text =
        assert_printed(sink, built.start(&left, "pingpong source B 2000 5000 200"), "5000 messages of 200 bytes");
    assert!(text.contains("5000 messages, 1000000 bytes"), "{text}");

    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (file, copy) = (bed.file("file", &bytes), bed.path("copy"));
    let stdout = fs::File::create(&copy).unwrap();
    let get = right.run(|| Running::start(built.of("pipe get 2000").stdout(stdout).stderr(Stdio::piped())));
    b.has_listener(2000);
    let stdin = fs::File::open(&file).unwrap();
    let put = left.run(|| Running::start(built.of("pipe put B 2000").stdin(stdin).stderr(Stdio::piped())));
    assert_printed(get, put, "");
    assert!(fs::read(&copy).unwrap() == bytes, "{} bytes arrived", log(&copy).len());
}

#[test]
fn the_examples_run_on_rings() {
    there_and_back("linkcr", false);
}

#[test]
fn the_examples_run_on_sockets() {
    there_and_back("linkcs", true);
}

#[test]
fn wrong_arguments_and_what_goes_away_are_named() {
    let Some((bed, [left, right])) = Bed::pair("linkcw") else { return };
    let built = Built::new(&bed, &["examples/pingpong", "tests/wrong"]);
    ended(&built.start(&left, "wrong").output(), 0);
    let mut a = Serves::start(&left, "A", false);
    let b = Serves::start(&right, "B", false);
    let server = built.start(&right, "pingpong server 2000");
    b.has_listener(2000);
    let mut command = built.of("wrong broker");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut wrong = left.run(|| Running::start(&mut command));
    let mut requests = BufReader::new(wrong.child().stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut answers = wrong.child().stdin.take().unwrap();
    let mut expect_line = |what: &str| assert_eq!(requests.next().as_deref(), Some(what));
    expect_line("stop the broker");
    a.end();
    answers.write_all(b"\n").unwrap();
    expect_line("kill the server");
    server.kill();
    answers.write_all(b"\n").unwrap();
    let output = wrong.output();
    assert!(output.status.success(), "{}: {:?}", printed(&output), requests.next());
}
