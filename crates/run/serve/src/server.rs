//! A process with one or several services: signals, sockets, readiness, the loop.

use std::{
    fmt, io,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::Instant,
};

use crate::{
    control::{ANSWER_TIMEOUT, Listener, Request, Requests},
    error::ServeError,
    hook,
    process::{Signals, notify_ready},
    service::Service,
    wake::{Wait, Waker, Wakes, wait},
};

/// Runs services on one thread. Those that still run are closed when it is dropped.
pub struct Server {
    signals: Signals,
    wakes: Wakes,
    running: Vec<Box<dyn Running>>,
}

impl Server {
    /// Catches signals from now on: SIGINT and SIGTERM end the services, SIGHUP has them reload.
    pub fn start() -> io::Result<Self> {
        let wakes = Wakes::new()?;
        Ok(Self { signals: Signals::catch(&wakes.waker())?, wakes, running: Vec::new() })
    }

    /// A server in a process whose signals are not its own.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn without_signals() -> io::Result<Self> {
        Ok(Self { signals: Signals::default(), wakes: Wakes::new()?, running: Vec::new() })
    }

    /// Ends the services from another thread.
    pub fn stop(&self) -> Stop {
        Stop { flag: Arc::clone(&self.signals.stop), waker: self.wakes.waker() }
    }

    /// Has an open service answer commands from now on. They wait until the server [runs](Server::run).
    pub fn add<S: Service + 'static>(&mut self, mut service: S) -> Result<Handle<S>, ServeError> {
        let (to, requests) = mpsc::channel();
        let to = Requests { to, waker: self.wakes.waker() };
        let listener = Listener::start(&service.socket(), to.clone())?;
        service.on_listen();
        let (status_to, statuses) = mpsc::channel();
        let (ended_to, ended) = mpsc::channel();
        self.running.push(Box::new(Slot {
            service,
            requests,
            statuses,
            listener,
            is_due: false,
            failed: None,
            ended_to,
        }));
        let statuses = Requests { to: status_to, waker: self.wakes.waker() };
        Ok(Handle { client: Client { requests: to, statuses }, ended })
    }

    /// Notifies systemd that the services answer, and runs them until the last one has ended. `warn` hears a failure to notify systemd.
    pub fn run(&mut self, warn: impl FnOnce(ServeError)) {
        if let Err(source) = notify_ready() {
            warn(ServeError::Notify { names: self.running.iter().map(|service| service.name()).collect(), source });
        }
        while !self.running.is_empty() && !self.signals.stop.load(Ordering::Relaxed) {
            self.poll();
        }
        self.close();
    }

    /// Polls each service once, and waits until one has work.
    fn poll(&mut self) {
        let reloads = self.signals.reload.swap(false, Ordering::Relaxed);
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].poll(reloads) {
                ControlFlow::Continue(()) => at += 1,
                ControlFlow::Break(()) => self.running.remove(at).close(),
            }
        }
        if !self.running.is_empty() {
            let waits: Vec<_> = self.running.iter_mut().map(|service| service.wait()).collect();
            wait(&self.wakes, &waits);
        }
    }

    fn close(&mut self) {
        self.running.drain(..).for_each(Running::close);
        hook::end_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.running.iter().map(|service| service.name()).collect();
        f.debug_struct("Server").field("signals", &self.signals).field("running", &names).finish()
    }
}

/// A service that a server has, whatever its commands are.
trait Running {
    fn name(&self) -> String;
    /// Polls it and carries out its commands; a break: it is to be closed.
    fn poll(&mut self, reloads: bool) -> ControlFlow<()>;
    fn wait(&mut self) -> Wait<'_>;
    fn close(self: Box<Self>);
}

struct Slot<S: Service> {
    service: S,
    requests: Receiver<Request<S::Command, S::Answer>>,
    statuses: Receiver<Sender<S::Status>>,
    listener: Listener,
    /// A command was carried out, which may have made work.
    is_due: bool,
    /// Reason why it is closed.
    failed: Option<S::Error>,
    ended_to: Sender<Result<S::Ended, S::Error>>,
}

impl<S: Service> Slot<S> {
    fn serve(&mut self) -> Result<ControlFlow<()>, S::Error> {
        self.service.poll()?;
        self.is_due = false;
        for (command, to) in self.requests.try_iter() {
            self.is_due = true;
            if self.service.command(command, to)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for to in self.statuses.try_iter() {
            // The client may have gone.
            let _ = to.send(self.service.status()?);
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<S: Service> Running for Slot<S> {
    fn name(&self) -> String {
        self.service.name()
    }

    fn poll(&mut self, reloads: bool) -> ControlFlow<()> {
        if self.failed.is_some() {
            return ControlFlow::Break(());
        }
        if reloads {
            self.service.reload();
        }
        self.serve().unwrap_or_else(|error| {
            self.failed = Some(error);
            ControlFlow::Break(())
        })
    }

    fn wait(&mut self) -> Wait<'_> {
        let at_once = || Wait { until: Instant::now(), readable: Vec::new() };
        if self.is_due {
            return at_once();
        }
        self.service.wait().unwrap_or_else(|error| {
            self.failed = Some(error);
            at_once()
        })
    }

    fn close(self: Box<Self>) {
        let Self { service, requests, statuses, listener, failed, ended_to, .. } = *self;
        drop(statuses);
        let closed = service.close();
        // A command that came too late is not waited for.
        drop(requests);
        drop(listener);
        // Nobody may want to know.
        let _ = ended_to.send(failed.map_or(closed, Err));
    }
}

/// Ends the services of a [`Server`].
#[derive(Debug, Clone)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// The process's side of a running service.
pub struct Handle<S: Service> {
    client: Client<S>,
    ended: Receiver<Result<S::Ended, S::Error>>,
}

impl<S: Service> Handle<S> {
    /// A client of the service.
    pub fn client(&self) -> &Client<S> {
        &self.client
    }

    /// Result of the service, once; none: it still runs.
    pub fn ended(&self) -> Option<Result<S::Ended, S::Error>> {
        self.ended.try_recv().ok()
    }
}

impl<S: Service> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// Asks a service from another thread of the process that runs it.
pub struct Client<S: Service> {
    requests: Requests<Request<S::Command, S::Answer>>,
    statuses: Requests<Sender<S::Status>>,
}

impl<S: Service> Client<S> {
    /// Has the service carry out a command, and waits for no answer.
    pub fn send(&self, command: S::Command) {
        // One that has ended carries out nothing.
        let _ = self.requests.send((command, mpsc::channel().0));
    }

    /// State of the service; none: it has ended.
    pub fn status(&self) -> Option<S::Status> {
        let (to, status) = mpsc::channel();
        self.statuses.send(to).ok()?;
        status.recv_timeout(ANSWER_TIMEOUT).ok()
    }
}

impl<S: Service> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
