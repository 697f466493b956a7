//! The cores of a run.

use model::{
    CpuSet,
    run::{Arrangement, Sharing},
};
use rig::cores::role;

use crate::BenchError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloodCores {
    /// The generator and the far end of the link.
    pub generator: u32,
    pub clients: u32,
    /// The host's receive work.
    pub receive: u32,
    pub server: u32,
}

impl FloodCores {
    /// Divides the usable CPUs: the first is the flood's, the second what the host receives. A third is the server's, a fourth the
    /// clients'; where they are missing, clients share the server's, and both that of what is received.
    ///
    /// Clients do not share the flood's core: it pauses while one of them sends, and leaves it room in a queue that is full in truth.
    /// On the host's core they send while it takes nothing from its queue, so that under overload they lose more than the flood does: a
    /// lower bound.
    ///
    /// # Errors
    /// [`BenchError::Setting`] with less than two: generator and host would take turns, and no flood would be more than the host can bear.
    pub fn split(usable: &CpuSet) -> Result<Self, BenchError> {
        let all: Vec<u32> = usable.iter().collect();
        match all[..] {
            [] | [_] => Err(BenchError::Setting(format!(
                "bench flood needs two CPUs, one for the flood and one for the host, and may use {} ({usable})",
                all.len()
            ))),
            [a, b] => Ok(Self { generator: a, clients: b, receive: b, server: b }),
            [a, b, c] => Ok(Self { generator: a, clients: c, receive: b, server: c }),
            [a, b, c, d, ..] => Ok(Self { generator: a, clients: d, receive: b, server: c }),
        }
    }

    /// The same with the clients on the flood's core, which gives an upper bound: see [`FloodCores::split`].
    pub fn with_clients_beside_the_flood(self) -> Self {
        Self { clients: self.generator, ..self }
    }

    pub fn of_host(&self) -> Vec<u32> {
        if self.receive == self.server { vec![self.receive] } else { vec![self.receive, self.server] }
    }

    pub(super) fn all(&self) -> [u32; 4] {
        [self.generator, self.clients, self.receive, self.server]
    }

    /// The cores in the words of a report.
    pub(super) fn arrangement(&self) -> Arrangement {
        let clients = if self.clients == self.generator {
            "the clients (nice -20; while one of them sends the flood pauses, so that under overload they lose less than it does)"
        } else if self.clients == self.receive {
            "the clients (nice -20; while one of them sends the host receives nothing, so that under overload they lose more than the \
             flood does)"
        } else {
            "the clients (nice -20)"
        };
        let mut does: Vec<(u32, Vec<&str>)> = Vec::new();
        for (cpu, what) in [
            (self.generator, "the generator"),
            (self.generator, "the far end of the link, which ends answers to spoofed sources"),
            (
                self.receive,
                "what the host, or a gateway in front of it, receives (by NAPI threads of nice -20, as an interrupt comes before processes)",
            ),
            (self.server, "the server and the protection's processes"),
            (self.clients, clients),
        ] {
            match does.iter_mut().find(|(of, _)| *of == cpu) {
                Some((_, all)) => all.push(what),
                None => does.push((cpu, vec![what])),
            }
        }
        Arrangement {
            sharing: Sharing::Apart,
            roles: does.into_iter().map(|(cpu, all)| role(&[cpu], &all.join(", "))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_the_floods_core_only_if_requested() {
        for (list, generator, clients, host) in
            [("0-1", 0, 1, vec![1]), ("1-3", 1, 3, vec![2, 3]), ("0-7", 0, 3, vec![1, 2])]
        {
            let cores = FloodCores::split(&list.parse().unwrap()).unwrap();
            assert_eq!((cores.generator, cores.clients, cores.of_host()), (generator, clients, host), "{list}");
            assert!(!cores.arrangement().roles[0].role.contains("clients"));
            let beside = cores.with_clients_beside_the_flood();
            assert!(beside.clients == generator && beside.arrangement().roles[0].role.contains("clients"));
        }
        assert!(FloodCores::split(&"1".parse().unwrap()).is_err());
    }
}
