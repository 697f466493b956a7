//! The cores of a run.

use model::{
    CpuSet,
    run::{Arrangement, Sharing},
};
use rig::cores::role;

use crate::BenchError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    pub sender: u32,
    /// Of the box: one for the frames of each direction, where there are two.
    pub of_box: Vec<u32>,
    /// Cores of the receiving ends.
    pub receiver: Vec<u32>,
    /// True if the box receives on its first core alone, and its second one forwards what the first hands over.
    pub hands_over: bool,
}

impl Cores {
    /// Divides the usable CPUs: with one, all share it; with two, the sender has its own and the box shares the other with the receiving
    /// ends; with three, each has its own; from four on the box has one for each direction; from five on so have the receiving ends.
    ///
    /// # Errors
    /// [`BenchError::Setting`] without any CPU.
    pub fn split(usable: &CpuSet) -> Result<Self, BenchError> {
        let all: Vec<u32> = usable.iter().collect();
        let (sender, of_box, receiver) = match all[..] {
            [] => return Err(BenchError::Setting("the bench needs at least one CPU".into())),
            [a] => (a, vec![a], vec![a]),
            [a, b] => (a, vec![b], vec![b]),
            [a, b, c] => (a, vec![b], vec![c]),
            [a, b, c, d] => (a, vec![b, c], vec![d]),
            [a, b, c, d, e, ..] => (a, vec![b, c], vec![d, e]),
        };
        Ok(Self { sender, of_box, receiver, hands_over: false })
    }

    /// Divides them for a box that receives by one queue, on one core, or on one core that hands over to a second: the sender has the first CPU, the
    /// box the next one or two, and the receiving ends the fourth; without a fourth they share the box's. None if there are too few.
    pub fn of_one_queue(usable: &CpuSet, second: bool) -> Option<Self> {
        let all: Vec<u32> = usable.iter().collect();
        let (sender, of_box) = match (&all[..], second) {
            ([a], false) => (*a, vec![*a]),
            ([a, b, ..], false) => (*a, vec![*b]),
            ([a, b, c, ..], true) => (*a, vec![*b, *c]),
            _ => return None,
        };
        let receiver = all.get(3).map_or_else(|| of_box.clone(), |&end| vec![end]);
        Some(Self { sender, of_box, receiver, hands_over: second })
    }

    /// The core that forwards what the receiving one hands over, if there is one.
    pub fn second(&self) -> Option<u32> {
        self.of_box.get(1).copied().filter(|_| self.hands_over)
    }

    /// True if the sender has a core of its own.
    pub fn sharing(&self) -> Sharing {
        if self.of_box.contains(&self.sender) { Sharing::Inline } else { Sharing::Apart }
    }

    /// True if the receiving ends share the box's cores.
    pub fn receivers_share(&self) -> bool {
        self.receiver.iter().any(|r| self.of_box.contains(r))
    }

    /// In the words of a report; `outside` is a box on another machine.
    pub fn arrangement(&self, outside: bool) -> Arrangement {
        if outside {
            let receives = "receiving, by the interrupts of the ports (see their affinity)";
            let roles = vec![role(&[self.sender], "sender"), role(&self.receiver, receives)];
            return Arrangement { sharing: Sharing::Apart, roles };
        }
        let handed = match self.second() {
            Some(second) => {
                format!(" (one kernel thread for the ring on CPU {}; CPU {second} forwards)", self.of_box[0])
            }
            None => " (one kernel thread per ring)".to_owned(),
        };
        let roles = match (self.sharing(), self.receivers_share()) {
            (Sharing::Inline, _) => {
                vec![role(
                    &self.of_box,
                    "sender, box under test and receiving ends, all on one core: the load throttles itself",
                )]
            }
            (Sharing::Apart, true) => vec![
                role(&[self.sender], "sender"),
                role(
                    &self.of_box,
                    &format!("the box{handed} and the receivers, whose CPU time is counted as the box's"),
                ),
            ],
            (Sharing::Apart, false) => vec![
                role(&[self.sender], "sender"),
                role(&self.of_box, &format!("box under test{handed}")),
                role(&self.receiver, "receiving ends (NAPI threads)"),
            ],
        };
        Arrangement { sharing: self.sharing(), roles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(list: &str) -> Cores {
        Cores::split(&list.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_sender_comes_first_then_the_box() {
        let cores = |sender, of_box: &[u32], receiver: &[u32]| Cores {
            sender,
            of_box: of_box.to_vec(),
            receiver: receiver.to_vec(),
            hands_over: false,
        };
        assert_eq!(split("3"), cores(3, &[3], &[3]));
        assert_eq!(split("0-1"), cores(0, &[1], &[1]));
        assert_eq!(split("0-2"), cores(0, &[1], &[2]));
        assert_eq!(split("0-3"), cores(0, &[1, 2], &[3]));
        assert_eq!(split("4-15"), cores(4, &[5, 6], &[7, 8]));
        assert!(Cores::split(&CpuSet::new()).is_err());
    }

    #[test]
    fn a_box_of_one_queue_has_its_second_core_only_where_there_is_one() {
        let of = |list: &str, second| Cores::of_one_queue(&list.parse().unwrap(), second);
        let parts =
            |list: &str, second| of(list, second).map(|c| (c.sender, c.of_box.clone(), c.receiver.clone(), c.second()));
        assert_eq!(parts("3", false), Some((3, vec![3], vec![3], None)));
        assert_eq!(parts("0-1", false), Some((0, vec![1], vec![1], None)));
        // The sender's core is no core of the box.
        assert_eq!((of("3", true), of("0-1", true)), (None, None));
        assert_eq!(parts("0-2", true), Some((0, vec![1, 2], vec![1, 2], Some(2))));
        // The receiving ends are at the same place with and without the second core.
        assert_eq!(parts("0-7", false), Some((0, vec![1], vec![3], None)));
        assert_eq!(parts("0-7", true), Some((0, vec![1, 2], vec![3], Some(2))));
        assert!(of("0-3", true).unwrap().arrangement(false).roles[1].role.contains("CPU 2 forwards"));
        assert_eq!(of("", false), None);
    }

    #[test]
    fn what_is_shared_is_reported() {
        let roles = |list: &str| split(list).arrangement(false);
        assert_eq!((roles("0").sharing, roles("0").roles.len()), (Sharing::Inline, 1));
        assert!(roles("0-1").roles[1].role.contains("receivers"));
        assert_eq!((roles("0-2").sharing, roles("0-2").roles.len()), (Sharing::Apart, 3));
        assert!(!split("0-3").receivers_share());
        assert!(split("0-1").arrangement(true).roles[1].role.contains("interrupts"));
    }
}
