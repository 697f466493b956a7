//! A broker as a service: opened, polled, asked, closed.

use std::{
    fmt,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
};

use host::stack::Hooks;
use ipnet::IpNet;
use model::link::LinkStatus;
use serve::{Service, Wait};
use sys::privilege::{Capability, drop_all_but};

use super::{Answer, Broker, BrokerSettings, Command, Held};
use crate::{
    LinkError,
    copy::Receives,
    rights,
    sockets::{Allow, Sockets},
};

/// What a broker does beside answering for its node.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    pub broker: BrokerSettings,
    /// Prefixes whose TCP connections are carried; empty: none are.
    pub cluster: Vec<IpNet>,
    /// Sources and ports that are let in; empty: the default.
    pub allow: Vec<Allow>,
    /// The folder below which files of other nodes are written; none: they are refused.
    pub receive: Option<PathBuf>,
    /// Bytes of its file system that stay free; none: a tenth.
    pub receive_free: Option<u64>,
}

/// The broker of a network namespace, with the threads that carry sockets and receive files.
pub struct BrokerService {
    broker: Broker,
    held: Held,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    tell: Box<dyn FnMut(String)>,
}

impl fmt::Debug for BrokerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerService").field("broker", &self.broker).field("held", &self.held).finish_non_exhaustive()
    }
}

impl BrokerService {
    /// Begins to answer other nodes, and programs of this one. `say` hears warnings and what fails, `tell` what happens.
    pub fn open(
        held: Held,
        options: &BrokerOptions,
        say: fn(String),
        tell: impl FnMut(String) + Clone + Send + 'static,
    ) -> Result<Self, LinkError> {
        let broker = Broker::start(options.broker.clone(), &held)?;
        if let Some(warning) = broker.unbounded() {
            say(format!("warning: {warning}"));
        }
        let sockets = match options.cluster.as_slice() {
            [] => None,
            prefixes => Some(Sockets::start(prefixes, &options.allow, broker.known(), broker.disposer())?),
        };
        if sockets.is_some()
            && options.allow.is_empty()
            && let Ok(Some(filters)) = Hooks::open().look(&options.broker.interface)
        {
            say(format!(
                "connections over link bypass the firewall ({filters}): addresses of the cluster may connect to ports from 1024 on; to restrict them: --allow PREFIX:PORTS"
            ));
        }
        let receives =
            options.receive.as_deref().map(|folder| Receives::start(folder, options.receive_free)).transpose()?;
        let mut service =
            Self { broker, held, threads: Vec::new(), stop: Arc::default(), tell: Box::new(tell.clone()) };
        if let Some(mut receives) = receives {
            let failed = ["files cannot be received", "files can no longer be received"];
            service.start("ek-copy", &rights::OF_COPIES, failed, say, move |stop| receives.run(stop, tell));
        }
        if let Some(mut sockets) = sockets {
            let failed = ["connections of programs are not carried", "connections of programs are no longer carried"];
            service.start("ek-sockets", &[], failed, say, move |stop| sockets.run(stop));
        }
        Ok(service)
    }

    /// Does `work` on a thread with these rights alone. `say` hears what it has `failed` at: at the start, or later.
    fn start(
        &mut self,
        name: &str,
        keeps: &'static [Capability],
        failed: [&'static str; 2],
        say: fn(String),
        work: impl FnOnce(&AtomicBool) -> Result<(), LinkError> + Send + 'static,
    ) {
        let stop = Arc::clone(&self.stop);
        let run = move || {
            if let Err(error) = drop_all_but(keeps) {
                return say(format!("{}: {error}", failed[0]));
            }
            if let Err(error) = work(&stop) {
                say(format!("{}: {error}", failed[1]));
            }
        };
        self.threads.extend(thread::Builder::new().name(name.to_owned()).spawn(run));
    }

    /// How frames come to programs, in words.
    pub fn carried(&self) -> &str {
        self.broker.carried()
    }
}

impl Service for BrokerService {
    type Command = Command;
    type Answer = Answer;
    type Status = LinkStatus;
    type Ended = ();
    type Error = LinkError;

    fn name(&self) -> String {
        "the broker".to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.held.paths().control()
    }

    fn poll(&mut self) -> Result<(), LinkError> {
        self.broker.poll(&mut self.tell)
    }

    fn wait(&mut self) -> Result<Wait<'_>, LinkError> {
        self.broker.wait()
    }

    fn command(&mut self, command: Command, to: Sender<Answer>) -> Result<ControlFlow<()>, LinkError> {
        let mut flow = ControlFlow::Continue(());
        let answer = match command {
            Command::Status => Answer::Status(Box::new(self.status()?)),
            Command::Ping { address, bytes, timeout } => {
                let Broker { pings, engine, .. } = &mut self.broker;
                match pings.start(engine, &address, bytes, timeout, &to)? {
                    None => return Ok(flow),
                    Some(why) => Answer::Refused(why),
                }
            }
            Command::Stop => {
                flow = ControlFlow::Break(());
                Answer::Done
            }
        };
        // Whoever asked may have gone.
        let _ = to.send(answer);
        Ok(flow)
    }

    fn status(&mut self) -> Result<LinkStatus, LinkError> {
        // Programs reach what is shown.
        self.broker.list_nodes();
        Ok(self.broker.status())
    }

    fn close(self) -> Result<(), LinkError> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // It has said itself what went wrong.
            let _ = thread.join();
        }
        drop(self.broker);
        drop(self.held);
        Ok(())
    }
}
