//! The guest's first process: it loads modules, and then obeys orders on its second serial port.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::fd::AsFd,
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::{
    kmod::{ModuleInitFlags, finit_module},
    mount::{MsFlags, mount},
    sys::{
        signal::{Signal, kill},
        termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr},
    },
    unistd::Pid,
};

use crate::{
    root::ORDER,
    words::{Answer, Order, Ran},
};

/// The port of orders.
const PORT: &str = "/dev/ttyS1";
/// Files that a program's outputs go to.
const STDOUT: &str = "/tmp/stdout";
const STDERR: &str = "/tmp/stderr";
/// File systems and their mount points; those that a kernel lacks are skipped.
const MOUNTS: [(&str, &str); 8] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tracefs", "/sys/kernel/tracing"),
];

/// True for the first process of a system whose root was made for a guest.
pub fn is_here() -> bool {
    std::process::id() == 1 && Path::new(ORDER).exists()
}

/// Is it. It ends with the guest.
///
/// # Errors
/// In words, for the console: there is no port, or it closes.
pub fn run() -> Result<(), String> {
    for (kind, at) in MOUNTS {
        // Mounted already, or unknown to this kernel: what needs it says so.
        let _ = mount(Some(kind), at, Some(kind), MsFlags::empty(), None::<&str>);
    }
    for module in fs::read_to_string(ORDER).unwrap_or_default().lines() {
        load(module).unwrap_or_else(|why| console(&format!("evenkeel: module {module}: {why}")));
    }
    let port = OpenOptions::new().read(true).write(true).open(PORT).map_err(|e| format!("{PORT}: {e}"))?;
    raw(&port)?;
    let lines = BufReader::new(port.try_clone().map_err(|e| e.to_string())?).lines();
    let mut port = port;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    say(&mut port, &Answer::Up(release.trim().to_owned()))?;
    let mut started = None;
    for line in lines {
        let line = line.map_err(|e| e.to_string())?;
        let answer = match serde_json::from_str(&line) {
            Ok(order) => obey(order, &mut started),
            Err(e) => Answer::Failed(e.to_string()),
        };
        say(&mut port, &answer)?;
    }
    Err(format!("{PORT} was closed"))
}

/// Writes a line to the console.
pub fn console(line: &str) {
    // There is no other place to say it.
    let _ = fs::write("/dev/console", format!("{line}\n"));
}

fn load(module: &str) -> Result<(), String> {
    let file = File::open(module).map_err(|e| e.to_string())?;
    match finit_module(file, c"", ModuleInitFlags::empty()) {
        Err(nix::errno::Errno::EEXIST) => Ok(()),
        done => done.map_err(|e| e.to_string()),
    }
}

/// Every byte as it is, without an echo.
fn raw(port: &File) -> Result<(), String> {
    let mut settings = tcgetattr(port.as_fd()).map_err(|e| e.to_string())?;
    cfmakeraw(&mut settings);
    tcsetattr(port.as_fd(), SetArg::TCSANOW, &settings).map_err(|e| e.to_string())
}

fn say(port: &mut File, answer: &Answer) -> Result<(), String> {
    let line = serde_json::to_string(answer).map_err(|e| e.to_string())?;
    writeln!(port, "{line}").map_err(|e| e.to_string())
}

fn obey(order: Order, started: &mut Option<Child>) -> Answer {
    let failed = |e: io::Error| Answer::Failed(e.to_string());
    match order {
        Order::Start { words } => match start(&words) {
            Ok(child) => {
                *started = Some(child);
                Answer::Done
            }
            Err(e) => failed(e),
        },
        Order::Output => match started.as_mut().map(Child::try_wait) {
            Some(Ok(ended)) => {
                let output = [STDOUT, STDERR].map(|path| text(path).unwrap_or_default()).concat();
                Answer::Output(output, ended.is_some())
            }
            Some(Err(e)) => failed(e),
            None => nobody(),
        },
        Order::Interrupt => match started {
            Some(child) => {
                // One that has just ended needs none.
                let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT);
                Answer::Done
            }
            None => nobody(),
        },
        Order::Wait => match started.take() {
            Some(child) => end(child).map_or_else(failed, Answer::Ran),
            None => nobody(),
        },
        Order::Read { path } => fs::read_to_string(path).map_or_else(failed, Answer::Text),
        Order::Write { path, value } => fs::write(path, value).map_or_else(failed, |()| Answer::Done),
    }
}

fn nobody() -> Answer {
    Answer::Failed("no program was started".into())
}

fn start(words: &[String]) -> io::Result<Child> {
    let (program, words) = words.split_first().ok_or_else(|| io::Error::other("no program"))?;
    let mut command = Command::new(program);
    command.args(words).env("PATH", "/bin").env("HOME", "/root").stdin(Stdio::null());
    command.stdout(File::create(STDOUT)?).stderr(File::create(STDERR)?).spawn()
}

fn end(mut child: Child) -> io::Result<Ran> {
    let status = child.wait()?;
    Ok(Ran { code: status.code().unwrap_or(-1), stdout: text(STDOUT)?, stderr: text(STDERR)? })
}

fn text(path: &str) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
