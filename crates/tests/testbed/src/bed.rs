//! Namespaces joined by veth pairs.

use std::{
    net::IpAddr,
    ops::Deref,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use lab::{Lab, LabError, Namespace, NamespaceHandle, VethEnd};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use crate::{Running, privileged, skip};

/// Namespaces that belong to a test, and a folder for its files. All of it goes when it is dropped.
#[derive(Debug)]
pub struct Bed {
    spaces: Vec<(String, Namespace)>,
    folder: tempfile::TempDir,
    lab: Lab,
}

/// A network namespace of a [`Bed`].
#[derive(Debug, Clone)]
pub struct Space(NamespaceHandle);

/// One end of a veth pair, and the namespace that it is in.
#[derive(Debug, Clone)]
pub struct End {
    space: Space,
    /// The interface: name, index and MAC address.
    pub link: VethEnd,
}

impl Bed {
    /// A namespace for each role. `tag` tells beds of a process apart; none, and a word why, without the privilege.
    pub fn new(tag: &str, roles: &[&str]) -> Option<Self> {
        privileged()?;
        let build = || {
            let lab = Lab::new(tag)?;
            let made = roles.iter().map(|&role| Ok((role.to_owned(), lab.namespace(role)?)));
            let spaces = made.collect::<Result<_, LabError>>()?;
            Ok::<_, LabError>(Self { spaces, folder: tempfile::tempdir().expect("a folder"), lab })
        };
        build().map_err(skip).ok()
    }

    /// Two namespaces with a veth pair between them.
    pub fn pair(tag: &str) -> Option<(Self, [End; 2])> {
        let bed = Self::new(tag, &["a", "b"])?;
        let ends = bed.join(["a", "b"], 1);
        Some((bed, ends))
    }

    pub fn add(&mut self, role: &str) -> Space {
        self.spaces.push((role.to_owned(), self.lab.namespace(role).expect("a namespace")));
        self.space(role)
    }

    pub fn space(&self, role: &str) -> Space {
        Space(self.of(role).handle())
    }

    fn of(&self, role: &str) -> &Namespace {
        &self.spaces.iter().find(|(name, _)| name == role).unwrap_or_else(|| panic!("no namespace for {role}")).1
    }

    /// Joins two namespaces by a veth pair that is up, with so many queues. No two interfaces of a process have one name.
    pub fn join(&self, roles: [&str; 2], queues: u32) -> [End; 2] {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = || self.lab.interface(&format!("x{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        self.join_named(roles, [&name(), &name()], queues)
    }

    /// Joins two roles by interfaces of these names.
    pub fn join_named(&self, roles: [&str; 2], names: [&str; 2], queues: u32) -> [End; 2] {
        let [a, b] = roles.map(|role| self.of(role));
        let (first, second) = self.lab.veth((a, names[0]), (b, names[1]), queues).expect("a veth pair");
        [(a, first), (b, second)].map(|(space, link)| End { space: Space(space.handle()), link })
    }

    /// A place for a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file; its path as text.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("a file");
        self.path(name).display().to_string()
    }
}

impl Space {
    /// A namespace that somebody else owns, such as a box's.
    pub fn of(namespace: &NamespaceHandle) -> Self {
        Self(namespace.clone())
    }

    /// Runs `work` in the namespace, which has its own /sys.
    #[track_caller]
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.run(work).expect("the namespace")
    }

    /// A program in the namespace that shares /sys with everybody else: there is the BPF file system. Nobody's session runs it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name())).arg(program);
        command.env_remove("SSH_CONNECTION").stdin(Stdio::null());
        command
    }

    /// Runs a program to its end, in the namespace with its own /sys.
    #[track_caller]
    pub fn ran(&self, program: &str, arguments: &[&str]) -> Output {
        self.starts(program, arguments).output()
    }

    /// Starts a program whose outputs are pipes, likewise.
    #[track_caller]
    pub fn starts(&self, program: &str, arguments: &[&str]) -> Running {
        self.run(|| Running::piped(Command::new(program).args(arguments)))
    }

    /// Runs a program with these words as its arguments, in the namespace with its own /sys; what it prints.
    #[track_caller]
    pub fn output(&self, line: &str) -> String {
        self.run(|| crate::run(line))
    }

    /// Gives netfilter a script.
    #[track_caller]
    pub fn nft(&self, script: &str) {
        self.run(|| crate::nft(script));
    }

    /// A file as it is in the namespace.
    #[track_caller]
    pub fn read(&self, path: &str) -> String {
        self.run(|| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// Sets a sysctl of the namespace, such as `net.ipv4.ip_forward`.
    #[track_caller]
    pub fn set(&self, sysctl: &str, value: &str) {
        self.set_sysctl(sysctl, value).expect("a sysctl");
    }

    /// A counter of /proc/net/snmp or netstat, by `nstat`'s name.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let shown = self.output(&format!("nstat -asz {name}"));
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {shown}"));
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Deref for Space {
    type Target = NamespaceHandle;

    fn deref(&self) -> &NamespaceHandle {
        &self.0
    }
}

impl Deref for End {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl End {
    pub fn interface(&self) -> &str {
        &self.link.name
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Adds an address with its prefix length.
    #[track_caller]
    pub fn address(&self, address: &str) {
        let (address, len) = address.split_once('/').expect("an address and its prefix length");
        let address: IpAddr = address.parse().expect("an address");
        self.add_address(self.interface(), address, len.parse().expect("a prefix length")).expect("an address");
    }

    /// Knows who has an address, so that nobody is asked.
    #[track_caller]
    pub fn knows(&self, address: &str, owner: &End) {
        let address = address.parse().expect("an address");
        self.add_neighbour(self.interface(), address, owner.link.mac).expect("a neighbour");
    }

    /// Switches an offload by its ethtool name.
    #[track_caller]
    pub fn feature(&self, name: &str, on: bool) {
        self.set_feature(self.interface(), name, on).expect("an offload");
    }

    /// `ip link set` on it, such as `down`.
    #[track_caller]
    pub fn link_set(&self, what: &str) {
        self.output(&format!("ip link set dev {} {what}", self.interface()));
    }

    /// Frames that it has received (/proc/net/dev).
    #[track_caller]
    pub fn received(&self) -> u64 {
        let table = self.read("/proc/thread-self/net/dev");
        let mut lines = table.lines().filter_map(|line| line.split_once(':'));
        let (_, numbers) = lines.find(|(name, _)| name.trim() == self.interface()).expect("the interface");
        numbers.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
}

/// Runs `test` as root in a network namespace that goes with its thread, whose loopback is up and whose /sys is the machine's. A failure in
/// there fails the test.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let Some(()) = privileged() else { return };
    let run = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
        lab::set_link("lo", true).expect("the loopback");
        test();
    });
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}

/// [`in_namespace`] with a /sys of its own.
pub fn in_namespace_with_sys(test: impl FnOnce() + Send + 'static) {
    in_namespace(|| {
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("mounts of its own");
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).expect("/sys");
        test();
    });
}
