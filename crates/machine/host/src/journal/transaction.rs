//! A plan carried out: what resets others goes first, each change is journalled and read back, and all of them are taken back when the
//! rest cannot be made.

use std::{
    fmt, slice,
    sync::atomic::{AtomicBool, Ordering},
};

use sys::privilege::Capability;

use super::{Applied, ApplyError, JournalError, Session, UndoOptions, Writer, short_name};
use crate::knob::{Change, Knob, Store};

/// The capabilities that the changes take. The affinity of another's thread takes CAP_SYS_NICE; nothing else does.
pub fn needed(changes: &[Change]) -> &'static [Capability] {
    let of_threads = |c: &Change| matches!(c.knob, Knob::NapiThreaded { .. } | Knob::NapiThreadAffinity { .. });
    match changes.iter().any(of_threads) {
        true => &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_NICE],
        false => &[Capability::CAP_NET_ADMIN],
    }
}

/// `1 setting`, `2 settings`.
pub fn settings(count: usize) -> String {
    format!("{count} setting{}", if count == 1 { "" } else { "s" })
}

/// A session that changes the machine as a whole or not at all.
#[derive(Debug)]
pub struct Transaction<'a> {
    writer: &'a Writer,
    /// The session that undo takes back.
    pub session: Session,
}

/// A transaction that did not come to its end; what it had changed was put back, as far as each variant says.
#[derive(Debug)]
pub enum TransactionError<E> {
    /// A change could not be made.
    Apply(ApplyError),
    /// The stop flag was raised.
    Stopped(RolledBack),
    /// The machine could not be planned for again behind a setting that resets others.
    Replan(E, RolledBack),
}

/// The end of a transaction that was broken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolledBack {
    /// The number of settings that were put back.
    pub restored: usize,
    pub complete: bool,
    pub session: String,
}

impl fmt::Display for RolledBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.complete {
            return write!(f, "Not all could be put back; run evenkeel undo {}", short_name(&self.session));
        }
        let were = if self.restored == 1 { "was" } else { "were" };
        write!(f, "Nothing stays changed: {} {were} put back", settings(self.restored))
    }
}

impl<'a> Transaction<'a> {
    /// Begins a session for what `command` asked for.
    pub fn begin(writer: &'a Writer, command: &str) -> Result<Self, JournalError> {
        Ok(Self { writer, session: Session::begin(writer, command)? })
    }

    /// Makes the changes: the settings of the devices first, then all the others. Some drivers reset their queues and interrupts for
    /// the former, and NAPI threads exist only once they are switched on; so behind a setting of a device that was written, `replan`
    /// looks at the machine again and says what is to be changed now. A raised `stop` takes all of the session back.
    ///
    /// # Errors
    /// A change could not be made, `replan` failed, or `stop` was raised.
    pub fn make<E>(
        &mut self,
        store: &mut dyn Store,
        changes: &[Change],
        stop: &AtomicBool,
        replan: impl FnOnce() -> Result<Vec<Change>, E>,
    ) -> Result<Applied, TransactionError<E>> {
        let (devices, mut others): (Vec<Change>, Vec<Change>) =
            changes.iter().cloned().partition(|c| c.knob.resets_queues());
        let mut applied = self.step_by_step(store, &devices, Session::apply, stop)?;
        let mut how: Apply = Session::apply;
        if applied.written > 0 {
            match replan() {
                Ok(left) => others = with_first_values(left, &others),
                Err(error) => return Err(TransactionError::Replan(error, self.roll_back(store))),
            }
            how = Session::apply_after_reset;
        }
        applied.add(self.step_by_step(store, &others, how, stop)?);
        Ok(applied)
    }

    /// Makes the changes one by one, so that a raised `stop` is seen between any two.
    fn step_by_step<E>(
        &mut self,
        store: &mut dyn Store,
        changes: &[Change],
        how: Apply,
        stop: &AtomicBool,
    ) -> Result<Applied, TransactionError<E>> {
        let mut applied = Applied::default();
        for change in changes {
            if stop.load(Ordering::Relaxed) {
                return Err(TransactionError::Stopped(self.roll_back(store)));
            }
            let made = how(&mut self.session, self.writer, store, slice::from_ref(change));
            applied.add(made.map_err(TransactionError::Apply)?);
        }
        Ok(applied)
    }

