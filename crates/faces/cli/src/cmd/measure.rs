//! The verbs that measure. A program built without the feature `measure` has none of them.

mod bench;
mod demo;
mod link_bench;
mod link_speedup;
mod others;
mod report;
mod route_compare;
mod sweep;

use std::ffi::OsStr;

use ::report::{Look, PageError};
use clap::{Arg, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use model::{
    bench::{self as of_bench, guest::GuestRun, neighbour::NeighbourRun},
    flood::{self, FloodRun},
    link_bench::{self as of_link, LinkBench},
    route_compare::{self as of_routes, RouteCompare},
    speedup::{self, LinkSpeedup},
    sweep::{self as of_sweep, Sweep},
};

pub(crate) use self::{route_compare::CompareArgs, sweep::SweepArgs};
use super::meta::of_list;
use crate::{
    failure::{Failure, Outcome, note},
    long_run::Found,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Demo(demo::DemoArgs),
    Bench(Box<bench::BenchArgs>),
    Report(report::ReportArgs),
}

impl Verb {
    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        if !matches!(self, Self::Report(_)) {
            name_dead_labs();
        }
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Report(args) => report::run(args),
        }
    }

    /// True if it reads saved runs only.
    pub(crate) fn is_saved(&self) -> bool {
        matches!(self, Self::Report(_))
    }
}

/// The results of these verbs: schema, version, text and page.
macro_rules! found {
    ($($run:ty: $name:literal, $version:expr, $text:ident, $page:ident $(, $what:literal)?;)*) => {$(
        impl Found for $run {
            const SCHEMA: (&'static str, u32) = ($name, $version);
            $(const PAGE: &'static str = $what;)?

            fn text(&self) -> String {
                ::report::$text(self, Look::of_stdout())
            }

            fn page(&self) -> Result<String, PageError> {
                ::report::$page(self)
            }
        }
    )*};
}

found! {
    FloodRun: "bench.flood", flood::SCHEMA, flood_text, flood_page, "page with the curves";
    NeighbourRun: "bench.neighbour", of_bench::neighbour::SCHEMA, neighbour_text, neighbour_page;
    GuestRun: "bench.guest", of_bench::guest::SCHEMA, guest_text, guest_page;
    LinkBench: "link.bench", of_link::SCHEMA, link_bench_text, link_bench_page;
    LinkSpeedup: "link.speedup", speedup::SCHEMA, speedup_text, speedup_page;
    RouteCompare: "route.compare", of_routes::SCHEMA, route_compare_text, route_compare_page;
    Sweep: "sweep", of_sweep::SCHEMA, sweep_text, sweep_page;
}

/// The measuring verbs of `evenkeel link`.
#[derive(Debug, Subcommand)]
pub(crate) enum LinkVerb {
    Bench(link_bench::BenchArgs),
    #[command(hide = true)]
    BenchEnd(link_bench::EndArgs),
    Speedup(link_speedup::SpeedupArgs),
    #[command(hide = true)]
    SpeedupNode(link_speedup::NodeArgs),
}

impl LinkVerb {
    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        match self {
            Self::Bench(args) => link_bench::run(args),
            Self::BenchEnd(args) => link_bench::end(args),
            Self::Speedup(args) => link_speedup::run(args),
            Self::SpeedupNode(args) => link_speedup::node(args),
        }
    }
}

/// Adds completions to an argument `name` of one of these verbs.
pub(crate) fn completed(verb: &str, name: &str, arg: Arg) -> Arg {
    match (verb, name) {
        ("bench", "dut") => arg.add(ArgValueCompleter::new(|begin: &OsStr| {
            let boxes = ::bench::DutKind::ALL.map(::bench::DutKind::key);
            of_list(begin, boxes.into_iter().chain(["guest"]))
        })),
        ("bench", "preset") => arg.add(ArgValueCompleter::new(|begin: &OsStr| of_list(begin, ::bench::search::NAMES))),
        ("bench", "tests") => arg.add(ArgValueCompleter::new(|begin: &OsStr| {
            of_list(begin, ::bench::run::Test::ALL.map(|test| test.to_string()))
        })),
        ("bench", "neighbour") => arg.add(ArgValueCompleter::new(|begin: &OsStr| {
            of_list(begin, ::bench::neighbour::Kind::ALL.map(::bench::neighbour::Kind::key))
        })),
        ("flood", "modes") => arg.add(ArgValueCompleter::new(|begin: &OsStr| of_list(begin, bench::flood::MODES))),
        _ => arg,
    }
}

/// Each value once, in their order.
pub(crate) fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    all.into_iter().fold(Vec::new(), |mut once, one| {
        if !once.contains(&one) {
            once.push(one);
        }
        once
    })
}

/// Names dead labs before a new one is made, which removes them.
fn name_dead_labs() {
    if let Ok(dead) = lab::dead()
        && !dead.is_empty()
    {
        note(format_args!(
            "found what a killed run left behind: {}. The next lab removes it; so does `evenkeel clean`",
            dead.join(", ")
        ));
    }
}
