//! `link run`: a program whose TCP connections to the cluster go over link.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::ErrorKind,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use link::{
    LinkError,
    sockets::{self, BrokerClient},
    supervise,
};

use crate::{
    failure::{Failure, Outcome},
    time::time,
};

/// The library that the program is started with.
const LIBRARY: &str = "libevenkeel_sockets.so";
/// The variable of ld.so(8) that names it.
const PRELOAD: &str = "LD_PRELOAD";
/// The variables that the library reads: calls after which the program carries a connection (0: never), and microseconds that a call looks on.
const CALLS: &str = "EVENKEEL_LINK_AFTER";
const SPIN: &str = "EVENKEEL_LINK_SPIN";

/// Run a program whose TCP connections to the cluster go over link.
///
///     evenkeel link run -- redis-server
///
///     evenkeel link run -- psql -h 10.0.0.7
///
/// The broker of this node must serve a cluster (`evenkeel link serve eth0 --cluster 10.0.0.0/24`), and the program at the other end must be started
/// so, too. Other connections stay with TCP. `evenkeel link status` shows what carries each.
///
/// Connections over link bypass the firewall of the machine that they reach: `--allow` of its broker says which may.
///
/// The brokers carry a connection first. Once 16 calls have come for it, the two programs carry it themselves, which is faster: where both are started
/// through the library, and may have ports of link (root, or the broker's --group).
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Interception of the program's calls.
    #[arg(long, value_name = "WAY", value_enum, default_value = "auto")]
    by: By,
    /// Carrier of a busy connection.
    #[arg(long, value_name = "WHO", value_enum, default_value = "program")]
    carry: Carry,
    /// Busy-poll time before a blocking call sleeps, while that pays; 0s turns it off [default: 20us].
    #[arg(long, value_name = "TIME", value_parser = time)]
    spin: Option<Duration>,
    /// Program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// Interception of the program's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// By a library where the dynamic linker loads the program, else by a supervisor.
    Auto,
    /// By a library that is loaded before that of C (LD_PRELOAD).
    Library,
    /// By a process that answers its system calls (seccomp): for static programs, and those in Go.
    Supervisor,
}

/// Carrier of the connections of a program with the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Carry {
    /// The program itself, where both programs can.
    Program,
    /// The brokers of both nodes.
    Broker,
}

/// Replaces this process by the program.
pub(super) fn run(args: &RunArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    if !BrokerClient::here().has_cluster() {
        return Err(LinkError::NoCluster);
    }
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Ok(Err(Failure::usage(anyhow!("name a program"))));
    };
    let by = match args.by {
        By::Library => sockets::Interception::Library,
        By::Supervisor => sockets::Interception::Supervisor,
        By::Auto => match sockets::interception(program) {
            Ok(by) => by,
            Err(error) => return Ok(Err(cannot(program, &error))),
        },
    };
    match by {
        sockets::Interception::Library => Ok(start(program, arguments, args)),
        sockets::Interception::Supervisor => {
            let code = supervise::run(program, arguments, &BrokerClient::here())?;
            // What the program said is what this one says.
            std::process::exit(code);
        }
    }
}

fn cannot(program: &OsStr, error: &std::io::Error) -> Failure {
    let program = Path::new(program).display();
    match error.kind() {
        ErrorKind::NotFound => Failure::lacking(anyhow!("cannot run {program}: No such file or directory (in PATH)")),
        _ => Failure::lacking(anyhow!("cannot run {program}: {error}")),
    }
}

fn start(program: &OsStr, arguments: &[OsString], args: &RunArgs) -> Result<Outcome, Failure> {
    let library = library()?;
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(program);
    command.args(arguments).env(PRELOAD, preload);
    if args.carry == Carry::Broker {
        command.env(CALLS, "0");
    }
    if let Some(time) = args.spin {
        command.env(SPIN, time.as_micros().to_string());
    }
    let error = command.exec();
    Err(cannot(program, &error))
}

/// The path of the library: beside the binary's folder as `make install` puts it, or beside the binary as it is built.
fn library() -> Result<PathBuf, Failure> {
    let binary = env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let places = [folder.join("../lib/evenkeel").join(LIBRARY), folder.join(LIBRARY)];
    places.iter().find(|place| place.exists()).cloned().ok_or_else(|| {
        let places = places.each_ref().map(|place| place.display().to_string());
        Failure::lacking(anyhow!("{LIBRARY} is neither at {}: install it with `make install`", places.join(" nor at ")))
    })
}
