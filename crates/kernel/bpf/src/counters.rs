//! Counters that a kernel program keeps for each CPU, added up.

use crate::bytes::word64;

/// A struct whose fields are sums over CPUs.
pub(crate) trait PerCpu: Default {
    /// Adds one CPU's counters, which `word` reads by their offsets in the program's struct.
    fn add_words(&mut self, word: impl Fn(usize) -> u64);

    /// Adds one CPU's counters, as the program wrote them.
    fn add(&mut self, raw: &[u8]) {
        self.add_words(|at| word64(raw, at));
    }
}

/// Sums each counter over CPUs: the field of its name in the program's own struct, or the word `at` an offset. The struct is defined here, or by a
/// table of `model` that follows the name of the program's.
macro_rules! per_cpu {
    ($(#[$meta:meta])* pub struct $struct:ident of $raw:ident { $($(#[$doc:meta])* $field:ident $(at $at:expr)?,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $struct {
            $($(#[$doc])* pub $field: u64,)+
        }

        impl $struct {
            /// Counts since `earlier`.
            #[must_use]
            pub fn since(self, earlier: Self) -> Self {
                Self { $($field: self.$field.saturating_sub(earlier.$field),)+ }
            }
        }

        $crate::counters::per_cpu! { impl $struct of $raw { $($field $(at $at)?,)+ } }
    };
    ($raw:ident $(#[$meta:meta])* pub struct $struct:ident {
        $($field:ident: $unit:ident $metric:literal $help:literal $({ $($more:tt)* })?;)+
    }) => {
        $crate::counters::per_cpu! { impl $struct of $raw { $($field,)+ } }
    };
    (impl $struct:ident of $raw:ident { $($field:ident $(at $at:expr)?,)+ }) => {
        impl $crate::counters::PerCpu for $struct {
            fn add_words(&mut self, word: impl Fn(usize) -> u64) {
                $(self.$field += word($crate::counters::per_cpu!(@ $raw $field $($at)?));)+
            }
        }
    };
    (@ $raw:ident $field:ident) => { std::mem::offset_of!($raw, $field) };
    (@ $raw:ident $field:ident $at:expr) => { $at };
}
pub(crate) use per_cpu;
