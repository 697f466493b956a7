//! A machine in memory: plans, writes of others, failures.

use std::{cell::RefCell, rc::Rc};

use host::knob::{Change, KnobError};

use super::*;
use crate::{folder::IntentFile, intent::Drift, state::Interface, status::FileState};

/// Knobs in memory, which tests write past the keeper.
#[derive(Debug, Clone, Default)]
struct Machine(Rc<RefCell<BTreeMap<Knob, String>>>);

impl Machine {
    fn set(&self, knob: &Knob, value: &str) {
        self.0.borrow_mut().insert(knob.clone(), value.to_owned());
    }

    fn get(&self, knob: &Knob) -> String {
        self.0.borrow()[knob].clone()
    }
}

impl Store for Machine {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        let gone = || KnobError::Gone { knob: knob.clone(), object: "it".into() };
        self.0.borrow().get(knob).cloned().ok_or_else(gone)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        self.set(knob, value);
        Ok(())
    }
}

/// Plans 3 for each RPS setting, also for those that the machine lacks.
struct Threes(Machine, Rc<RefCell<Vec<Knob>>>);

impl Planner for Threes {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn plan(&mut self, files: &[IntentFile]) -> Result<Vec<Planned>, String> {
        let target = |(knob, old): (&Knob, &String)| Change {
            knob: knob.clone(),
            old: old.clone(),
            new: "3".into(),
            reason: "a test".into(),
        };
        let (machine, missing, none) = (self.0.0.borrow(), self.1.borrow(), String::new());
        let all = machine.iter().chain(missing.iter().map(|knob| (knob, &none)));
        let targets: Vec<Change> = all.map(target).collect();
        Ok(files.iter().map(|_| Planned { targets: targets.clone(), ..Planned::default() }).collect())
    }
}

struct Bed {
    machine: Machine,
    missing: Rc<RefCell<Vec<Knob>>>,
    keeper: Keeper<Threes>,
    begun: Instant,
    folder: tempfile::TempDir,
}

fn rps(queue: u32) -> Knob {
    Knob::RpsCpus { nic: "eth0".into(), queue }
}

fn bed(drift: Drift) -> Bed {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Machine::default());
    let intents = crate::intent::Intents { drift, spread: vec![Default::default()], doctor: Vec::new() };
    let etc = Folder::at(Some(&folder.path().join("etc")));
    etc.write(&etc.prepare("all", &intents, |_| Ok(())).unwrap()).unwrap();
    machine.set(&rps(0), "0");
    let (journal, missing) = (Journal::at(Some(&folder.path().join("state"))), Rc::default());
    let keeper =
        Keeper::with_store(etc, journal, Threes(machine.clone(), Rc::clone(&missing)), Box::new(machine.clone()));
    Bed { machine, missing, keeper, begun: Instant::now(), folder }
}

impl Bed {
    /// Looks `second` seconds after the start. Returns the kinds of the events.
    fn look(&mut self, second: u64) -> Vec<EventKind> {
        self.look_at(second, "eth0")
    }

    fn look_at(&mut self, second: u64, name: &str) -> Vec<EventKind> {
        let interfaces = [(2, Interface { name: name.into(), up: true, ..Interface::default() })].into();
        let state = State { interfaces, cpus: "0-1".into(), ..State::default() };
        let events = self.keeper.look(state, self.begun + Duration::from_secs(second));
        events.into_iter().map(|event| event.event).collect()
    }

    fn now(&self) -> String {
        self.machine.get(&rps(0))
    }
}

#[test]
fn what_is_asked_for_is_set_once_and_again_after_a_change_of_the_machine() {
    let mut bed = bed(Drift::Restore);
    assert_eq!(bed.look(0), [EventKind::Set]);
    assert_eq!(bed.now(), "3");
    assert!(bed.look(1).is_empty());
    bed.machine.set(&rps(1), "0");
    assert_eq!(bed.look_at(2, "lan0"), [EventKind::Set], "the rename has it planned anew");
    assert_eq!(bed.machine.get(&rps(1)), "3");
    assert_eq!(bed.keeper.status().files[0].settings, 2);
    // A removed queue is no foreign write.
    bed.machine.0.borrow_mut().remove(&rps(1));
    assert!(bed.look_at(10, "lan0").is_empty());
    assert_eq!(bed.look_at(11, "lan0"), [EventKind::Fewer]);
    assert!(bed.look_at(12, "lan0").is_empty());
    assert_eq!(bed.keeper.status().files[0].state, FileState::Kept);
}

#[test]
fn a_foreign_write_is_set_back_until_its_owner_is_known_to_insist() {
    let mut bed = bed(Drift::Restore);
    bed.look(0);
    bed.machine.set(&rps(0), "1");
    assert_eq!(bed.look(1), [EventKind::Set], "a driver settles");
    for second in 10..13 {
        bed.machine.set(&rps(0), "1");
        assert_eq!(bed.look(second), [EventKind::Restored]);
        assert_eq!(bed.now(), "3");
    }
    bed.machine.set(&rps(0), "1");
    assert_eq!(bed.look(13), [EventKind::Contested]);
    assert!(bed.look(14).is_empty() && bed.look(100).is_empty() && bed.look(612).is_empty());
    assert_eq!(bed.now(), "1", "left alone");
    let status = bed.keeper.status();
    assert_eq!(status.files[0].state, FileState::Differs);
    // The setting is restored once after the rest.
    assert!(!bed.look(614).is_empty());
    assert_eq!(bed.now(), "3");
}

