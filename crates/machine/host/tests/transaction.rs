//! Plans carried out on a model of the machine: in order, stopped half way, on trial, and one move at a time.

mod knobs;

use std::{
    cell::RefCell,
    convert::Infallible,
    process::Command,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use host::{
    journal::{Journal, Moves, RolledBack, StepState, Transaction, TransactionError, Trial, TrialError},
    knob::{Change, Direction, Knob, KnobError, Store},
};

use knobs::{Model, change, changes, irq, journal, machine};

static GO: AtomicBool = AtomicBool::new(false);

fn ring() -> Knob {
    Knob::Ring { nic: "x".into(), direction: Direction::Rx }
}

/// Two interrupts and a ring that resets them.
fn resetting() -> Model {
    let mut model = machine(2);
    model.values.insert(ring(), "256".into());
    model
}

fn no_replan() -> Result<Vec<Change>, Infallible> {
    panic!("nothing was reset")
}

#[test]
fn what_resets_the_others_goes_first_and_is_no_value_to_go_back_to() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (resetting(), journal.lock_for_changes().unwrap());
    let before = model.values.clone();
    let mut transaction = Transaction::begin(&writer, "test").unwrap();
    // In the plan the ring is last; interrupt 1 is as planned until it is reset.
    let first = [Change { old: "ff".into(), ..change(irq(0), "1") }, change(ring(), "512")];
    let replan = || Ok::<_, Infallible>(vec![change(irq(0), "1"), change(irq(1), "ff"), change(ring(), "512")]);
    let applied = transaction.make(&mut model, &first, &GO, replan).unwrap();
    assert_eq!((applied.written, applied.idle), (3, 0));
    let made: Vec<&Knob> = transaction.session.steps.iter().map(|s| &s.change.knob).collect();
    assert_eq!(made, [&ring(), &irq(0), &irq(1)]);
    assert_eq!([&model.values[&irq(0)], &model.values[&irq(1)], &model.values[&ring()]], ["1", "ff", "512"]);
    assert!(transaction.roll_back(&mut model).complete);
    assert_eq!(model.values, before);
}

#[test]
fn threads_that_come_with_the_first_change_are_set_too_and_go_with_it() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (Model::default(), journal.lock_for_changes().unwrap());
    let threaded = Knob::NapiThreaded { nic: "x".into() };
    let thread = Knob::NapiThreadAffinity { nic: "x".into(), napi: 1, pid: 7 };
    model.values.insert(threaded.clone(), "0".into());
    let mut transaction = Transaction::begin(&writer, "test").unwrap();
    let born = thread.clone();
    model.values.insert(thread.clone(), "0-3".into());
    let replan = || Ok::<_, Infallible>(vec![change(born, "2")]);
    transaction.make(&mut model, &[change(threaded, "1")], &GO, replan).unwrap();
    assert_eq!(model.values[&thread], "2");
    // The thread ends with the setting; that is no fault of undo.
    model.values.remove(&thread);
    assert!(transaction.roll_back(&mut model).complete);
}

#[test]
fn without_a_change_of_a_device_the_machine_is_not_read_again() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (resetting(), journal.lock_for_changes().unwrap());
    let mut transaction = Transaction::begin(&writer, "test").unwrap();
    let applied = transaction.make(&mut model, &[change(ring(), "256"), change(irq(0), "1")], &GO, no_replan).unwrap();
    assert_eq!((applied.written, applied.idle), (1, 1));
}

#[test]
fn a_plan_that_cannot_be_made_again_takes_the_first_half_back() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (resetting(), journal.lock_for_changes().unwrap());
    let mut transaction = Transaction::begin(&writer, "test").unwrap();
    let error = transaction.make(&mut model, &[change(ring(), "512")], &GO, || Err("no sysfs")).unwrap_err();
    let TransactionError::Replan("no sysfs", RolledBack { restored: 1, complete: true, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(model.values[&ring()], "256");
    assert!(!journal.sessions().unwrap()[0].is_open());
}

/// Raises a flag at a write.
struct Stops<'a>(Model, &'a AtomicBool);

impl Store for Stops<'_> {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        self.0.read(knob)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        self.1.store(true, Ordering::Relaxed);
        self.0.write(knob, value)
    }
}

#[test]
fn a_raised_stop_takes_all_of_it_back() {
    let (_folder, journal) = journal();
    let writer = journal.lock_for_changes().unwrap();
    let stop = AtomicBool::new(false);
    let mut store = Stops(machine(3), &stop);
    let mut transaction = Transaction::begin(&writer, "test").unwrap();
    let changes = changes(&["1"; 3]);
    let error = transaction.make(&mut store, &changes, &stop, no_replan).unwrap_err();
    let TransactionError::Stopped(back) = error else { panic!("{error:?}") };
    assert_eq!((back.restored, back.complete), (1, true));
    assert_eq!(store.0.values, machine(3).values);
}

