//! Conditions that a reader needs to judge figures, as pairs of name and text.

use model::{
    run::{Arrangement, Machine},
    sweep::Published,
    units,
};

use crate::{page::PUBLISHED, table::Look};

pub(crate) type Conditions = Vec<(&'static str, String)>;

pub(crate) fn machine(m: &Machine) -> (&'static str, String) {
    let guest = m.virtualised.as_ref().map_or_else(|| "not virtualised".to_owned(), |by| format!("a guest of {by}"));
    let memory = units::bytes(m.memory_bytes);
    let text = format!("{}, {} CPUs, {memory}, {}, Linux {}, {guest}", m.cpu_model, m.cpus, m.hostname, m.kernel);
    ("Machine", text)
}

pub(crate) fn cores(arrangement: &Arrangement) -> (&'static str, String) {
    ("Cores", format!("{}: {}", arrangement.sharing.word(), arrangement.words()))
}

pub(crate) fn paragraphs(conditions: &Conditions, look: Look) -> String {
    conditions.iter().map(|(what, text)| look.paragraph(&format!("{what}: {text}"))).collect()
}

/// The figures of others, an item each.
pub(crate) fn published(sources: &[Published], look: Look) -> String {
    let items = sources.iter().map(|s| format!("{}: {}, {} ({})", s.what, s.standard, s.optimised, s.citation));
    let items: String = items.map(|item| look.item(&item)).collect();
    look.paragraph(&format!("{PUBLISHED}, never measured by evenkeel:")) + &items
}

/// The warning of a busy machine at the top of a text; nothing without one.
pub(crate) fn disturbed(why: Option<&str>, look: Look) -> String {
    why.map_or_else(String::new, |why| look.paragraph(&format!("The machine was busy. {why}.\n")))
}
