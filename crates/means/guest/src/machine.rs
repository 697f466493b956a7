//! QEMU: started, asked, ended.

use std::{
    fmt::Debug,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use host::owner::{TemporaryFolder, temporary_folder};

use crate::{Accel, Answer, GuestError, Kernel, Nic, Ran, Root, root::EVENKEEL, words::Order};

/// QEMU's program, and the package that brings it.
pub(crate) const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");
/// Lines of the console that are shown when a guest fails.
const CONSOLE_LINES: usize = 20;
/// Events of QEMU that are traced: accesses to devices, and notifications of VirtIO.
const TRACED_EVENTS: &str = "memory_region_ops_read\nmemory_region_ops_write\nvirtio_queue_notify\n";

#[derive(Debug, Clone)]
pub struct Card {
    /// The tap device behind it.
    pub tap: String,
    /// Hardware address of the card in the guest.
    pub mac: String,
}

/// Settings of a guest.
#[derive(Debug, Clone)]
pub struct Settings {
    pub nic: Nic,
    pub cards: Vec<Card>,
    pub accel: Accel,
    pub cpus: u32,
    /// Memory of the guest, in MiB.
    pub memory_mib: u32,
    /// Accesses to its devices are traced.
    pub traced: bool,
    /// The network namespace of the tap devices, as a file; none: the process's own.
    pub namespace: Option<PathBuf>,
    /// Words before QEMU's, which start it: such as those of taskset. None: it is started directly.
    pub within: Vec<String>,
    /// An image of a disk, which is /dev/vda in the guest.
    pub disk: Option<PathBuf>,
}

/// A guest under way. It ends when it is dropped.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    port: UnixStream,
    answers: Receiver<Answer>,
    folder: TemporaryFolder,
    /// Time from the start to the first answer.
    pub ready: Duration,
    pub release: String,
}