    pub fn roll_back(&mut self, store: &mut dyn Store) -> RolledBack {
        let report = self.session.undo(self.writer, store, UndoOptions::default());
        let session = self.session.header.session.clone();
        RolledBack { restored: report.restored(), complete: report.is_complete(), session }
    }
}

type Apply = fn(&mut Session, &Writer, &mut dyn Store, &[Change]) -> Result<Applied, ApplyError>;

/// The changes that are left, with the values from before the device was set: what undo is to put back is not what the
/// driver has made of them since. A setting that was as planned then, and is not now, had the planned value. For what no driver
/// resets, what is there now counts.
fn with_first_values(left: Vec<Change>, first: &[Change]) -> Vec<Change> {
    let first_value = |c: &Change| {
        let old = first.iter().find(|f| f.knob == c.knob).map_or(&c.new, |f| &f.old);
        match c.knob {
            Knob::IrqAffinity { .. } if c.knob.cpus(old).is_none_or(|cpus| cpus.is_empty()) => String::new(),
            Knob::IrqAffinity { .. } | Knob::XpsCpus { .. } | Knob::RpsCpus { .. } | Knob::RpsFlowCnt { .. } => {
                old.clone()
            }
            _ => String::new(),
        }
    };
    let left = left.into_iter().filter(|c| !c.knob.resets_queues());
    left.map(|c| Change { old: first_value(&c), ..c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Direction;

    fn change(knob: Knob, old: &str, new: &str) -> Change {
        Change { knob, old: old.into(), new: new.into(), reason: "a test".into() }
    }

    #[test]
    fn undo_goes_to_the_value_from_before_the_reset() {
        let irq = |irq| Knob::IrqAffinity { irq };
        let rps = |queue| Knob::RpsCpus { nic: "x".into(), queue };
        let ring = Knob::Ring { nic: "x".into(), direction: Direction::Rx };
        let first = [change(irq(0), "ff", "1"), change(irq(2), "", "4"), change(rps(0), "3", "f")];
        let left = vec![
            // As it was planned before; the driver has made "f" of it since.
            change(irq(0), "f", "1"),
            // Was as planned, and the driver has reset it.
            change(irq(1), "f", "2"),
            // Its first value says nothing.
            change(irq(2), "f", "4"),
            change(rps(0), "0", "f"),
            change(Knob::RfsEntries, "1", "2"),
            change(ring, "256", "512"),
        ];
        let olds: Vec<(Knob, String)> = with_first_values(left, &first).into_iter().map(|c| (c.knob, c.old)).collect();
        let expected = [(irq(0), "ff"), (irq(1), "2"), (irq(2), ""), (rps(0), "3"), (Knob::RfsEntries, "")];
        assert_eq!(olds, expected.map(|(knob, old)| (knob, old.to_owned())));
    }

    #[test]
    fn only_threads_take_the_right_to_move_threads() {
        let affinity = Knob::NapiThreadAffinity { nic: "x".into(), napi: 1, pid: 2 };
        let has_nice = |knob| needed(&[change(knob, "", "1")]).contains(&Capability::CAP_SYS_NICE);
        assert!(has_nice(affinity) && !has_nice(Knob::IrqAffinity { irq: 0 }));
    }

    #[test]
    fn the_way_back_is_reported() {
        let roll_back =
            |restored, complete| RolledBack { restored, complete, session: "123456789-1".into() }.to_string();
        assert_eq!(roll_back(1, true), "Nothing stays changed: 1 setting was put back");
        assert_eq!(roll_back(0, true), "Nothing stays changed: 0 settings were put back");
        assert!(roll_back(1, false).ends_with("evenkeel undo 456789"));
    }
}
