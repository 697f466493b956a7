//! The processes of all nodes.

use std::time::Duration;

use model::run::Machine;

use super::{
    super::{
        cluster::Step,
        plan::{Plan, Transport, Trial},
    },
    orders::{Answer, Order, Other},
};
use crate::{
    MessagesError,
    remote::{Facts, Reach, Worker},
};

/// The processes of all nodes, in the order of the nodes. They end when this is dropped.
pub(in super::super) struct Machines {
    nodes: Vec<Worker<Answer>>,
    facts: Vec<Facts>,
}

impl Machines {
    /// Starts the process of each node, and joins them by each carrier. The first is this machine, at `interface`.
    pub(in super::super) fn start(
        interface: &str,
        machine: Machine,
        all: Vec<Reach>,
        plan: &Plan,
    ) -> Result<Self, MessagesError> {
        let ours = Facts::read(interface, machine, 0)?;
        let mut nodes = all.into_iter().map(Worker::<Answer>::start).collect::<Result<Vec<_>, _>>()?;
        let facts = nodes.iter_mut().map(|node| node.facts(&ours)).collect::<Result<Vec<_>, _>>()?;
        let twice = facts.iter().enumerate().find(|(at, one)| facts[..*at].iter().any(|other| other.mac == one.mac));
        if let Some((_, one)) = twice {
            return Err(MessagesError::SameMachine(one.mac.clone()));
        }
        let mut machines = Self { nodes, facts };
        plan.options.carriers.iter().try_for_each(|&transport| machines.join(transport, plan.options.bytes))?;
        Ok(machines)
    }

    pub(in super::super) fn machines(&self) -> Vec<Machine> {
        self.facts.iter().map(|facts| facts.machine.clone()).collect()
    }

    fn join(&mut self, transport: Transport, bytes: u32) -> Result<(), MessagesError> {
        let nodes = self.nodes.len();
        let listens = (0..nodes).map(|me| Order::Listen { transport, me, nodes, bytes });
        let ports = self.ask(listens.collect(), |answer| match answer {
            Answer::Listens { port } => Some(port),
            _ => None,
        })?;
        let other =
            |facts: &Facts| Other { mac: facts.mac.clone(), address: facts.address.map(|(address, _)| address) };
        let join = Order::Join { transport, others: self.facts.iter().map(other).collect(), ports };
        let joined = self.ask(vec![join; nodes], |answer| (answer == Answer::Joined).then_some(()))?;
        drop(joined);
        Ok(())
    }

    /// Gives the first nodes an order each, and has the answer of each.
    fn ask<T>(&mut self, orders: Vec<Order>, what: impl Fn(Answer) -> Option<T>) -> Result<Vec<T>, MessagesError> {
        let count = orders.len();
        for (node, order) in self.nodes.iter_mut().zip(orders) {
            node.order(&order)?;
        }
        let answers = self.nodes[..count].iter_mut().map(|node| {
            let answer = node.answer()?;
            what(answer).ok_or_else(|| MessagesError::Words("another answer than was asked for".into()))
        });
        answers.collect()
    }

    pub(in super::super) fn trial(&mut self, plan: &Plan, trial: Trial) -> Result<Step, MessagesError> {
        let Trial { transport, exchange, nodes } = trial;
        let (steps, bytes) = (plan.options.steps, plan.options.bytes);
        let computing_ns = Duration::as_nanos(&plan.computing(nodes)) as u64;
        let order = Order::Trial { transport, exchange, nodes, steps, bytes, computing_ns };
        let took = self.ask(vec![order; nodes as usize], |answer| match answer {
            Answer::Took { seconds, computed_s } => Some((seconds, computed_s)),
            _ => None,
        })?;
        let seconds = took.iter().map(|took| took.0).fold(0.0, f64::max) / f64::from(steps);
        let computed = took.iter().map(|took| took.1).sum::<f64>() / f64::from(nodes) / f64::from(steps);
        Ok(Step { seconds, exchange_s: (seconds - computed).max(0.0) })
    }
}
