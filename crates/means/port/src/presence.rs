//! The interface of a source while it is read: up, down for a while, or gone.

use std::{
    thread,
    time::{Duration, Instant},
};

use sys::packet::{LinkState, PacketSocket};

use crate::PortError;

/// Time that the kernel gets to remove an interface that it has just taken down.
const REMOVAL_TIME: Duration = Duration::from_millis(50);
/// Period at which an interface that is down is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// The state of a source's interface, asked through a socket of the network namespace in which the source was opened.
#[derive(Debug)]
pub(crate) struct Presence {
    interface: String,
    index: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// A call failed as it does while the interface is down or gone; not reported yet.
    Failed,
    /// Reported as down; looked at last then.
    Down(Instant),
}

impl Presence {
    pub(crate) fn new(interface: &str, index: u32) -> Self {
        Self { interface: interface.to_owned(), index, state: State::Up }
    }

    /// Notes a call that failed because the interface is down or gone.
    pub(crate) fn failed(&mut self) {
        if self.state == State::Up {
            self.state = State::Failed;
        }
    }

    /// True from the report that the interface is down to the first look that finds it up.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.state, State::Down(_))
    }

    /// Looks at the interface where a call failed, for a reader that has read all that was queued.
    ///
    /// # Errors
    /// [`PortError::Down`], once each time that it goes down; [`PortError::Vanished`] when it is gone.
    pub(crate) fn check(&mut self, socket: &PacketSocket) -> Result<(), PortError> {
        match self.state {
            State::Up => return Ok(()),
            State::Down(looked) if looked.elapsed() < LOOK_PERIOD => return Ok(()),
            State::Down(_) => {}
            State::Failed => thread::sleep(REMOVAL_TIME),
        }
        let interface = self.interface.clone();
        match (self.link_state(socket), self.state) {
            (LinkState::Gone, _) => Err(PortError::Vanished { interface }),
            // It may be up again already: packets were missed all the same.
            (_, State::Failed) => {
                self.state = State::Down(Instant::now());
                Err(PortError::Down { interface })
            }
            (LinkState::Up, _) => {
                self.state = State::Up;
                Ok(())
            }
            (LinkState::Down, _) => {
                self.state = State::Down(Instant::now());
                Ok(())
            }
        }
    }

    /// The state of the interface now. A socket that cannot be asked has nothing against it.
    pub(crate) fn link_state(&self, socket: &PacketSocket) -> LinkState {
        socket.link_state(self.index).unwrap_or(LinkState::Up)
    }
}
