//! Prefixes by the million: files of them, lists of them overlaid into classes, and the tables that the kernel looks addresses up in.

mod laid;
mod overlay;
mod read;
mod v4;
mod v6;

pub(crate) use laid::Laid;
pub use overlay::{Overlay, overlay};
pub(crate) use read::unmapped;
pub use read::{BadLine, OnBadLine, SetError, parse_prefix, parse_set, read_set};
pub use v4::v4;
pub use v6::v6;

/// The classes of equal membership that one table can tell apart, the one of addresses in no prefix included.
pub const CLASSES_MAX: usize = crate::tables::prefixes::CLASS_MAX as usize + 1;

/// A reason why lists of prefixes cannot be made into tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableError {
    /// More classes of equal membership than [`CLASSES_MAX`].
    Classes { classes: usize },
    /// No table of a reasonable size holds them.
    Crowded {
        /// IPv6 prefixes longer than 32 bits.
        prefixes: usize,
    },
}

#[cfg(test)]
mod tests;
