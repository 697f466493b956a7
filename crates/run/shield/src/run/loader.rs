//! A thread that loads programs, one after the other.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread,
};

use bpf::filter::{AckProgram, Shield, ShieldConfig, ShieldShared, SpareProgram};
use rules::tables::RuleTables;
use rules::{
    Rule, Rules,
    compile::{Cache, Counters, Now},
};

use super::{preload, syn_answers};
use crate::{detect, error::ShieldError};

/// The input of preloaded programs, which are usable until it changes.
#[derive(Debug)]
pub(super) struct Base {
    /// The rules that hold without mitigations.
    pub(super) rules: Rules,
    /// Rules that stand for mitigations to come; none: nothing is to be kept ready.
    pub(super) template: Vec<Rule>,
    pub(super) config: ShieldConfig,
    pub(super) shared: Arc<ShieldShared>,
}

/// The tables that a filled program has, for a program of their own.
#[derive(Debug)]
pub(super) struct Exact {
    pub(super) tables: RuleTables,
    pub(super) config: ShieldConfig,
}

/// A program that was loaded, or why it was not.
pub(super) enum Loaded {
    Spare(Result<Box<SpareProgram>, ShieldError>),
    Exact(u64, Result<Shield, ShieldError>),
    /// None: it could not be, which is said when it is needed.
    Ack(Option<AckProgram>),
}

enum Order {
    Spare,
    Exact(u64, Box<Exact>),
}

/// The thread. It ends by itself when this is dropped, after the program that it is at.
#[derive(Debug)]
pub(super) struct Loader {
    orders: Sender<Order>,
    loaded: Receiver<Loaded>,
    /// Programs to wait that were ordered and have not come.
    pending: usize,
    /// The number of the last [`Exact`] that was ordered: earlier ones are not wanted any more.
    exact: Arc<AtomicU64>,
    ended: bool,
}

impl Loader {
    pub(super) fn start(base: Base, cache: Arc<Mutex<Cache>>) -> Result<Self, ShieldError> {
        let (orders, ordered) = mpsc::channel();
        let (done, loaded) = mpsc::channel();
        let exact = Arc::new(AtomicU64::new(0));
        let wanted = Arc::clone(&exact);
        let work = move || {
            let mut tables = None;
            let mut acks = base.config.cookies.as_ref().is_some_and(syn_answers::makes_connections);
            for order in ordered {
                let loaded = match order {
                    Order::Spare => Loaded::Spare(base.spare(&mut tables, &cache).map(Box::new)),
                    Order::Exact(number, _) if number != wanted.load(Ordering::Relaxed) => continue,
                    Order::Exact(number, exact) => {
                        let shield = Shield::load(&exact.tables, &exact.config, &base.shared);
                        Loaded::Exact(number, shield.map_err(ShieldError::from))
                    }
                };
                let ack = std::mem::take(&mut acks).then(|| Loaded::Ack(AckProgram::load().ok()));
                if std::iter::once(loaded).chain(ack).any(|loaded| done.send(loaded).is_err()) {
                    return;
                }
            }
        };
        thread::Builder::new().name("ek-ahead".into()).spawn(work).map_err(ShieldError::Thread)?;
        Ok(Self { orders, loaded, pending: 0, exact, ended: false })
    }

    /// Has programs loaded so that `spares` come, and then the one that is to replace a filled one. One that was ordered before is not
    /// wanted any more.
    pub(super) fn order(&mut self, spares: usize, exact: Option<Box<Exact>>) {
        let number = self.exact.fetch_add(1, Ordering::Relaxed) + 1;
        for _ in self.pending..spares {
            self.pending += 1;
            // That the thread has ended is seen by who waits for it.
            let _ = self.orders.send(Order::Spare);
        }
        if let Some(exact) = exact {
            let _ = self.orders.send(Order::Exact(number, exact));
        }
    }

    /// Returns whether a program that is to wait is being loaded.
    pub(super) fn comes(&self) -> bool {
        self.pending > 0
    }

    /// The next program that was loaded; none: none was since.
    pub(super) fn loaded(&mut self) -> Option<Result<Loaded, ShieldError>> {
        loop {
            match self.loaded.try_recv() {
                Ok(loaded) if self.is_wanted(&loaded) => return Some(Ok(loaded)),
                Ok(_) => {}
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => return self.end().map(Err),
            }
        }
    }

    pub(super) fn wait(&mut self) -> Result<Loaded, ShieldError> {
        loop {
            match self.loaded.recv() {
                Ok(loaded) if self.is_wanted(&loaded) => return Ok(loaded),
                Ok(_) => {}
                Err(_) => return Err(self.end().unwrap_or_else(gone)),
            }
        }
    }

    fn is_wanted(&mut self, loaded: &Loaded) -> bool {
        if let Loaded::Spare(_) = loaded {
            self.pending -= 1;
        }
        !matches!(loaded, Loaded::Exact(number, _) if *number != self.exact.load(Ordering::Relaxed))
    }

    /// The news that the thread has ended, once.
    fn end(&mut self) -> Option<ShieldError> {
        self.pending = 0;
        (!std::mem::replace(&mut self.ended, true)).then(gone)
    }
}

fn gone() -> ShieldError {
    ShieldError::Lacking("the thread that preloads programs has ended".into())
}

impl Base {
    /// A program with room for the template's rules, whose tables are compiled once.
    fn spare(&self, tables: &mut Option<RuleTables>, cache: &Mutex<Cache>) -> Result<SpareProgram, ShieldError> {
        let tables = match tables {
            Some(tables) => tables,
            None => {
                let rules = detect::insert(&self.rules, &self.template);
                // Which counters its rules have is said when it is filled.
                tables.insert(preload::tables(cache, &rules, &mut Counters::new(), Now::read())?)
            }
        };
        Ok(SpareProgram::load(tables, &self.config, &self.shared)?)
    }
}
