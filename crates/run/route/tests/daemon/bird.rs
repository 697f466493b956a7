//! BIRD: the router's own, which learns routes by BGP, and its peer, which tells of them.

use std::{
    fmt::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Output,
};

use testbed::{Bed, Running, Space, log, printed, text, wait_reporting};

/// A BIRD in a namespace. It ends with the value.
pub(crate) struct Bird {
    space: Space,
    socket: PathBuf,
    log: PathBuf,
    _running: Running,
}

impl Bird {
    /// Starts one with this configuration; it answers when this comes back.
    pub(crate) fn start(bed: &Bed, role: &str, config: &str) -> Self {
        let (space, log) = (bed.space(role), bed.path(&format!("{role}.log")));
        let (socket, pid) = (bed.path(&format!("{role}.ctl")), bed.path(&format!("{role}.pid")));
        let config = bed.file(&format!("{role}.conf"), format!("log \"{}\" all;\n{config}", log.display()));
        let mut command = space.command("bird");
        command.args(["-f", "-c", &config, "-s"]).arg(&socket).arg("-P").arg(&pid);
        let bird =
            Self { _running: Running::logged(&mut command, &bed.path(&format!("{role}.errors"))), space, socket, log };
        bird.wait("BIRD answers", |bird| bird.ask("show status").status.success());
        bird
    }

    /// Asks BIRD.
    fn ask(&self, words: &str) -> Output {
        let mut command = self.space.command("birdc");
        command.arg("-v").arg("-s").arg(&self.socket).args(words.split(' ')).output().unwrap()
    }

    /// Reply lines, each with its code.
    fn answer_to(&self, words: &str) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{}", printed(&output));
        text(&output.stdout)
    }

    /// Has it read its files again.
    pub(crate) fn configure(&self) {
        let answer = self.answer_to("configure");
        // Reconfigured, or about to be.
        assert!(answer.lines().any(|line| line.starts_with("0003") || line.starts_with("0004")), "{answer}");
    }

    /// True if the session with the peer is established.
    pub(crate) fn is_established(&self) -> bool {
        self.answer_to("show protocols peer").contains("Established")
    }

    /// Times that the session was established.
    pub(crate) fn sessions(&self) -> usize {
        log(&self.log).matches("peer: State changed to up").count()
    }

    /// Waits until `is_so`; its log is told if it never is.
    pub(crate) fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        wait_reporting(what, || is_so(self), || log(&self.log));
    }
}

/// The configuration of the router's BIRD: what the peer tells goes to the kernel.
pub(crate) fn learns(own: Ipv4Addr, peer: Ipv4Addr) -> String {
    let session = session(own, peer, "import all; export none;");
    let kernel = "protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }";
    format!("{session}protocol direct {{ ipv4; }}\n{kernel}\n")
}

/// The configuration of the peer's BIRD: what is in the file `routes` goes to the router.
pub(crate) fn announces(own: Ipv4Addr, peer: Ipv4Addr, routes: &Path) -> String {
    let session = session(own, peer, "import none; export where source = RTS_STATIC; next hop keep;");
    // Only at the beginning of a line a file is taken in.
    format!("{session}protocol static {{\n  ipv4;\n  include \"{}\";\n}}\n", routes.display())
}

fn session(own: Ipv4Addr, peer: Ipv4Addr, channel: &str) -> String {
    format!(
        "router id {own};\n\
         debug protocols {{ states }};\n\
         protocol device {{ }}\n\
         protocol bgp peer {{\n  local {own} as 64512;\n  neighbor {peer} as 64512;\n  connect delay time 1;\n  \
         connect retry time 1;\n  ipv4 {{ {channel} }};\n}}\n"
    )
}

/// The text of a file of routes.
pub(crate) fn routes(all: impl Iterator<Item = (Ipv4Addr, u8, Ipv4Addr)>) -> String {
    let mut file = String::new();
    for (network, len, hop) in all {
        writeln!(file, "route {network}/{len} unreachable {{ bgp_next_hop = {hop}; }};").unwrap();
    }
    file
}
