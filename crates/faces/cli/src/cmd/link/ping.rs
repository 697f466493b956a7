//! `link ping`: probes to another node.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::Args;
use link::{
    LinkError,
    broker::{self, Answer, Command},
};
use model::{link::LinkPing, units};

use super::{address_of, broker_status};
use crate::{
    failure::{Failure, Outcome, print, print_json},
    signals::{Second, stop_flag},
    time::time,
};

/// Send probes to a node, and show how long they take there and back.
///
///     evenkeel link ping db1
///
///     evenkeel link ping db1 -c 1000 -i 1ms -q
#[derive(Debug, Args)]
pub(super) struct PingArgs {
    /// Node, by its name or address.
    #[arg(value_name = "NODE")]
    node: String,
    /// Number of probes [default: until Ctrl-C; with --json 5].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Time between two probes.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = time)]
    interval: Duration,
    /// Bytes behind the header of a probe.
    #[arg(long, short, value_name = "BYTES", default_value_t = 32)]
    size: u16,
    /// Time to wait for an answer.
    #[arg(long, short = 'W', value_name = "TIME", default_value = "1s", value_parser = time)]
    timeout: Duration,
    /// Print the summary alone.
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON at the end (schema evenkeel.link.ping/1).
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PingArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    let address = address_of(&broker_status()?, &args.node)?;
    let stop = match stop_flag(Second::Ends) {
        Ok(stop) => stop,
        Err(failure) => return Ok(Err(failure)),
    };
    let shown = |text: &str| if args.quiet || args.json { Ok(()) } else { print(text) };
    let mut all = LinkPing {
        node: args.node.clone(),
        address: address.clone(),
        bytes: args.size,
        sent: 0,
        round_trips_ns: Vec::new(),
    };
    let count = args.count.unwrap_or(if args.json { 5 } else { u32::MAX });
    while all.sent < count && !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let ping = Command::Ping { address: address.clone(), bytes: args.size, timeout: args.timeout };
        all.sent += 1;
        let line = match broker::ask(&ping)? {
            Answer::Ping(Some(ns)) => {
                all.round_trips_ns.push(ns);
                format!(
                    "{} bytes from {} ({address}): seq={} time={}\n",
                    args.size,
                    args.node,
                    all.sent,
                    units::nanoseconds(ns as f64)
                )
            }
            Answer::Ping(None) => format!("no answer from {} ({address}): seq={}\n", args.node, all.sent),
            Answer::Refused(why) => return Ok(Err(Failure::usage(anyhow!("{why}")))),
            other => return Ok(Err(Failure::internal(anyhow!("the broker answered something else: {other:?}")))),
        };
        if let Err(error) = shown(&line) {
            return Ok(Err(error));
        }
        while all.sent < count && began.elapsed() < args.interval && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20).min(args.interval.saturating_sub(began.elapsed())));
        }
    }
    let outcome = if all.round_trips_ns.is_empty() { Outcome::No } else { Outcome::Fine };
    let done = match args.json {
        true => print_json("link.ping", &all),
        false => print(&report::link_ping_text(&all)),
    };
    Ok(done.map(|()| outcome))
}