#[test]
fn a_journal_that_cannot_be_read_is_no_way_back() {
    let (_folder, journal) = journal();
    drop(journal.lock().unwrap());
    std::fs::write(journal.folder().join("0-0.jsonl"), "rubbish\n").unwrap();
    assert!(journal.lock_for_changes().is_err());
    assert!(journal.lock().is_ok(), "undo still can");
}

/// Puts the session on trial by a guardian that says so.
fn on_trial(transaction: &mut Transaction<'_>, journal: &Journal, says: &str) -> Result<Option<String>, TrialError> {
    let mut guardian = Command::new("sh");
    guardian.args(["-c", &format!("echo {says}")]);
    let trial = Trial { guardian, seconds: 1, nics: Vec::new() };
    transaction.session.on_trial(journal, trial).map(|armed| armed.stays_in_group)
}

#[test]
fn a_session_waits_for_its_confirmation_once_a_guardian_watches() {
    let (_folder, journal) = journal();
    let (mut model, writer) = (machine(1), journal.lock_for_changes().unwrap());
    let mut transaction = Transaction::begin(&writer, "test").unwrap();
    let armed = on_trial(&mut transaction, &journal, "'armed 123 /user.slice (no way out)'").unwrap();
    assert_eq!(armed.as_deref(), Some("/user.slice (no way out)"));
    let session = transaction.session.header.session.clone();
    assert!(!journal.session(&session).unwrap().awaits_confirmation(), "nothing is changed yet");
    transaction.make(&mut model, &[change(irq(0), "1")], &GO, no_replan).unwrap();
    assert!(journal.session(&session).unwrap().awaits_confirmation());
}

#[test]
fn a_guardian_that_does_not_watch_is_an_error() {
    for says in ["", "armed", "armed soon", "what 123"] {
        let (_folder, journal) = journal();
        let writer = journal.lock_for_changes().unwrap();
        let mut transaction = Transaction::begin(&writer, "test").unwrap();
        let armed = on_trial(&mut transaction, &journal, says);
        assert!(matches!(armed, Err(TrialError::Silent { .. })), "{says}");
        assert_eq!(transaction.session.guardian, None);
    }
}

#[test]
fn a_refused_move_takes_nothing_else_back_and_is_not_tried_again() {
    let (_folder, journal) = journal();
    let mut model = machine(4);
    model.managed = Some(irq(1));
    model.values.remove(&irq(2));
    let before = model.values.clone();
    {
        let mut moves = Moves::new(journal.clone(), &mut model, "test".into());
        assert_eq!(moves.make(change(irq(0), "1")).unwrap(), None);
        for refused in [irq(1), irq(2)] {
            assert!(moves.make(change(refused.clone(), "1")).unwrap().is_some());
            assert!(moves.is_refused(&refused) && !moves.is_refused(&irq(0)));
        }
        assert_eq!(moves.make(change(irq(0), "2")).unwrap(), None);
        let undone = moves.roll_back().unwrap();
        assert!(undone.left.is_empty(), "{:?}", undone.left);
        let restored = undone.steps.iter().filter(|s| s.state == StepState::Restored);
        assert_eq!(restored.map(|s| s.change.new.as_str()).collect::<Vec<_>>(), ["2", "1"], "last first");
        assert_eq!(moves.roll_back().unwrap().steps, []);
    }
    assert_eq!(model.values, before);
}

#[test]
fn moves_go_back_when_the_watch_dies_and_stay_when_they_are_kept() {
    for (keep, expected) in [(false, "ff"), (true, "1")] {
        let (_folder, journal) = journal();
        let mut model = machine(1);
        let mut moves = Moves::new(journal.clone(), &mut model, "test".into());
        moves.make(change(irq(0), "1")).unwrap();
        if keep {
            assert_eq!(moves.keep(), 1);
        }
        drop(moves);
        assert_eq!(model.values[&irq(0)], expected);
    }
}

#[test]
fn a_move_that_somebody_else_overwrote_is_named_and_the_others_go_back() {
    let (_folder, journal) = journal();
    let model = Shared::default();
    model.0.borrow_mut().values = machine(2).values;
    let mut moves = Moves::new(journal.clone(), model.clone(), "test".into());
    moves.make(change(irq(0), "1")).unwrap();
    moves.make(change(irq(1), "1")).unwrap();
    model.0.borrow_mut().values.insert(irq(1), "80".into());
    let undone = moves.roll_back().unwrap();
    assert_eq!(undone.left.len(), 1, "{:?}", undone.left);
    assert!(matches!(undone.steps[0].state, StepState::Foreign { .. }));
    let values: Vec<String> = model.0.borrow().values.values().cloned().collect();
    assert_eq!(values, ["ff", "80"]);
}

/// A model that somebody else can write to, too.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Model>>);

impl Store for Shared {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        self.0.borrow_mut().read(knob)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        self.0.borrow_mut().write(knob, value)
    }
}
