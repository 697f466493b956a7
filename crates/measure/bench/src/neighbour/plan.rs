//! The conditions, and their order in each round: pure.

use std::fmt;

use model::{CpuSet, bench::neighbour::Condition, run::Sharing};

use super::kind::{Form, Kind, Neighbour, Remedy, Spot};
use crate::{BenchError, Cores};

#[derive(Debug, Clone)]
pub struct Options {
    pub neighbours: Vec<Neighbour>,
    pub forms: Vec<Form>,
    pub spots: Vec<Spot>,
    /// The remedies; without one is measured in any case.
    pub remedies: Vec<Remedy>,
    pub rounds: u32,
    /// The number from which the orders are drawn.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    pub(super) neighbour: Neighbour,
    pub(super) form: Form,
    pub(super) spot: Spot,
    pub(super) cpus: CpuSet,
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Process => self.neighbour.fmt(f),
            Form::Guest => write!(f, "{} in a guest", self.neighbour),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Made {
    pub(super) neighbour: Option<Placed>,
    pub(super) remedy: Remedy,
}

impl Made {
    pub(super) fn words(&self) -> Condition {
        let with = self.neighbour.as_ref();
        Condition {
            neighbour: with.map(ToString::to_string),
            on: with.map(|placed| placed.spot.key().to_owned()),
            cpus: with.map(|placed| placed.cpus.to_string()),
            remedy: self.remedy.key().to_owned(),
        }
    }
}

/// The conditions of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub options: Options,
    /// The quiet box, the same once more, then the neighbours.
    pub(super) conditions: Vec<Made>,
    /// The CPUs for threads of the box that are moved away from its cores.
    pub(super) aside: CpuSet,
    pub skipped: Vec<String>,
}

impl Plan {
    /// Plans a run on a box that has `cores`. `usable` are all CPUs, `siblings` those that share a core with one of the box's.
    pub fn new(mut options: Options, cores: &Cores, usable: &CpuSet, siblings: &CpuSet) -> Result<Self, BenchError> {
        if cores.sharing() == Sharing::Inline {
            return Err(BenchError::Setting(
                "a neighbour needs a box apart from the sender, that is two CPUs: name others with --cpus".into(),
            ));
        }
        options.remedies.retain(|&remedy| remedy != Remedy::None);
        options.remedies.insert(0, Remedy::None);
        let of_box: CpuSet = cores.of_box.iter().copied().collect();
        let others = usable.difference(&of_box);
        let mut skipped = Vec::new();
        options.remedies.retain(|&remedy| {
            let why = why_not(remedy, &others);
            skipped.extend(why.map(|why| format!("remedy {}: {why}", remedy.key())));
            why.is_none()
        });
        let mut conditions = vec![Made { neighbour: None, remedy: Remedy::None }; 2];
        for &spot in &options.spots {
            let cpus = match place(spot, cores, &of_box, &others, siblings) {
                Ok(cpus) => cpus,
                Err(why) => {
                    skipped.push(format!("a neighbour on {}: {why}", spot.key()));
                    continue;
                }
            };
            let each = |&neighbour| options.forms.iter().map(move |&form| (neighbour, form));
            for (neighbour, form) in options.neighbours.iter().flat_map(each) {
                let placed = Placed { neighbour, form, spot, cpus: cpus.clone() };
                for &remedy in &options.remedies {
                    match senseless(&placed, remedy) {
                        Some(why) => skipped.push(format!("{placed} on {} with {}: {why}", spot.key(), remedy.key())),
                        None => conditions.push(Made { neighbour: Some(placed.clone()), remedy }),
                    }
                }
            }
        }
        if conditions.len() == 2 {
            return Err(BenchError::Setting(format!("nothing is left to measure; {}", skipped.join("; "))));
        }
        let aside = place(Spot::Other, cores, &of_box, &others, siblings).unwrap_or_default();
        Ok(Self { options, conditions, aside, skipped })
    }

    /// The box's receive work is to be in threads of NAPI: these can be moved.
    pub fn threaded(&self) -> bool {
        self.options.remedies.contains(&Remedy::ThreadedNapi)
    }

    pub fn conditions(&self) -> usize {
        self.conditions.len()
    }

    /// Conditions whose neighbour is a guest.
    pub fn guests(&self) -> usize {
        let is_guest = |made: &&Made| made.neighbour.as_ref().is_some_and(|placed| placed.form == Form::Guest);
        self.conditions.iter().filter(is_guest).count()
    }

    pub fn words(&self) -> Vec<String> {
        let word = |(at, made): (usize, &Made)| match (&made.neighbour, at) {
            (None, 0) => "the quiet box".to_owned(),
            (None, _) => "the quiet box again".to_owned(),
            (Some(placed), _) => {
                format!("{placed} on {} (CPU {}), remedy {}", placed.spot.key(), placed.cpus, made.remedy.key())
            }
        };
        self.conditions.iter().enumerate().map(word).collect()
    }

    /// The order of a round: each condition once.
    pub(super) fn order(&self, round: u32) -> Vec<usize> {
        let mut state = self.options.seed ^ u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut order: Vec<usize> = (0..self.conditions.len()).collect();
        // Fisher and Yates.
        for at in (1..order.len()).rev() {
            order.swap(at, (next(&mut state) % (at as u64 + 1)) as usize);
        }
        order
    }

    /// The condition without a remedy that has the same neighbour.
    pub(super) fn bare(&self, at: usize) -> Option<usize> {
        let of = |at: usize| &self.conditions[at];
        if of(at).remedy == Remedy::None {
            return None;
        }
        (0..self.conditions.len())
            .find(|&other| of(other).remedy == Remedy::None && of(other).neighbour == of(at).neighbour)
    }
}

