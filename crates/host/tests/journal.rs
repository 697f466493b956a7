//! The journal on a model of the machine: apply, undo, crashes, and writers that are not ours.

use std::{collections::BTreeMap, fs, io::Write};

use host::{
    journal::{ApplyError, Journal, JournalError, Session, StepState, UndoOptions},
    knob::{Change, Knob, KnobError, Store},
};
use proptest::prelude::*;

/// A machine of IRQs whose affinities are texts. It can refuse one IRQ, and die (by error) after so many writes.
#[derive(Debug, Clone, Default)]
struct Model {
    values: BTreeMap<Knob, String>,
    refuses: Option<Knob>,
}

impl Store for Model {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        let gone = || KnobError::Gone { knob: knob.clone(), object: "model".into() };
        self.values.get(knob).cloned().ok_or_else(gone)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        if self.refuses.as_ref() == Some(knob) {
            return Err(KnobError::Managed { knob: knob.clone(), value: value.to_owned() });
        }
        self.values.insert(knob.clone(), value.to_owned());
        Ok(())
    }
}

fn irq(irq: u32) -> Knob {
    Knob::IrqAffinity { irq }
}

fn change(knob: Knob, new: &str) -> Change {
    Change { knob, old: String::new(), new: new.to_owned(), reason: "a test".into() }
}

fn machine(irqs: u32) -> Model {
    Model { values: (0..irqs).map(|n| (irq(n), "ff".to_owned())).collect(), refuses: None }
}

fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::at(Some(folder.path()));
    (folder, journal)
}

/// Appends a line to the only session file, as a process that then dies would have done.
fn append(journal: &Journal, line: &str) {
    let session = &journal.sessions().unwrap()[0];
    let path = journal.folder().join(format!("{}.jsonl", session.header.session));
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn undo_of_apply_is_nothing(steps in prop::collection::vec((0u32..5, 1u32..256), 1..12)) {
        let (_folder, journal) = journal();
        let (mut model, writer) = (machine(5), journal.lock().unwrap());
        let before = model.values.clone();
        let changes: Vec<Change> = steps.iter().map(|(n, mask)| change(irq(*n), &format!("{mask:x}"))).collect();
        let mut session = Session::begin(&writer, "test").unwrap();
        session.apply(&writer, &mut model, &changes).unwrap();
        for (n, mask) in steps {
            let last = changes.iter().rev().find(|c| c.knob == irq(n)).unwrap();
            prop_assert!(irq(n).same(&model.values[&irq(n)], &last.new), "{mask}");
        }
        // As another process would read it.
        let mut session = journal.session(&session.header.session).unwrap();
        let report = session.undo(&writer, &mut model, UndoOptions::default()).unwrap();
        prop_assert!(report.is_complete());
        prop_assert_eq!(&model.values, &before);
        prop_assert!(!journal.sessions().unwrap()[0].is_open());
    }
}

#[test]
fn a_refused_write_takes_the_earlier_ones_back_and_names_the_reason() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(3), journal.lock().unwrap());
    let before = model.values.clone();
    model.refuses = Some(irq(2));
    let mut session = Session::begin(&writer, "test").unwrap();
    let changes = [change(irq(0), "1"), change(irq(1), "2"), change(irq(2), "4")];
    let error = session.apply(&writer, &mut model, &changes).unwrap_err();
    assert!(matches!(error, ApplyError::Undone { restored: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("IRQ 2") && error.to_string().contains("manages"), "{error}");
    assert_eq!(model.values, before);
}

#[test]
fn a_crash_between_the_record_and_its_outcome_is_undone_whether_or_not_the_write_happened() {
    for written in [false, true] {
        let (_folder, journal) = journal();
        let (mut model, writer) = (machine(2), journal.lock().unwrap());
        let mut session = Session::begin(&writer, "test").unwrap();
        session.apply(&writer, &mut model, &[change(irq(0), "1")]).unwrap();
        append(
            &journal,
            "{\"record\":\"pending\",\"step\":1,\"change\":{\"knob\":{\"kind\":\"irq_affinity\",\"irq\":1},\
             \"old\":\"ff\",\"new\":\"2\",\"reason\":\"a test\"}}\n",
        );
        // And a record that the crash tore: the change it announces was never begun.
        append(&journal, "{\"record\":\"pending\",\"step\":2,\"chan");
        if written {
            model.values.insert(irq(1), "2".into());
        }
        let mut session = journal.sessions().unwrap().remove(0);
        assert_eq!(session.steps.len(), 2);
        let report = session.undo(&writer, &mut model, UndoOptions::default()).unwrap();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.restored(), if written { 2 } else { 1 });
        assert_eq!(model.values, machine(2).values);
        assert!(!journal.sessions().unwrap()[0].is_open(), "the torn tail must not spoil the records behind it");
    }
}

