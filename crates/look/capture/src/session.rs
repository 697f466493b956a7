//! A capture from beginning to end: settings in, a session out, which reads until the end.

mod error;
mod interface;
mod notes;
mod opening;
mod settings;

use std::{os::fd::BorrowedFd, sync::atomic::AtomicBool};

use host::{Host, Root, interface::Wiring};
use sys::privilege::{self, PrivilegeError, Remaining};

use crate::{
    auto::Choice,
    open::{self, AnySource, Attachment},
    output::Output,
    pcapng::Captured,
    plan::Backend,
    run::{self, Limits, Report, Seen, Sink},
};
pub use error::SessionError;
use interface::Interface;
pub use notes::{Note, Refusal};
use opening::Opening;
pub use settings::{ANY, Destination, Readers, Settings};

/// Result of opening a session.
#[derive(Debug)]
pub struct Opened {
    pub backend: Backend,
    /// Reason of the choice of `auto`; none: the backend was asked for.
    pub choice: Option<Choice>,
    /// Attachment of its XDP program, if it has one.
    pub attachment: Option<Attachment>,
    /// The filter runs in this process.
    pub filters_here: bool,
}

/// A capture that is open, and has not begun. Its process has given up every right that it does not need any more.
#[derive(Debug)]
pub struct Session {
    sources: Vec<(AnySource, Option<u32>)>,
    sink: Sink,
    limits: Limits,
}

impl Session {
    /// Opens a capture: chooses the backend where that is wanted, places the readers, opens sources and output, and gives up the process's
    /// rights, as strangers' packets are read from then on. `stop` ends trials.
    ///
    /// # Errors
    /// Rights that are missing, settings that cannot be met here, what cannot be opened.
    pub fn open(
        settings: &Settings,
        stop: &AtomicBool,
        notify: &mut dyn FnMut(&Note<'_>),
    ) -> Result<(Self, Opened), SessionError> {
        let what = settings.backend.map_or("auto", Backend::name);
        privilege::require(format!("capture with {what}"), &settings.capabilities())?;
        // Of /sys only what is this namespace's: under `nsenter --net` it shows another one's interfaces.
        let wiring = Wiring::read().map_err(SessionError::Interfaces)?;
        let mut host = Host::read(&Root::live())?;
        host.nics.retain(|nic| wiring.has(nic));
        let interfaces = interface::named(settings, &wiring, notify)?;
        let filters_here = interfaces.iter().any(|i| i.filters_here) && settings.backend.is_none_or(|b| !b.is_xdp());
        if filters_here {
            notify(&Note::FiltersHere { filter: &settings.filter });
        }
        let mut opening = Opening { settings, host: &host, limits: settings.limits(), notify };
        let (backend, choice) = match settings.backend {
            Some(backend) => (backend, None),
            None => {
                let choice = opening.choose(&interfaces[0], stop)?;
                (choice.backend, Some(choice))
            }
        };
        let tuning = settings.tuning_for(interfaces.len());
        let (mut sources, mut of) = (Vec::new(), Vec::new());
        for (number, interface) in interfaces.iter().enumerate() {
            let opened = opening.open(interface, backend, &tuning)?;
            of.extend(opened.iter().map(|_| number));
            sources.extend(opened);
        }
        let attachment = open::attachment(sources.iter().map(|(source, _)| source));
        let sink = sink(settings, &host.kernel, backend, &interfaces, &of)?;
        let folder = match &sink {
            Sink::Pcapng { output, .. } => output.folder(),
            _ => None,
        };
        give_up(folder, notify)?;
        let opened = Opened { backend, choice, attachment, filters_here: filters_here && !backend.is_xdp() };
        Ok((Self { sources, sink, limits: settings.limits() }, opened))
    }

    /// Reads until `stop`, a limit or a failure, as [`run::run`].
    pub fn run(self, stop: &AtomicBool, watch: impl FnMut(Seen<'_>)) -> Report {
        run::run(self.sources, self.sink, self.limits, stop, watch)
    }
}

/// Gives up every right but that to make later files of a rotation in that folder: from here on strangers' packets are read.
pub fn give_up(folder: Option<BorrowedFd<'_>>, notify: &mut dyn FnMut(&Note<'_>)) -> Result<(), PrivilegeError> {
    if let Some(why) = privilege::give_up(folder.map_or(Remaining::Reading, Remaining::FilesIn))?.still_root {
        notify(&Note::StillRoot { why: &why });
    }
    Ok(())
}

/// Sink of the packets; `of` has the number of its interface for each reader.
fn sink(
    settings: &Settings,
    kernel: &str,
    backend: Backend,
    interfaces: &[Interface],
    of: &[usize],
) -> Result<Sink, SessionError> {
    let link_type = |interface: &Interface| interface.filter(backend).link_type;
    Ok(match &settings.destination {
        Destination::Count => Sink::Count,
        Destination::Text(shown) => {
            // Which interface it was is told where there could be several.
            let name = |interface: &Interface| (settings.interface == ANY).then(|| interface.name.clone());
            let interfaces = of.iter().map(|i| (link_type(&interfaces[*i]), name(&interfaces[*i]))).collect();
            Sink::Text { shown: *shown, interfaces }
        }
        Destination::Pcapng(target) => {
            let captured = |i: &Interface| Captured { name: i.name.clone(), link_type: link_type(i) };
            let section = settings.section(kernel, interfaces.iter().map(captured).collect())?;
            let output = Box::new(Output::open(target.clone(), section)?);
            Sink::Pcapng { output, interfaces: of.iter().map(|i| *i as u32).collect() }
        }
    })
}