/// splitmix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn why_not(remedy: Remedy, others: &CpuSet) -> Option<&'static str> {
    match remedy {
        Remedy::Cpuset | Remedy::ThreadedNapi if others.is_empty() => Some("there is no CPU besides the box's"),
        _ => None,
    }
}

/// Reason why a neighbour with a remedy says nothing.
fn senseless(placed: &Placed, remedy: Remedy) -> Option<&'static str> {
    match (placed.neighbour.kind, placed.spot, remedy) {
        (Kind::Traffic, _, Remedy::Cpuset | Remedy::Quota) if placed.form == Form::Process => {
            Some("its work is the kernel's own, which no control group has")
        }
        (_, Spot::Other | Spot::Sibling, Remedy::Cpuset | Remedy::ThreadedNapi) => Some("it is on no core of the box"),
        _ => None,
    }
}

fn place(
    spot: Spot,
    cores: &Cores,
    of_box: &CpuSet,
    others: &CpuSet,
    siblings: &CpuSet,
) -> Result<CpuSet, &'static str> {
    match spot {
        Spot::Box => Ok(of_box.clone()),
        Spot::Sibling if siblings.is_empty() => Err("the box's cores have no siblings that are usable"),
        Spot::Sibling => Ok(siblings.clone()),
        Spot::Other => {
            let tester: CpuSet = [&[cores.sender], cores.receiver.as_slice()].concat().into_iter().collect();
            let free = others.difference(&tester).difference(siblings);
            match (free.is_empty(), others.is_empty()) {
                (false, _) => Ok(free),
                // The sender's: a trial in which it is held up does not count.
                (true, false) => Ok(others.clone()),
                (true, true) => Err("there is no CPU besides the box's"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(neighbours: &[&str], spots: &[Spot], remedies: &[Remedy]) -> Options {
        let neighbours = neighbours.iter().map(|n| n.parse().unwrap()).collect();
        let forms = vec![Form::Process];
        Options { neighbours, forms, spots: spots.to_vec(), remedies: remedies.to_vec(), rounds: 5, seed: 7 }
    }

    fn plan(cpus: &str, options: Options) -> Result<Plan, BenchError> {
        let usable: CpuSet = cpus.parse().unwrap();
        Plan::new(options, &Cores::split(&usable).unwrap(), &usable, &CpuSet::new())
    }

    #[test]
    fn two_quiet_boxes_come_first_and_every_neighbour_is_there_without_a_remedy() {
        let plan = plan("0-1", options(&["cpu", "io"], &[Spot::Box], &[Remedy::Nice])).unwrap();
        let words: Vec<String> = plan
            .conditions
            .iter()
            .map(|made| {
                let it = made.words();
                format!("{} {}", it.neighbour.unwrap_or_else(|| "quiet".into()), it.remedy)
            })
            .collect();
        assert_eq!(words, ["quiet none", "quiet none", "cpu:1 none", "cpu:1 nice", "io:1 none", "io:1 nice"]);
        assert_eq!((plan.bare(3), plan.bare(2), plan.bare(5)), (Some(2), None, Some(4)));
    }

    #[test]
    fn each_round_has_each_condition_once_in_an_order_of_its_own() {
        let plan = plan("0-1", options(&["cpu", "io", "cache"], &[Spot::Box, Spot::Other], &[])).unwrap();
        let mut orders: Vec<Vec<usize>> = (0..5).map(|round| plan.order(round)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<_>>());
        }
        assert_eq!(orders[0], plan.order(0), "the same seed is the same order");
        orders.sort();
        orders.dedup();
        assert_eq!(orders.len(), 5);
    }

    #[test]
    fn what_makes_no_sense_is_left_out_and_named() {
        let all = plan("0-1", options(&["cpu", "traffic"], &[Spot::Box, Spot::Sibling], &Remedy::ALL)).unwrap();
        let left = all.skipped.join("\n");
        assert!(left.contains("sibling") && left.contains("traffic:100 on box with cpuset"), "{left}");
        assert!(all.threaded() && all.aside.to_string() == "0");
        let none = plan("3", options(&["cpu"], &[Spot::Other], &[])).unwrap_err().to_string();
        assert!(none.contains("two CPUs"), "{none}");
        let none = plan("0-1", options(&["cpu"], &[Spot::Sibling], &[])).unwrap_err().to_string();
        assert!(none.contains("nothing is left") && none.contains("no siblings"), "{none}");
    }

    #[test]
    fn each_form_has_its_turn() {
        let both = Options { forms: Form::ALL.to_vec(), ..options(&["traffic"], &[Spot::Box], &[Remedy::Quota]) };
        let plan = plan("0-1", both).unwrap();
        // A guest's traffic is QEMU's work, which has a control group.
        let guest = "traffic:100 in a guest on box (CPU 1), remedy";
        assert_eq!(
            plan.words()[2..],
            ["traffic:100 on box (CPU 1), remedy none".to_owned(), format!("{guest} none"), format!("{guest} quota"),]
        );
        assert_eq!((plan.guests(), plan.skipped.len()), (2, 1));
    }

    #[test]
    fn another_core_is_the_senders_only_where_there_is_no_free_one() {
        let cpus = |usable| {
            let plan = plan(usable, options(&["cpu"], &[Spot::Other], &[])).unwrap();
            plan.conditions[2].words().cpus.unwrap()
        };
        assert_eq!((cpus("0-1"), cpus("0-7")), ("0".to_owned(), "5-7".to_owned()));
    }
}
