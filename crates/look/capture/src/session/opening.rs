//! Places the readers, opens the sources, and tries backends on the live traffic.

use std::{sync::atomic::AtomicBool, time::Duration};

use host::{
    Host,
    picture::{Cpu, QueueRole},
};
use model::CpuSet;
use port::{PacketOptions, WHOLE_FRAME};

use super::{
    error::SessionError,
    interface::Interface,
    notes::{Note, Refusal},
    settings::{Destination, Settings},
};
use crate::{
    auto::{self, Choice, Trial},
    filter::{self, FilterError, Place},
    open::{self, AnySource, Tuning},
    plan::{self, Backend, Plan, Request},
    run::Limits,
};

/// Time for which each backend is tried.
const TRIAL_PERIOD: Duration = Duration::from_millis(500);
/// Number of times that those near the best are tried again.
const FINAL_ROUNDS_MAX: u32 = 3;

pub(super) struct Opening<'a> {
    pub(super) settings: &'a Settings,
    pub(super) host: &'a Host,
    pub(super) limits: Limits,
    pub(super) notify: &'a mut dyn FnMut(&Note<'_>),
}

impl Opening<'_> {
    /// Places the readers by the topology and the interface's interrupts.
    fn place(&self, interface: &str, backend: Backend) -> Result<Plan, SessionError> {
        let (host, readers) = (self.host, &self.settings.readers);
        let nic = host.nic(interface);
        let irq_cpus: CpuSet = nic
            .into_iter()
            .flat_map(|nic| &nic.irqs)
            .filter(|irq| irq.role != QueueRole::Control)
            .filter_map(|irq| host.irq(irq.irq))
            .flat_map(|irq| irq.effective.as_ref().unwrap_or(&irq.affinity).iter().collect::<Vec<_>>())
            .collect();
        // In `auto` the number is meant for those that can have several.
        let members = readers.members.filter(|_| self.settings.backend.is_some() || backend.is_fanout());
        let request = Request { backend, members, cpus: readers.cpus.clone() };
        // Without a list, the readers stay where this process may run (taskset, cpusets).
        let here = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok();
        let here = here.filter(|_| readers.cpus.is_none());
        let may = |cpu: &&Cpu| here.is_none_or(|set| set.is_set(cpu.id as usize).unwrap_or(false));
        let cpus: Vec<_> = host.cpus.iter().filter(may).cloned().collect();
        Ok(plan::plan(&request, &cpus, nic, &irq_cpus)?)
    }

    /// Opens the sources of one interface, each with its reader's CPU.
    pub(super) fn open(
        &mut self,
        interface: &Interface,
        backend: Backend,
        tuning: &Tuning,
    ) -> Result<Vec<(AnySource, Option<u32>)>, SessionError> {
        let settings = self.settings;
        let plan = self.place(&interface.name, backend)?;
        let filter = interface.filter(backend);
        if backend.is_xdp() && !filter::runs_in_kernel(&filter.program, Place::Xdp) {
            return Err(FilterError::NotInXdp { filter: settings.filter.clone() }.into());
        }
        let here = interface.filters_here && !backend.is_xdp();
        let options = PacketOptions {
            interface: interface.name.clone(),
            filter: if here { Vec::new() } else { filter.program.clone() },
            snaplen: if here { WHOLE_FRAME } else { settings.snaplen },
            promiscuous: settings.promiscuous,
            ignore_outgoing: settings.inbound,
        };
        let sources = open::open(&plan, &options, tuning)?;
        for text in open::notes(&sources, &interface.name, tuning)? {
            (self.notify)(&Note::Opened { backend, text: &text });
        }
        let filtered = |source: AnySource| {
            // The kernel has given tags back by then: the program is that for the bytes of a frame.
            if here { source.filtered(&interface.xdp.program, settings.snaplen) } else { source }
        };
        Ok(sources.into_iter().map(filtered).zip(plan.readers.iter().copied()).collect())
    }

    fn attempt(&mut self, interface: &Interface, backend: Backend, stop: &AtomicBool) -> Result<Trial, SessionError> {
        let sources = self.open(interface, backend, &self.settings.tuning)?;
        let count_only = self.settings.destination == Destination::Count;
        Ok(auto::trial(backend, sources, TRIAL_PERIOD, self.limits, count_only, stop)?)
    }

    /// Tries each backend on the live traffic, and tells of it. One that cannot be opened is told of too, and the others go on.
    pub(super) fn choose(&mut self, interface: &Interface, stop: &AtomicBool) -> Result<Choice, SessionError> {
        let settings = self.settings;
        let (mut trials, mut refusals) = (Vec::new(), Vec::new());
        for backend in settings.candidates() {
            match self.attempt(interface, backend, stop) {
                Ok(trial) => trials.push(trial),
                Err(error) => refusals.push(Refusal { backend, error }),
            }
        }
        let finalists = auto::finalists(&trials);
        for _ in 0..FINAL_ROUNDS_MAX {
            for backend in &finalists {
                trials.push(self.attempt(interface, *backend, stop)?);
            }
        }
        let trials = auto::means(&trials);
        let Some(mut choice) = auto::choose(&trials) else {
            return Err(refusals.into_iter().next().map_or(SessionError::NoTrial, |refusal| refusal.error));
        };
        if settings.tuning.consume && !choice.backend.is_xdp() {
            choice.reason += "; it only listens, so that frames pass on to the stack in spite of --consume (--backend tap or xdp ends them)";
        }
        if !settings.try_xdp {
            choice.reason += "; tap was not tried, since it attaches an XDP program (allow it with --try-xdp)";
        }
        (self.notify)(&Note::Tried { trials: &trials, refusals: &refusals, choice: &choice });
        Ok(choice)
    }
}

impl Settings {
    /// Backends that `auto` may try: an XDP program is attached only with the user's consent, and frames are only taken from the stack when the user
    /// gives them up.
    fn candidates(&self) -> impl Iterator<Item = Backend> + use<> {
        let (try_xdp, consume) = (self.try_xdp, self.tuning.consume);
        Backend::ALL.into_iter().filter(move |backend| match backend {
            Backend::Tap => try_xdp,
            Backend::Xdp => consume,
            _ => true,
        })
    }
}
