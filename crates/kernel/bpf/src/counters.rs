//! Counters that a kernel program keeps for each CPU, added up.

/// A struct whose fields are sums over CPUs.
pub(crate) trait PerCpu: Default {
    /// Adds what one CPU has, as the program wrote it.
    fn add(&mut self, raw: &[u8]);
}

/// Defines a struct of counters, each the sum of the field of that name in the program's own struct.
macro_rules! per_cpu {
    ($(#[$meta:meta])* pub struct $struct:ident of $raw:ident { $($(#[$doc:meta])* $field:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $struct {
            $($(#[$doc])* pub $field: u64,)+
        }

        impl $crate::counters::PerCpu for $struct {
            fn add(&mut self, raw: &[u8]) {
                $(self.$field += $crate::bytes::word64(raw, std::mem::offset_of!($raw, $field));)+
            }
        }
    };
}
pub(crate) use per_cpu;
