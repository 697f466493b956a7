//! Runs programs of this machine in an emulated guest, one after the other: `run-in-guest KERNEL EVENKEEL SECONDS [--with PROGRAM]... -- "NAME ARGUMENTS"...`
//!
//! KERNEL is `boot/vmlinuz-RELEASE`. Each PROGRAM lies in /bin of the guest, and each command is one of them with its arguments; it may take SECONDS. Its
//! output and the code it ends with follow its name. It ends with 1 if one of them did not end with 0.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use guest::{Accel, Guest, Kernel, Nic, Root, Settings};

const USAGE: &str = "run-in-guest KERNEL EVENKEEL SECONDS [--with PROGRAM]... -- \"NAME ARGUMENTS\"...";
/// A guest that is emulated answers within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts = words.iter().position(|word| word == "--").map(|at| (&words[..at], &words[at + 1..]));
    let Some(([kernel, evenkeel, seconds, with @ ..], commands)) = parts else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match run([kernel, evenkeel, seconds], with, commands) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("run-in-guest: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(
    [kernel, evenkeel, seconds]: [&String; 3],
    with: &[String],
    commands: &[String],
) -> Result<bool, Box<dyn std::error::Error>> {
    let programs: Vec<PathBuf> = with.iter().filter(|word| *word != "--with").map(PathBuf::from).collect();
    let patience = Duration::from_secs(seconds.parse()?);
    let kernel = Kernel::open(Some(&PathBuf::from(kernel)))?;
    let root = Root::with(&kernel, &Nic::Virtio, &PathBuf::from(evenkeel), (&programs, &[]))?;
    let settings = Settings {
        nic: Nic::Virtio,
        cards: Vec::new(),
        accel: Accel::Emulation,
        cpus: 2,
        memory_mib: 2048,
        traced: false,
        namespace: None,
        within: Vec::new(),
        disk: None,
    };
    let start = || Guest::start(&settings, &kernel, &root, ANSWER_TIMEOUT);
    let mut guest = start()?;
    let mut all = true;
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        println!("== {command}");
        match guest.run(&words, patience) {
            Ok(ran) => {
                print!("{}{}", ran.stdout, ran.stderr);
                println!("-- {command}: {}", ran.code);
                all &= ran.code == 0;
            }
            // The next ones have a guest of their own.
            Err(error) => {
                println!("-- {command}: {error}");
                all = false;
                guest = start()?;
            }
        }
    }
    Ok(all)
}