impl Guest {
    /// The command line of QEMU, for a person to paste; `root` and `folder` are where its parts lie.
    pub fn command_line(settings: &Settings, kernel: &Path, root: &Path, folder: &Path) -> Vec<String> {
        let at = |name: &str| folder.join(name).display().to_string();
        let mut words: Vec<String> =
            ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "pc"]
                .map(str::to_owned)
                .to_vec();
        let (accel, cpu) = match settings.accel {
            Accel::Kvm => ("kvm", "host"),
            // With a thread for each CPU (QEMU 7.2), guests of Linux 6.12 died of `Oops: int3` where the kernel patches jumps of XDP programs while frames
            // pass; with one thread none did.
            Accel::Emulation => ("tcg,thread=single", "max"),
        };
        words.extend(["-accel", accel, "-cpu", cpu].map(str::to_owned));
        words.extend(["-smp".into(), settings.cpus.to_string(), "-m".into(), settings.memory_mib.to_string()]);
        words.extend(["-kernel".into(), kernel.display().to_string(), "-initrd".into(), root.display().to_string()]);
        words.extend(["-append".into(), format!("console=ttyS0 panic=-1 quiet rdinit={EVENKEEL}")]);
        words.extend(["-serial".into(), format!("file:{}", at("console"))]);
        words.extend(["-chardev".into(), format!("socket,id=orders,path={},server=on,wait=off", at("orders"))]);
        words.extend(["-serial".into(), "chardev:orders".into()]);
        for (number, card) in settings.cards.iter().enumerate() {
            if !matches!(settings.nic, Nic::Passthrough(_)) {
                let vhost = if settings.nic == Nic::VirtioVhost { ",vhost=on" } else { "" };
                let queues = match settings.nic.queues() {
                    1 => String::new(),
                    queues => format!(",queues={queues}"),
                };
                words.extend([
                    "-netdev".into(),
                    format!("tap,id=n{number},ifname={},script=no,downscript=no{vhost}{queues}", card.tap),
                ]);
            }
            words.extend(["-device".into(), settings.nic.device(&format!("n{number}"), &card.mac)]);
        }
        if let Some(disk) = &settings.disk {
            words.extend(["-drive".into(), format!("file={},format=raw,if=virtio,cache=none", disk.display())]);
        }
        if settings.traced {
            words.extend(["-trace".into(), format!("events={},file={}", at("events"), at("trace"))]);
        }
        words
    }

    /// Starts one, and waits for at most `patience` until it answers. It dies with the thread that calls.
    ///
    /// # Errors
    /// QEMU is missing or ends; the guest does not answer. Both have the console's last lines.
    pub fn start(settings: &Settings, kernel: &Kernel, root: &Root, patience: Duration) -> Result<Self, GuestError> {
        let folder =
            temporary_folder("guest", "run").map_err(GuestError::file("make a folder in", std::env::temp_dir()))?;
        let file = |name: &str| folder.path().join(name);
        fs::write(file("events"), TRACED_EVENTS).map_err(GuestError::file("write", file("events")))?;
        let stderr = File::create(file("said")).map_err(GuestError::file("make", file("said")))?;
        let mut command = qemu(&settings.within, settings.namespace.as_deref())?;
        command.args(Self::command_line(settings, &kernel.image, root.path(), folder.path()));
        command.stderr(stderr);
        let began = Instant::now();
        let child = command.spawn().map_err(|_| GuestError::Missing("setpriv", "util-linux"))?;
        let mut starting = Starting { child, folder };
        let port = starting.connect(began, patience)?;
        let (to, answers) = channel();
        let lines = BufReader::new(port.try_clone().map_err(GuestError::file("read", file_of("orders")))?).lines();
        thread::spawn(move || {
            // What the firmware or a kernel prints there is no answer.
            for answer in lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()) {
                if to.send(answer).is_err() {
                    return;
                }
            }
        });
        let Starting { child, folder } = starting;
        let mut guest = Self { child, port, answers, folder, ready: Duration::ZERO, release: String::new() };
        match guest.answer(patience.saturating_sub(began.elapsed()))? {
            Answer::Up(release) => (guest.release, guest.ready) = (release, began.elapsed()),
            other => return Err(GuestError::Refused(format!("{other:?} as its first word"))),
        }
        Ok(guest)
    }

    fn answer(&mut self, patience: Duration) -> Result<Answer, GuestError> {
        match self.answers.recv_timeout(patience) {
            Ok(Answer::Failed(why)) => Err(GuestError::Refused(why)),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(ended(&mut self.child, self.folder.path())),
            Err(RecvTimeoutError::Timeout) => Err(match self.child.try_wait() {
                Ok(None) => GuestError::Hangs { seconds: patience.as_secs(), console: console(self.folder.path()) },
                _ => ended(&mut self.child, self.folder.path()),
            }),
        }
    }

    fn send(&mut self, order: &Order) -> Result<(), GuestError> {
        let line = serde_json::to_string(order).map_err(|e| GuestError::Refused(e.to_string()))?;
        writeln!(self.port, "{line}").map_err(|_| ended(&mut self.child, self.folder.path()))
    }

    fn order(&mut self, order: &Order, patience: Duration) -> Result<Answer, GuestError> {
        self.send(order)?;
        self.answer(patience)
    }

    /// Runs a program in it, to its end.
    ///
    /// # Errors
    /// There is no such program there, the guest failed, or it took longer than `patience`.
    pub fn run(&mut self, words: &[&str], patience: Duration) -> Result<Ran, GuestError> {
        self.begin(words)?;
        self.end(patience)
    }

    /// Starts a program in it.
    pub fn begin(&mut self, words: &[&str]) -> Result<(), GuestError> {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        self.done(&Order::Start { words })
    }

    fn done(&mut self, order: &Order) -> Result<(), GuestError> {
        match self.order(order, ANSWER_TIMEOUT)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until the program that was begun has printed `word`; false: it ended before, or has not within `patience`.
    pub fn has_printed(&mut self, word: &str, patience: Duration) -> Result<bool, GuestError> {
        let began = Instant::now();
        loop {
            match self.order(&Order::Output, ANSWER_TIMEOUT)? {
                Answer::Output(output, _) if output.contains(word) => return Ok(true),
                Answer::Output(_, ended) if ended || began.elapsed() > patience => return Ok(false),
                Answer::Output(..) => thread::sleep(POLL_PERIOD),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The program that was begun is still running.
    pub fn is_running(&mut self) -> Result<bool, GuestError> {
        match self.order(&Order::Output, ANSWER_TIMEOUT)? {
            Answer::Output(_, ended) => Ok(!ended),
            other => Err(unexpected(&other)),
        }
    }

    /// Interrupts the program that was begun.
    pub fn interrupt(&mut self) -> Result<(), GuestError> {
        self.done(&Order::Interrupt)
    }

    /// The end of the program that was begun.
    ///
    /// # Errors
    /// The guest failed, or it took longer than `patience`.
    pub fn end(&mut self, patience: Duration) -> Result<Ran, GuestError> {
        match self.order(&Order::Wait, patience)? {
            Answer::Ran(ran) => Ok(ran),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads a file in it.
    pub fn read(&mut self, path: &str) -> Result<String, GuestError> {
        match self.order(&Order::Read { path: path.to_owned() }, ANSWER_TIMEOUT)? {
            Answer::Text(text) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }

    /// Writes a file in it.
    pub fn write(&mut self, path: &str, value: &str) -> Result<(), GuestError> {
        self.done(&Order::Write { path: path.to_owned(), value: value.to_owned() })
    }

    /// The process of QEMU.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// File to which QEMU writes the accesses to devices.
    pub fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// The console's last lines.
    pub fn console(&self) -> String {
        console(self.folder.path())
    }
}

/// QEMU, started by the words `within` in a network namespace. It dies with the thread that calls.
pub(crate) fn qemu(within: &[String], namespace: Option<&Path>) -> Result<Command, GuestError> {
    let program = sys::program::find(QEMU.0.as_ref()).ok_or(GuestError::Missing(QEMU.0, QEMU.1))?;
    let mut command = sys::program::command("setpriv");
    command.args(["--pdeathsig", "KILL"]).args(within);
    if let Some(namespace) = namespace {
        command.arg("nsenter").arg(format!("--net={}", namespace.display())).arg("--");
    }
    command.arg(program);
    // Ctrl-C is for this process, which ends it.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// A guest answers small things within this time: an emulated one beside others has little of a CPU.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two looks at what a program has said.
const POLL_PERIOD: Duration = Duration::from_millis(50);

fn file_of(name: &str) -> PathBuf {
    PathBuf::from(name)
}

fn unexpected(answer: &Answer) -> GuestError {
    GuestError::Refused(format!("another answer than was asked for: {answer:?}"))
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// QEMU before it answers: ended when something fails.
struct Starting {
    child: Child,
    folder: TemporaryFolder,
}

impl Starting {
    fn connect(&mut self, began: Instant, patience: Duration) -> Result<UnixStream, GuestError> {
        let path = self.folder.path().join("orders");
        loop {
            if let Ok(port) = UnixStream::connect(&path) {
                return Ok(port);
            }
            let is_over = began.elapsed() > patience;
            if is_over || !matches!(self.child.try_wait(), Ok(None)) {
                let _ = self.child.kill();
                return Err(ended(&mut self.child, self.folder.path()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn ended(child: &mut Child, folder: &Path) -> GuestError {
    // The last words may come a moment later.
    thread::sleep(Duration::from_millis(100));
    let _ = child.kill();
    let status = child.wait().map_or_else(|_| String::new(), |status| format!(" ({status})"));
    let stderr = fs::read_to_string(folder.join("said")).unwrap_or_default();
    let stderr = if stderr.trim().is_empty() {
        String::new()
    } else {
        format!("; QEMU said: {}", host::ssh::last_words(&stderr))
    };
    GuestError::Ended { why: format!("{status}{stderr}"), console: console(folder) }
}

fn console(folder: &Path) -> String {
    let bytes = fs::read(folder.join("console")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    // What comes after a panic, or the fault that led to it, is where, and not why.
    let last = lines.len().saturating_sub(CONSOLE_LINES);
    let is_why = |line: &&str| ["Kernel panic", "BUG: ", "Oops: ", " [#1]"].iter().any(|word| line.contains(word));
    let from = lines.iter().position(is_why).unwrap_or(last).min(last);
    match &lines[from..] {
        [] => "(it said nothing)".to_owned(),
        last => last.iter().take(CONSOLE_LINES).copied().collect::<Vec<_>>().join("\n"),
    }
}
