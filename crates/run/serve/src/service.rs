//! The services that a [`Server`](crate::Server) runs.

use std::{ops::ControlFlow, path::PathBuf, sync::mpsc::Sender};

use serde::{Serialize, de::DeserializeOwned};

use crate::wake::Wait;

/// A part of a process that runs until it is told to end, answers commands on a socket, and shares its thread with others.
///
/// A service is open when a [`Server`](crate::Server) gets it: its [home](crate::Home) is held, and whatever could fail at the start has not.
pub trait Service {
    /// A command that comes by the socket.
    type Command: DeserializeOwned + Send + 'static;
    type Answer: Serialize + Send + 'static;
    /// The state that is shown.
    type Status;
    type Ended;
    /// Reason for an end by itself, or for a failed close.
    type Error;

    /// Name of the service in a sentence, as `the router`.
    fn name(&self) -> String;

    /// The socket at which it answers commands.
    fn socket(&self) -> PathBuf;

    /// Called once commands are answered.
    fn on_listen(&mut self) {}

    /// Does what is due, and does not wait.
    ///
    /// # Errors
    /// The service cannot go on; it is closed then.
    fn poll(&mut self) -> Result<(), Self::Error>;

    /// Time and descriptors that end the wait for the next [`poll`](Service::poll). Commands and signals end it, too.
    ///
    /// # Errors
    /// The service cannot go on; it is closed then.
    fn wait(&mut self) -> Result<Wait<'_>, Self::Error>;

    /// Reads its configuration again (SIGHUP).
    fn reload(&mut self) {}

    /// Carries out a command. The answer may be sent later, also by [`close`](Service::close). A break ends the service.
    ///
    /// # Errors
    /// The service cannot go on; it is closed then.
    fn command(&mut self, command: Self::Command, to: Sender<Self::Answer>) -> Result<ControlFlow<()>, Self::Error>;

    /// Returns the state.
    ///
    /// # Errors
    /// The service cannot go on; it is closed then.
    fn status(&mut self) -> Result<Self::Status, Self::Error>;

    /// Ends, and gives its home back.
    ///
    /// # Errors
    /// Something of it stays.
    fn close(self) -> Result<Self::Ended, Self::Error>;
}
