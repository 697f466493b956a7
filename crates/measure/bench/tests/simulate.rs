//! The search and a plain binary search on a box that answers as a real one did: counts of trials and errors (docs/measure/bench-search.md).

use std::collections::BTreeMap;

use bench::search::{BinarySearch, Counted, Limits, Search, Step};
use model::bench::Goal;

/// Searches of each kind; each has its own series of answers.
const RUN_COUNT: u64 = 100;
/// The highest load of the tester: the search is between nothing and that.
const LIMITS: Limits = Limits { min_pps: 1000.0, max_pps: 8e6 };

/// A box that answers with what a recorded one lost at the nearest loads.
struct Recorded {
    /// By rising load: load, loss ratios.
    loads: Vec<(f64, Vec<f64>)>,
    /// Units per second that came through at the highest load.
    overloaded: Vec<f64>,
}

impl Recorded {
    fn read(csv: &str) -> Self {
        let mut loads: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let mut overloaded = Vec::new();
        for line in csv.lines().filter(|l| !l.starts_with('#')).skip(1) {
            let [wanted, offered, sent, forwarded] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let number = |text: &str| text.parse::<f64>().unwrap();
            let share = number(forwarded) / number(sent);
            match wanted.parse::<u64>() {
                Ok(wanted) => loads.entry(wanted).or_default().push(1.0 - share),
                Err(_) => overloaded.push(number(offered) * share),
            }
        }
        Self { loads: loads.into_iter().map(|(pps, losses)| (pps as f64, losses)).collect(), overloaded }
    }

    /// The loss ratio of a trial; between two recorded loads it is one of either's, of the nearer one's more often.
    fn trial(&self, pps: f64, random: &mut Random) -> f64 {
        let above = self.loads.partition_point(|l| l.0 <= pps);
        let losses = match (above.checked_sub(1).map(|i| &self.loads[i]), self.loads.get(above)) {
            (Some(low), Some(up)) => {
                let share = (pps / low.0).ln() / (up.0 / low.0).ln();
                if random.unit() < share { &up.1 } else { &low.1 }
            }
            (None, Some(up)) => &up.1,
            (_, None) => return (1.0 - random.one_of(&self.overloaded) / pps).max(0.0),
        };
        random.one_of(losses)
    }

    /// The load at which half of all trials are worse than `loss_ratio`: the shares of the recorded loads, made to rise by pooling neighbours that do not.
    fn truth(&self, loss_ratio: f64) -> f64 {
        let mut pools: Vec<(f64, f64, usize)> = Vec::new();
        for (_, losses) in &self.loads {
            let worse = losses.iter().filter(|&&l| l > loss_ratio).count();
            pools.push((worse as f64, losses.len() as f64, 1));
            while let [.., (a, n, loads), (b, m, more)] = pools[..]
                && a / n >= b / m
            {
                pools.truncate(pools.len() - 2);
                pools.push((a + b, n + m, loads + more));
            }
        }
        let shares: Vec<f64> = pools.iter().flat_map(|&(a, n, loads)| vec![a / n; loads]).collect();
        let i = shares.iter().position(|&s| s > 0.5).unwrap();
        let (low, up) = (self.loads[i - 1].0, self.loads[i].0);
        low * (up / low).powf((0.5 - shares[i - 1]) / (shares[i] - shares[i - 1]))
    }
}

/// Splitmix64: the same series everywhere.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn one_of(&mut self, of: &[f64]) -> f64 {
        of[(self.unit() * of.len() as f64) as usize]
    }
}

/// Trials of all runs, and by how much each result was off, as a share of the truth.
#[derive(Default)]
struct Account {
    trials: Vec<f64>,
    errors: Vec<f64>,
}

impl Account {
    fn mean_trials(&self) -> f64 {
        self.trials.iter().sum::<f64>() / self.trials.len() as f64
    }

    /// The root of the mean square.
    fn error(&self) -> f64 {
        (self.errors.iter().map(|e| e * e).sum::<f64>() / self.errors.len() as f64).sqrt()
    }

