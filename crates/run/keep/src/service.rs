//! The service of `keep run`, which reads the machine when a link changes, and each second.

use std::{
    fmt,
    ops::ControlFlow,
    path::PathBuf,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use host::netlink::monitor::{Event as LinkEvent, Monitor};
use serve::{HeldHome, Service, Wait};

use crate::{
    KeepError, Keeper, Planner,
    control::{Answer, Command},
    state::Reader,
    status::{Event, Status},
};

/// Period of the readings of the machine.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Shortest time between two readings while many links change.
const LINK_PERIOD: Duration = Duration::from_millis(50);

/// The service of a network namespace.
pub struct KeepService<P> {
    keeper: Keeper<P>,
    held: HeldHome,
    monitor: Monitor,
    reader: Reader,
    last_look: Instant,
    next_look: Instant,
    /// The time of the first link change since the last reading.
    changed: Option<Instant>,
    reading: Duration,
    emit: Box<dyn FnMut(Event)>,
}

impl<P> fmt::Debug for KeepService<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepService").field("keeper", &self.keeper).field("held", &self.held).finish_non_exhaustive()
    }
}

impl<P: Planner> KeepService<P> {
    /// Listens to changes of links, and applies the files. `emit` is called for each event.
    ///
    /// # Errors
    /// There is no netlink socket, or the journal cannot be read.
    pub fn open(held: HeldHome, mut keeper: Keeper<P>, emit: impl FnMut(Event) + 'static) -> Result<Self, KeepError> {
        let system = |operation| move |source| KeepError::System { operation, source };
        let monitor = Monitor::open().map_err(system("listen to changes of links"))?;
        let reader = Reader::open().map_err(system("read the links"))?;
        keeper.recall()?;
        let now = Instant::now();
        let mut service = Self {
            keeper,
            held,
            monitor,
            reader,
            last_look: now,
            next_look: now,
            changed: None,
            reading: Duration::ZERO,
            emit: Box::new(emit),
        };
        service.look()?;
        Ok(service)
    }

    fn look(&mut self) -> Result<(), KeepError> {
        let begun = Instant::now();
        let (names, irqs) = self.keeper.interests();
        let read = self.reader.read(&names, &irqs);
        let state = read.map_err(|source| KeepError::System { operation: "read the links", source })?;
        self.reading = begun.elapsed();
        let seen = self.changed.take().unwrap_or(begun);
        self.keeper.look(state, seen).into_iter().for_each(&mut self.emit);
        self.last_look = Instant::now();
        self.next_look = self.last_look + LOOK_PERIOD;
        Ok(())
    }
}

impl<P: Planner> Service for KeepService<P> {
    type Command = Command;
    type Answer = Answer;
    type Status = Status;
    type Ended = ();
    type Error = KeepError;

    fn name(&self) -> String {
        "the keeper".to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.held.socket()
    }

    fn poll(&mut self) -> Result<(), KeepError> {
        let mut is_link = false;
        let read = self.monitor.read(|event| is_link |= matches!(event, LinkEvent::Link(..) | LinkEvent::Lost));
        read.map_err(|source| KeepError::System { operation: "listen to changes of links", source })?;
        let now = Instant::now();
        if is_link {
            self.changed.get_or_insert(now);
        }
        if self.changed.is_some() {
            self.next_look = self.next_look.min(self.last_look + LINK_PERIOD);
        }
        if now >= self.next_look { self.look() } else { Ok(()) }
    }

    fn wait(&mut self) -> Result<Wait<'_>, KeepError> {
        Ok(Wait { until: self.next_look, readable: self.monitor.sockets().collect() })
    }

    fn reload(&mut self) {
        self.keeper.begin_anew();
        self.next_look = Instant::now();
    }

    fn command(&mut self, command: Command, to: Sender<Answer>) -> Result<ControlFlow<()>, KeepError> {
        if command == Command::Reload {
            // A verb may have changed settings that its file keeps.
            self.keeper.recall()?;
            self.keeper.begin_anew();
            self.look()?;
        }
        // The client may have closed the connection.
        let _ = to.send(Answer(Box::new(self.status()?)));
        Ok(if command == Command::Stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn status(&mut self) -> Result<Status, KeepError> {
        let reading_s = Some(self.reading.as_secs_f64());
        Ok(Status { pid: Some(std::process::id()), reading_s, ..self.keeper.status() })
    }

    fn close(self) -> Result<(), KeepError> {
        drop(self.held);
        Ok(())
    }
}
