//! The planner of `keep`: plans by `spread` and `doctor`.

use std::collections::BTreeMap;

use doctor::{Evidence, Selection, diagnose, fix_plan};
use host::{
    Host, Root,
    knob::{Change, Knob},
};
use keep::{
    Planned, Planner,
    folder::IntentFile,
    intent::{self, Doctor, Spread, Steering, Switch},
};
use model::doctor::Role;
use spread::{Options, PlanError, Steer, plan};

/// Plans by `spread` and `doctor` on this machine.
pub(super) struct VerbPlanner {
    root: Root,
}

impl VerbPlanner {
    pub(super) fn live() -> Self {
        Self { root: Root::live() }
    }
}

impl Planner for VerbPlanner {
    fn check(&self, name: &str) -> Result<(), String> {
        super::check_name(name)
    }

    fn plan(&mut self, files: &[IntentFile]) -> Result<Vec<Planned>, String> {
        let mut host = Host::read(&self.root).map_err(|error| error.to_string())?;
        let mut evidence = BTreeMap::new();
        let mut all = Vec::new();
        for file in files {
            let mut planned = Planned::default();
            for spread in &file.intents.spread {
                self.spread(&mut host, spread, &mut planned);
            }
            for doctor in &file.intents.doctor {
                self.doctor(&host, doctor, &mut evidence, &mut planned);
            }
            all.push(planned);
        }
        Ok(all)
    }
}

impl VerbPlanner {
    /// Adds a placement to `planned`, and its interrupts' CPUs to `host`, so that later placements count them there.
    fn spread(&self, host: &mut Host, intent: &Spread, planned: &mut Planned) {
        let matched = intent.matched(host);
        planned.pending.extend(matched.pending);
        if matched.names.is_empty() && !intent.is_for_all() {
            return;
        }
        let made = match plan(host, &self.options(intent, matched.names)) {
            Ok(made) => made,
            Err(error @ PlanError::NoPorts { .. }) => return planned.pending.push(error.to_string()),
            Err(error) => {
                planned.problem.get_or_insert_with(|| format!("{intent}: {error}"));
                return;
            }
        };
        for target in &made.targets {
            if let Knob::IrqAffinity { irq } = target.knob
                && let Some(cpus) = target.knob.cpus(&target.new)
                && let Some(found) = host.irqs.iter_mut().find(|it| it.number == irq)
            {
                found.affinity = cpus;
            }
        }
        planned.targets.extend(made.targets);
        planned.warnings.extend(made.plan.warnings);
    }

    fn options(&self, intent: &Spread, nics: Vec<String>) -> Options {
        let flows = self.root.read_opt("proc/sys/net/core/rps_sock_flow_entries").ok().flatten();
        let steer = |steering| match steering {
            Steering::Auto => Steer::Auto,
            Steering::On => Steer::On,
            Steering::Off => Steer::Off,
        };
        Options {
            nics,
            cpus: intent.cpus.clone(),
            except: intent.except.clone().unwrap_or_default(),
            rps: steer(intent.rps),
            rfs: intent.rfs,
            rfs_now: flows.and_then(|text| text.parse().ok()),
            xps: steer(intent.xps),
            threaded: intent.threaded.map(|switch| switch == Switch::On),
            coalesce: intent.coalesce.iter().map(|it| (it.0, it.1.clone())).collect(),
            max_rings: intent.ring.is_some(),
        }
    }

    /// Adds the fixes of checks to `planned`.
    fn doctor(
        &self,
        host: &Host,
        intent: &Doctor,
        evidence: &mut BTreeMap<Option<Role>, Evidence>,
        planned: &mut Planned,
    ) {
        let matched = intent::matched(&intent.interfaces, host);
        planned.pending.extend(matched.pending);
        let mut names: Vec<String> = intent.checks.clone();
        if !intent.interfaces.is_empty() {
            let of = |check: &String| matched.names.iter().map(|name| format!("{check}:{name}")).collect::<Vec<_>>();
            names = intent.checks.iter().flat_map(of).collect();
        }
        let seen = match evidence.entry(intent.role) {
            std::collections::btree_map::Entry::Occupied(seen) => Ok(seen.into_mut()),
            std::collections::btree_map::Entry::Vacant(none) => {
                Evidence::gather(&self.root, intent.role).map(|seen| none.insert(seen))
            }
        };
        let wanted = Selection::parse(&names).map_err(|error| error.to_string());
        let fixes = seen.map_err(|error| error.to_string()).and_then(|seen| Ok((seen, wanted?)));
        match fixes {
            // An empty selection would mean all checks.
            Ok(_) if names.is_empty() => {}
            Ok((seen, wanted)) => {
                let fixes = fix_plan(&diagnose(seen, &Selection::default()), &wanted);
                let is_new = |change: &Change| !planned.targets.iter().any(|target| target.knob == change.knob);
                let fixes: Vec<Change> = fixes.changes.into_iter().filter(is_new).collect();
                planned.targets.extend(fixes);
            }
            Err(why) => {
                planned.problem.get_or_insert_with(|| format!("{intent}: {why}"));
            }
        }
    }
}