    fn line(&self, name: &str) -> String {
        let sorted = |of: &[f64]| {
            let mut of: Vec<f64> = of.iter().map(|e| e.abs()).collect();
            of.sort_by(f64::total_cmp);
            of
        };
        let (trials, errors) = (sorted(&self.trials), sorted(&self.errors));
        let at = |of: &[f64], share: f64| of[(share * (of.len() - 1) as f64) as usize];
        format!(
            "| {name} | {:.1} | {:.0} | {:.1} | {:.1} | {:.1} |",
            self.mean_trials(),
            at(&trials, 0.95),
            100.0 * self.error(),
            100.0 * at(&errors, 0.5),
            100.0 * at(&errors, 0.9)
        )
    }
}

fn ours(goal: &Goal, recorded: &Recorded, truth: f64) -> Account {
    let mut account = Account::default();
    for run in 0..RUN_COUNT {
        let (mut random, mut trials) = (Random(run), 0);
        let mut search = Search::new(vec![goal.clone()], LIMITS);
        while let Step::Trial { pps, duration, .. } = search.next() {
            let loss = recorded.trial(pps, &mut random);
            search.record(pps, duration, Counted::at(pps, duration, loss));
            trials += 1;
        }
        account.trials.push(f64::from(trials));
        account.errors.push(search.found()[0].lower_pps.unwrap_or(0.0) / truth - 1.0);
    }
    account
}

fn binary(goal: &Goal, recorded: &Recorded, truth: f64) -> Account {
    let mut account = Account::default();
    for run in 0..RUN_COUNT {
        let (mut random, mut trials) = (Random(run), 0);
        let mut search = BinarySearch::new(goal.clone(), LIMITS);
        while let Some((pps, duration)) = search.next() {
            let loss = recorded.trial(pps, &mut random);
            search.record(pps, duration, Counted::at(pps, duration, loss));
            trials += 1;
        }
        account.trials.push(f64::from(trials));
        account.errors.push(search.bounds().0 / truth - 1.0);
    }
    account
}

/// Searches of both kinds at 0.1 % loss with several widths and rules for believing a load, by the lines of the table.
fn compare(name: &str, csv: &str) -> Vec<(String, Account, Account)> {
    let recorded = Recorded::read(csv);
    let truth = recorded.truth(0.001);
    println!("{name}, truth: {truth:.0} packets/s");
    let mut lines = Vec::new();
    for width in [0.03, 0.01] {
        for trials in [1.0, 3.0] {
            let goal = Goal {
                name: String::new(),
                loss_ratio: 0.001,
                exceed_ratio: 0.5,
                initial_s: 0.4,
                trial_s: 0.4,
                sum_s: 0.4 * trials,
                width,
                longest_s: 0.0,
            };
            let (ours, binary) = (ours(&goal, &recorded, truth), binary(&goal, &recorded, truth));
            let conditions = format!("{:.0} % | up to {trials:.0}", 100.0 * width);
            println!(
                "{}\n{}",
                ours.line(&format!("{conditions} | this")),
                binary.line(&format!("{conditions} | binary"))
            );
            lines.push((conditions, ours, binary));
        }
    }
    lines
}

/// The recording at which the settings of the search were chosen.
#[test]
fn fewer_trials_than_binary_search_and_no_greater_error_on_a_noisy_router() {
    for (conditions, ours, binary) in compare("router", include_str!("fixtures/router_busy.csv")) {
        assert!(ours.mean_trials() < binary.mean_trials(), "{conditions}");
        assert!(ours.error() < binary.error(), "{conditions}");
    }
}

/// A recording that was made when the settings of the search stood, and at which nothing was chosen. The error may be a little larger, and is on
/// the stateful filter.
fn not_tuned_for(name: &str, csv: &str) {
    for (conditions, ours, binary) in compare(name, csv) {
        assert!(ours.mean_trials() < 0.75 * binary.mean_trials(), "{name}, {conditions}");
        assert!(ours.error() < 1.2 * binary.error(), "{name}, {conditions}");
    }
}

#[test]
fn fewer_trials_than_binary_search_on_a_noisy_filter_that_it_was_not_tuned_for() {
    not_tuned_for("stateful filter", include_str!("fixtures/stateful_busy.csv"));
}

#[test]
fn fewer_trials_than_binary_search_on_a_noisy_bridge_that_it_was_not_tuned_for() {
    not_tuned_for("bridge", include_str!("fixtures/bridge_busy.csv"));
}
