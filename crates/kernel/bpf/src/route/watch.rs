//! The programs that make what is remembered be forgotten at the very change.

use std::mem::MaybeUninit;

use libbpf_rs::{
    Link,
    skel::{OpenSkel, Skel},
};

use super::tables::RouteTables;
use crate::{
    link::XdpError,
    program::{Program, kernel_has, kernel_traces},
    skel::route_watch::RouteWatchSkelBuilder,
};

const PROGRAM: Program = Program("route_watch");

/// The programs, attached until this is dropped.
pub struct RouteWatch {
    _links: Vec<Link>,
    missing: Vec<String>,
}

impl std::fmt::Debug for RouteWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteWatch").field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl RouteWatch {
    /// Attaches them to the kernel's functions and tracepoints, those that it has and lets be followed.
    ///
    /// # Errors
    /// [`crate::ProgramError::Load`] if the kernel refuses tracepoints too.
    pub fn attach(tables: &RouteTables) -> Result<Self, XdpError> {
        // Functions are refused by kernels that are made without, and by some that are locked down.
        Self::with(tables, true).or_else(|_| Self::with(tables, false))
    }

    fn with(tables: &RouteTables, functions: bool) -> Result<Self, XdpError> {
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<RouteWatchSkelBuilder>(&mut object)?;
        let mut missing = Vec::new();
        for mut program in open.open_object_mut().progs_mut() {
            let section = program.section().to_string_lossy().into_owned();
            let (kind, name) = section.split_once('/').unwrap_or_default();
            if !(if kind == "tp_btf" { kernel_traces(name) } else { functions && kernel_has(name) }) {
                program.set_autoload(false);
                missing.push(name.to_owned());
            }
        }
        tables.lend(open.open_object_mut()).map_err(failed)?;
        let mut skel = PROGRAM.load(open)?;
        let mut links = Vec::new();
        for program in skel.object_mut().progs_mut().filter(|program| program.autoload()) {
            links.push(program.attach().map_err(failed)?);
        }
        Ok(Self { _links: links, missing })
    }

    /// The kernel's functions that could not be followed: what they change is noticed by netlink, some milliseconds later.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}
