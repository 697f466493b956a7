//! The cores of a run.

use model::{
    CpuSet,
    run::{Arrangement, Sharing},
};
use rig::cores::role;

use crate::BenchError;

/// The cores of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// Of the sender.
    pub sender: u32,
    /// Of the box: one for the frames of each direction, where there are two.
    pub of_box: Vec<u32>,
    /// Of the receiving ends.
    pub receiver: Vec<u32>,
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
        Ok(Self { sender, of_box, receiver })
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
                    "box under test (a kernel thread for each receive ring) and the receiving ends: their cost counts as the box's",
                ),
            ],
            (Sharing::Apart, false) => vec![
                role(&[self.sender], "sender"),
                role(&self.of_box, "box under test (a kernel thread for each receive ring)"),
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
        };
        assert_eq!(split("3"), cores(3, &[3], &[3]));
        assert_eq!(split("0-1"), cores(0, &[1], &[1]));
        assert_eq!(split("0-2"), cores(0, &[1], &[2]));
        assert_eq!(split("0-3"), cores(0, &[1, 2], &[3]));
        assert_eq!(split("4-15"), cores(4, &[5, 6], &[7, 8]));
        assert!(Cores::split(&CpuSet::new()).is_err());
    }

    #[test]
    fn what_is_shared_is_said() {
        let roles = |list: &str| split(list).arrangement(false);
        assert_eq!((roles("0").sharing, roles("0").roles.len()), (Sharing::Inline, 1));
        assert!(roles("0-1").roles[1].does.contains("receiving ends"));
        assert_eq!((roles("0-2").sharing, roles("0-2").roles.len()), (Sharing::Apart, 3));
        assert!(!split("0-3").receivers_share());
        assert!(split("0-1").arrangement(true).roles[1].does.contains("interrupts"));
    }
}