#[test]
fn a_value_that_somebody_else_wrote_stops_undo_and_is_named() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(3), journal.lock().unwrap());
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, &mut model, &[change(irq(0), "1"), change(irq(1), "2"), change(irq(2), "4")]).unwrap();
    model.values.insert(irq(1), "80".into());
    let report = session.undo(&writer, &mut model, UndoOptions::default()).unwrap();
    assert!(!report.is_complete());
    assert_eq!(model.values[&irq(2)], "ff", "the one behind it was put back");
    assert_eq!(model.values[&irq(1)], "80", "the foreign value was left alone");
    assert_eq!(model.values[&irq(0)], "1", "undo stopped there");
    let text = report.steps.last().unwrap().to_string();
    assert!(
        text.contains("somebody else has written 7 ") && text.contains("we wrote 1, before that it was 0-7"),
        "{text}"
    );

    let mut session = journal.sessions().unwrap().remove(0);
    let report = session.undo(&writer, &mut model, UndoOptions { force: true, dry_run: false }).unwrap();
    assert!(matches!(report.steps[0].state, StepState::Forced { .. }));
    assert_eq!(model.values, machine(3).values);
}

#[test]
fn a_dry_run_changes_neither_the_machine_nor_the_journal() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(1), journal.lock().unwrap());
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, &mut model, &[change(irq(0), "1"), change(irq(0), "2")]).unwrap();
    let report = session.undo(&writer, &mut model, UndoOptions { dry_run: true, force: false }).unwrap();
    assert!(report.is_complete());
    assert_eq!(report.restored(), 2);
    assert_eq!(model.values[&irq(0)], "2");
    assert!(journal.sessions().unwrap()[0].is_open());
}

#[test]
fn a_knob_that_vanished_needs_no_undo() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(1), journal.lock().unwrap());
    let mut session = Session::begin(&writer, "test").unwrap();
    session.apply(&writer, &mut model, &[change(irq(0), "1")]).unwrap();
    model.values.clear();
    let report = session.undo(&writer, &mut model, UndoOptions::default()).unwrap();
    assert!(matches!(report.steps[0].state, StepState::Gone));
    assert!(report.is_complete());
}

#[test]
fn a_second_writer_is_turned_away_by_name() {
    let (_folder, journal) = journal();
    let _writer = journal.lock().unwrap();
    let error = journal.lock().unwrap_err();
    assert!(
        matches!(&error, JournalError::Locked { holder } if holder.contains(&std::process::id().to_string())),
        "{error}"
    );
}

#[test]
fn damage_inside_a_file_is_named_with_its_line() {
    let (_folder, journal) = journal();
    let writer = journal.lock().unwrap();
    Session::begin(&writer, "test").unwrap();
    append(&journal, "rubbish\n{\"record\":\"confirmed\"}\n");
    let error = journal.sessions().unwrap_err();
    assert!(matches!(error, JournalError::Damaged { line: 2, .. }), "{error}");
}

/// A model whose second write comes with the loss of the journal: a folder stands where the session's file was.
struct LosesJournal<'a>(Model, &'a Journal, u32);

impl Store for LosesJournal<'_> {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        self.0.read(knob)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        self.2 += 1;
        if self.2 == 2 {
            let session = &self.1.sessions().unwrap()[0];
            let path = self.1.folder().join(format!("{}.jsonl", session.header.session));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        }
        self.0.write(knob, value)
    }
}

#[test]
fn a_journal_lost_in_mid_apply_leaves_nothing_changed() {
    let (_folder, journal) = journal();
    let writer = journal.lock().unwrap();
    let mut session = Session::begin(&writer, "test").unwrap();
    let mut store = LosesJournal(machine(3), &journal, 0);
    let changes: Vec<Change> = (0..3).map(|n| change(irq(n), "1")).collect();
    let error = session.apply(&writer, &mut store, &changes).unwrap_err();
    assert!(matches!(error, ApplyError::Journal { restored: 2, .. }), "{error}");
    assert!(error.to_string().contains("Nothing stays changed: 2 earlier changes"), "{error}");
    assert_eq!(store.0.values, machine(3).values);
}
