//! A box on which `route` forwards.

use std::{
    net::IpAddr,
    path::Path,
    sync::{atomic::Ordering, mpsc},
    time::Duration,
};

use bpf::XdpMode;
use lab::boxes::{Family, Inside, Network, Ruleset};
use model::{
    CpuSet,
    route::{CtMark, RouteMode},
};
use route::{RouteError, RouteSettings, Router, rules::RouteRules};
use rules::{Action, Match, Place, Prefix, Rule, Rules, Verdict, file::RuleFile};
use sys::worker::Worker;

use crate::BenchError;

/// Time between two polls of the router.
const POLL_PERIOD: Duration = Duration::from_millis(50);
/// Next hops that each CPU remembers: more than twice those of a bench's networks.
const SLOT_COUNT: u32 = 1 << 17;

/// The router, in a thread inside the box. Dropping it takes it off.
#[derive(Debug)]
pub(super) struct FastPath {
    _worker: Worker,
}

impl FastPath {
    /// Puts it on both ports of the box; the fast path forwards when this comes back, on these CPUs if there are any.
    pub(super) fn start(
        inside: &Inside,
        family: Family,
        mode: RouteMode,
        rules: Option<&Ruleset>,
        cpus: &CpuSet,
    ) -> Result<Self, BenchError> {
        let rules = rules.map(|rules| file(rules, &family.whole()));
        let ports = [Some(&inside.entry), inside.exit.as_ref()].into_iter().flatten();
        let settings = RouteSettings {
            ports: ports.map(|end| end.name.clone()).collect(),
            xdp: XdpMode::Native,
            slots: Some(SLOT_COUNT),
            mode: RouteMode::Standard,
            auto_return: true,
            trial: Duration::ZERO,
            mark: CtMark::default(),
            cpus: cpus.clone(),
            queue: 2048,
        };
        let namespace = inside.namespace.handle();
        let (to, started) = mpsc::channel();
        let worker = Worker::start("ek-route", move |stop| {
            let start = || {
                let rules = rules.map(|file| RouteRules::of(Path::new("the bench"), file)).transpose()?;
                let (mut router, _) = Router::start_with(settings, rules)?;
                router.set_mode(mode)?;
                Ok::<_, RouteError>(router)
            };
            let (mut router, result) = match namespace.enter().map_err(BenchError::from).and_then(|()| Ok(start()?)) {
                Ok(router) => (Some(router), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Whoever started it waits for this.
            let _ = to.send(result);
            while let Some(running) = router.as_mut().filter(|_| !stop.load(Ordering::Relaxed)) {
                // On an error the kernel forwards, which the figures show.
                if running.poll_within(POLL_PERIOD).is_err() {
                    break;
                }
            }
        });
        let worker = worker.map_err(|e| BenchError::Machine(format!("cannot start a thread: {e}")))?;
        started.recv().unwrap_or(Err(BenchError::Panicked("router's thread")))?;
        Ok(Self { _worker: worker })
    }
}

/// The rules of a filter of nftables, in the router's language.
fn file(of: &Ruleset, accepted: &Network) -> RuleFile {
    let whole = |address: IpAddr| Prefix { address, len: if address.is_ipv4() { 32 } else { 128 } };
    let refuse = |(n, address)| Rule {
        name: format!("refused-{n}"),
        when: Match { source: vec![Place::Prefix(whole(address))], ..Match::default() },
        action: Action::Drop,
        ..Rule::default()
    };
    let mut all: Vec<Rule> = of.refused(accepted.address.is_ipv4()).into_iter().enumerate().map(refuse).collect();
    let destination = Prefix { address: accepted.address, len: accepted.prefix_len };
    let when = Match { destination: vec![Place::Prefix(destination)], ..Match::default() };
    all.push(Rule { name: "accepted".to_owned(), when, action: Action::Pass, ..Rule::default() });
    let rules = Rules { rules: all, default: Verdict::Drop, malformed: Verdict::Drop, ..Rules::default() };
    RuleFile { rules, ..RuleFile::default() }
}
