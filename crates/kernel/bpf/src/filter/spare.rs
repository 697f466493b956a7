//! A program that is loaded before anybody knows its rules.
//!
//! The verifier takes most of the time that new rules need. Where tables are and how large is a constant of a program; what is in
//! them is not. So a program can be loaded beforehand with room for more, and filled when the rules are known.

use std::sync::Arc;

use rules::tables::{
    AddressTable, FewPrefix, RuleTables,
    prefixes::{V4Prefixes, V6Prefixes},
};

use super::{
    layout::{Layout, Sections},
    load::{Mapped, Shield, ShieldConfig},
    room,
    shared::ShieldShared,
};
use crate::link::XdpError;

const PREFIXES: [&str; 2] = [".data.shield_src", ".data.shield_dst"];

/// The two halves of an address table.
type Halves = (Option<Arc<V4Prefixes>>, Option<Arc<V6Prefixes>>);

/// A loaded program that waits for its tables.
#[derive(Debug)]
pub struct SpareProgram {
    shield: Shield,
    shape: Layout,
    sections: Mapped,
    held: [Halves; 2],
    protected: Option<AddressTable>,
    protected_few: Vec<FewPrefix>,
    default_drop: bool,
    malformed_drop: bool,
}

impl SpareProgram {
    /// Loads a program with room for tables like these and somewhat more: the fields that they use, as many words of rules, as many
    /// classes and prefixes and then some. Their prefixes are already put where they belong.
    pub fn load(tables: &RuleTables, config: &ShieldConfig, shared: &ShieldShared) -> Result<Self, XdpError> {
        let mut shape = Layout::roomy(tables)?;
        let (shield, sections) = Shield::load_as(&shape, tables, config, shared, &[])?;
        // Zeros, which are in the kernel now.
        shape.sections.clear();
        let mut spare = Self {
            shield,
            shape,
            sections,
            held: [(None, None), (None, None)],
            protected: tables.protected.clone(),
            protected_few: tables.protected_few.clone(),
            default_drop: tables.default_drop,
            malformed_drop: tables.malformed_drop,
        };
        spare.fill_prefixes([halves(&tables.source), halves(&tables.destination)]);
        Ok(spare)
    }

    /// The bytes of each section with these tables, and their prefixes; none: there is no room for them.
    fn fit(&self, tables: &RuleTables) -> Result<Option<(Sections, [Halves; 2])>, XdpError> {
        let same = (tables.default_drop, tables.malformed_drop) == (self.default_drop, self.malformed_drop)
            && tables.protected == self.protected
            && tables.protected_few == self.protected_few;
        let prefixes = [halves(&tables.source), halves(&tables.destination)];
        let room = prefixes.iter().enumerate().all(|(field, (v4, v6))| {
            let unused = v4.is_none() && v6.is_none();
            unused || room::fits(&self.shape.prefixes[field], v4.as_deref(), v6.as_deref())
        });
        if !(same && room) {
            return Ok(None);
        }
        Ok(self.shape.refill(tables)?.map(|sections| (sections, prefixes)))
    }

    /// True if the tables fit into it; if not, they have to be loaded as a program of their own.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for tables that contradict themselves.
    pub fn fits(&self, tables: &RuleTables) -> Result<bool, XdpError> {
        Ok(self.fit(tables)?.is_some())
    }

    /// Fills in the tables; none: they do not fit. Prefixes that are there already (the same `Arc`) cost nothing.
    pub fn fill(mut self, tables: &RuleTables) -> Result<Option<Shield>, XdpError> {
        let Some((sections, prefixes)) = self.fit(tables)? else { return Ok(None) };
        for (name, bytes) in sections {
            if let Some(section) = section(&mut self.sections, name) {
                section[..bytes.len()].copy_from_slice(&bytes);
            }
        }
        self.fill_prefixes(prefixes);
        Ok(Some(self.shield))
    }

    fn fill_prefixes(&mut self, prefixes: [Halves; 2]) {
        for (((v4, v6), held), (name, layout)) in
            prefixes.into_iter().zip(&mut self.held).zip(PREFIXES.iter().zip(&self.shape.prefixes))
        {
            let Some(section) = section(&mut self.sections, name) else { continue };
            if !same(&held.0, &v4) {
                room::fill_v4(layout, v4.as_deref(), section);
            }
            if !same(&held.1, &v6) {
                room::fill_v6(layout, v6.as_deref(), section);
            }
            *held = (v4, v6);
        }
    }
}

/// Nothing at all is what a new section holds.
fn same<T>(held: &Option<Arc<T>>, given: &Option<Arc<T>>) -> bool {
    match (held, given) {
        (Some(held), Some(given)) => Arc::ptr_eq(held, given),
        (held, given) => held.is_none() && given.is_none(),
    }
}

fn halves(table: &Option<AddressTable>) -> Halves {
    table.as_ref().map_or((None, None), |table| (table.v4.clone(), table.v6.clone()))
}

fn section<'a>(sections: &'a mut Mapped, name: &str) -> Option<&'a mut [u8]> {
    let (_, memory) = sections.iter_mut().find(|(of, _)| *of == name)?;
    // SAFETY: the program is attached nowhere while its spare exists, so that nobody else reads or writes; the spare has the only
    // mapping and lends one slice of it at a time.
    Some(unsafe { memory.slice_mut(0, memory.len()) })
}
