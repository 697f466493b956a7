//! A model of the machine for the journal: knobs are texts.

use std::collections::BTreeMap;

use host::{
    journal::Journal,
    knob::{Change, Knob, KnobError, Store},
};

/// A machine of IRQs whose affinities are texts. It can refuse one IRQ, and die (by error) after so many writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) values: BTreeMap<Knob, String>,
    pub(crate) refuses: Option<Knob>,
    pub(crate) managed: Option<Knob>,
}

impl Store for Model {
    fn read(&mut self, knob: &Knob) -> Result<String, KnobError> {
        let gone = || KnobError::Gone { knob: knob.clone(), object: "model".into() };
        self.values.get(knob).cloned().ok_or_else(gone)
    }

    fn write(&mut self, knob: &Knob, value: &str) -> Result<(), KnobError> {
        if self.refuses.as_ref() == Some(knob) {
            let (knob, value, object) = (knob.clone(), value.to_owned(), "model".to_owned());
            return Err(KnobError::NotAllowed {
                knob,
                value,
                object,
                source: std::io::ErrorKind::ReadOnlyFilesystem.into(),
            });
        }
        if self.managed.as_ref() == Some(knob) {
            return Err(KnobError::Managed { knob: knob.clone(), value: value.to_owned() });
        }
        if matches!(knob, Knob::Ring { .. }) {
            // A driver that makes its interrupts anew.
            self.values
                .iter_mut()
                .filter(|(k, _)| matches!(k, Knob::IrqAffinity { .. }))
                .for_each(|(_, v)| *v = "f".into());
        }
        self.values.insert(knob.clone(), value.to_owned());
        Ok(())
    }
}

pub(crate) fn irq(irq: u32) -> Knob {
    Knob::IrqAffinity { irq }
}

pub(crate) fn change(knob: Knob, new: &str) -> Change {
    Change { knob, old: String::new(), new: new.to_owned(), reason: "a test".into() }
}

pub(crate) fn machine(irqs: u32) -> Model {
    Model { values: (0..irqs).map(|n| (irq(n), "ff".to_owned())).collect(), ..Model::default() }
}

/// Changes of the first interrupts to these values.
pub(crate) fn changes(new: &[&str]) -> Vec<Change> {
    (0..).zip(new).map(|(n, new)| change(irq(n), new)).collect()
}

pub(crate) fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::at(Some(folder.path()));
    (folder, journal)
}