#[test]
fn undo_goes_back_behind_what_others_wrote() {
    let mut bed = bed(Drift::Restore);
    bed.look(0);
    bed.machine.set(&rps(0), "1");
    assert_eq!(bed.look(10), [EventKind::Restored]);
    let journal = Journal::at(Some(&bed.folder.path().join("state")));
    let writer = journal.lock().unwrap();
    for mut session in crate::off::sessions(&journal, Some("all")).unwrap().into_iter().rev() {
        let report = session.undo(&writer, &mut bed.machine, Default::default());
        assert!(report.is_complete(), "{report:?}");
    }
    assert_eq!(bed.now(), "0");
    assert!(crate::off::sessions(&journal, None).unwrap().is_empty());
}

#[test]
fn a_foreign_write_is_left_where_the_file_says_so() {
    let mut bed = bed(Drift::Leave);
    bed.look(0);
    bed.machine.set(&rps(0), "1");
    assert_eq!(bed.look(10), [EventKind::Left]);
    assert!(bed.look(11).is_empty() && bed.look(80).is_empty());
    assert_eq!(bed.now(), "1");
    // Another value is a new write; a change of the machine leads to a new plan.
    bed.machine.set(&rps(0), "2");
    assert_eq!(bed.look(81), [EventKind::Left]);
    assert_eq!(bed.look_at(90, "lan0"), [EventKind::Set]);
}

#[test]
fn a_file_that_is_edited_is_read_again_and_a_bad_one_is_named_once() {
    let mut bed = bed(Drift::Restore);
    bed.look(0);
    let file = bed.folder.path().join("etc/keep.d/all.toml");
    std::fs::write(&file, "[[spread]]\nnonsense = 1\n").unwrap();
    assert_eq!(bed.look(1), [EventKind::Refused]);
    assert!(bed.look(2).is_empty());
    assert!(bed.look(100).is_empty(), "it stands, and was said");
    assert_eq!(bed.keeper.status().files[0].state, FileState::Refused);
    assert_eq!(bed.now(), "3", "settings stay");
}

#[test]
fn while_somebody_else_changes_the_machine_it_waits() {
    let mut bed = bed(Drift::Restore);
    let journal = Journal::at(Some(&bed.folder.path().join("state")));
    let writer = journal.lock().unwrap();
    assert_eq!(bed.look(0), [EventKind::Failed]);
    assert!(bed.look(2).is_empty(), "said once");
    drop(writer);
    assert_eq!(bed.look(4), [EventKind::Set]);
}

#[test]
fn what_fails_is_taken_back_and_not_tried_again_until_something_changes() {
    let mut bed = bed(Drift::Restore);
    bed.missing.borrow_mut().push(rps(9));
    assert_eq!(bed.look(0), [EventKind::Failed]);
    assert_eq!(bed.now(), "0", "the file's other settings were put back");
    for second in 1..200 {
        assert!(bed.look(second).is_empty());
    }
    assert_eq!(bed.keeper.status().files[0].state, FileState::Failed);
    let sessions = std::fs::read_dir(bed.folder.path().join("state/journal")).unwrap().count();
    assert_eq!(sessions, 2, "one session, and the lock");
    bed.missing.borrow_mut().clear();
    assert_eq!(bed.look_at(201, "lan0"), [EventKind::Set]);
    assert_eq!(bed.now(), "3");
}

/// Plans the last character of the file's name for one setting.
struct Lasts;

impl Planner for Lasts {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn plan(&mut self, files: &[IntentFile]) -> Result<Vec<Planned>, String> {
        let target = |file: &IntentFile| Change {
            knob: rps(0),
            old: "0".into(),
            new: file.name[file.name.len() - 1..].to_owned(),
            reason: "a test".into(),
        };
        Ok(files.iter().map(|file| Planned { targets: vec![target(file)], ..Planned::default() }).collect())
    }
}

#[test]
fn a_file_whose_plan_contradicts_another_ones_is_refused_before_it_is_written() {
    let bed = bed(Drift::Restore);
    let etc = Folder::at(Some(&bed.folder.path().join("etc")));
    etc.remove("all").unwrap();
    let doctor = crate::intent::Doctor { checks: vec!["rps".into()], ..Default::default() };
    let intents = crate::intent::Intents { doctor: vec![doctor], ..Default::default() };
    let prepare = |name: &str| etc.prepare(name, &intents, |_| Ok(())).unwrap();
    etc.write(&prepare("a1")).unwrap();
    let journal = Journal::at(Some(&bed.folder.path().join("state")));
    let mut keeper = Keeper::with_store(etc.clone(), journal, Lasts, Box::new(bed.machine.clone()));
    keeper.plan_beside(&prepare("b1")).unwrap();
    let refused = keeper.plan_beside(&prepare("b2")).unwrap_err().to_string();
    assert!(refused.starts_with("b2 is not written") && refused.contains("keep.d/a1.toml"), "{refused}");
}
