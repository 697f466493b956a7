//! A broker as a [`Service`].

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
    copy::FileReceiver,
    rights,
    sockets::{Allow, Sockets},
};

/// Settings of a broker and of its optional parts.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    pub broker: BrokerSettings,
    /// Prefixes whose TCP connections are carried; empty: none.
    pub cluster: Vec<IpNet>,
    /// Allowed sources and ports; empty: the default.
    pub allow: Vec<Allow>,
    /// Folder for files of other nodes; none: they are refused.
    pub receive: Option<PathBuf>,
    /// Bytes of the folder's file system that stay free; none: a tenth.
    pub receive_free: Option<u64>,
}

/// The broker of a network namespace, with the threads that carry sockets and receive files.
pub struct BrokerService {
    broker: Broker,
    held: Held,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    log: Box<dyn FnMut(String)>,
}

impl fmt::Debug for BrokerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerService").field("broker", &self.broker).field("held", &self.held).finish_non_exhaustive()
    }
}

impl BrokerService {
    /// Starts a broker. `warn` gets warnings and failures, `log` events.
    pub fn open(
        held: Held,
        options: &BrokerOptions,
        warn: impl Fn(String) + Clone + Send + 'static,
        log: impl FnMut(String) + Clone + Send + 'static,
    ) -> Result<Self, LinkError> {
        let broker = Broker::start(options.broker.clone(), &held)?;
        if let Some(warning) = broker.unbounded() {
            warn(format!("warning: {warning}"));
        }
        let sockets = match options.cluster.as_slice() {
            [] => None,
            prefixes => Some(Sockets::start(prefixes, &options.allow, broker.known(), broker.disposer())?),
        };
        if sockets.is_some()
            && options.allow.is_empty()
            && let Ok(Some(filters)) = Hooks::open().look(&options.broker.interface)
        {
            warn(format!(
                "connections over link bypass the firewall ({filters}): addresses of the cluster may connect to ports from 1024 on; to restrict them: --allow PREFIX:PORTS"
            ));
        }
        let receives =
            options.receive.as_deref().map(|folder| FileReceiver::start(folder, options.receive_free)).transpose()?;
        let mut service = Self { broker, held, threads: Vec::new(), stop: Arc::default(), log: Box::new(log.clone()) };
        if let Some(mut receives) = receives {
            let failed = ["files cannot be received", "files can no longer be received"];
            service.start("ek-copy", &rights::OF_COPIES, failed, warn.clone(), move |stop| receives.run(stop, log));
        }
        if let Some(mut sockets) = sockets {
            let failed = ["connections of programs are not carried", "connections of programs are no longer carried"];
            service.start("ek-sockets", &[], failed, warn, move |stop| sockets.run(stop));
        }
        Ok(service)
    }

    /// Runs `work` on a thread that keeps these capabilities only. `failed`: what to warn of if it fails at the start, or later.
    fn start(
        &mut self,
        name: &str,
        keeps: &'static [Capability],
        failed: [&'static str; 2],
        warn: impl Fn(String) + Send + 'static,
        work: impl FnOnce(&AtomicBool) -> Result<(), LinkError> + Send + 'static,
    ) {
        let stop = Arc::clone(&self.stop);
        let run = move || {
            if let Err(error) = drop_all_but(keeps) {
                return warn(format!("{}: {error}", failed[0]));
            }
            if let Err(error) = work(&stop) {
                warn(format!("{}: {error}", failed[1]));
            }
        };
        self.threads.extend(thread::Builder::new().name(name.to_owned()).spawn(run));
    }

    /// Receive path of programs, in words.
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
        self.broker.poll(&mut self.log)
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
        // The client may have disconnected.
        let _ = to.send(answer);
        Ok(flow)
    }

    fn status(&mut self) -> Result<LinkStatus, LinkError> {
        // Programs can connect to each node that is shown.
        self.broker.list_nodes();
        Ok(self.broker.status())
    }

    fn close(self) -> Result<(), LinkError> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // The thread has logged its own error.
            let _ = thread.join();
        }
        drop(self.broker);
        drop(self.held);
        Ok(())
    }
}
