//! The interfaces of a capture, with their filters.

use host::interface::{self, Wiring};
use port::PortError;
use sys::packet::classic;

use super::{
    error::SessionError,
    notes::Note,
    settings::{ANY, Settings},
};
use crate::{
    filter::{self, Filter, FilterError, Place},
    plan::Backend,
};

/// Interfaces that [`ANY`] takes: each has a thread and a ring.
const INTERFACES_MAX: usize = 256;

/// An interface to capture from, and its filter for each kind of backend.
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) socket: Filter,
    pub(super) xdp: Filter,
    /// The kernel does not run the filter on a socket: this process does.
    pub(super) filters_here: bool,
}

impl Interface {
    fn compile(settings: &Settings, name: &str) -> Result<Self, FilterError> {
        let compile = |place| filter::compile(name, &settings.filter, settings.snaplen, place);
        let (socket, xdp) = (compile(Place::Socket)?, compile(Place::Xdp)?);
        let filters_here = !filter::runs_in_kernel(&socket.program, Place::Socket);
        if filters_here && !classic::reads_packet_only(&xdp.program) {
            return Err(FilterError::Nowhere { filter: settings.filter.clone() });
        }
        Ok(Self { name: name.to_owned(), socket, xdp, filters_here })
    }

    pub(super) fn filter(&self, backend: Backend) -> &Filter {
        if backend.is_xdp() { &self.xdp } else { &self.socket }
    }
}

/// The interface that was named, or all that are up and can be captured from.
pub(super) fn named(
    settings: &Settings,
    wiring: &Wiring,
    notify: &mut dyn FnMut(&Note<'_>),
) -> Result<Vec<Interface>, SessionError> {
    if settings.interface != ANY {
        interface::index(&settings.interface)?;
        if !wiring.up().any(|name| name == settings.interface) {
            return Err(PortError::InterfaceDown { interface: settings.interface.clone() }.into());
        }
        return Ok(vec![Interface::compile(settings, &settings.interface)?]);
    }
    let mut found = Vec::new();
    for name in wiring.up() {
        match Interface::compile(settings, name) {
            Ok(interface) => found.push(interface),
            // One that cannot be captured is told of; the others go on.
            Err(error @ (FilterError::Cooked { .. } | FilterError::Open { .. })) => {
                notify(&Note::Without { interface: name, error: &error });
            }
            Err(error) => return Err(error.into()),
        }
    }
    match found.len() {
        0 => Err(SessionError::NoneUp),
        up if up > INTERFACES_MAX => Err(SessionError::TooManyUp { up, most: INTERFACES_MAX }),
        _ => Ok(found),
    }
}
