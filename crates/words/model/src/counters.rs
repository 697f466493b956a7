//! Tables of counters: what each counts, its unit, its metric and its row of text in one place, from which sums, JSON, metrics and text come.

/// The unit of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Frames, or the packets in them.
    Frames,
    Bytes,
    Sources,
}

/// The row of a counter in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    Hidden,
    Always(&'static str),
    /// A row in text if the count is above 0.
    IfAny(&'static str),
}

/// A counter of the struct `T`.
#[derive(Debug, Clone, Copy)]
pub struct Counter<T> {
    /// The counter's field in Rust, C and JSON.
    pub name: &'static str,
    pub unit: Unit,
    /// The name of its metric. Counters that share one differ in their label.
    pub metric: &'static str,
    /// A sentence about the count: the help of the metric.
    pub help: &'static str,
    /// Name and value of the metric's label.
    pub label: Option<(&'static str, &'static str)>,
    /// The counter's row in text.
    pub row: Row,
    pub get: fn(&T) -> u64,
}

impl<T> Counter<T> {
    /// A counter without a label and a row.
    #[must_use]
    pub const fn new(
        name: &'static str,
        unit: Unit,
        metric: &'static str,
        help: &'static str,
        get: fn(&T) -> u64,
    ) -> Self {
        Self { name, unit, metric, help, label: None, row: Row::Hidden, get }
    }
}

/// Defines a struct of counters with its table, `COUNTERS`, and its sum (`+=`).
///
/// A counter is `name: Unit "metric" "help"`, and in braces what differs from [`Counter::new`].
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $struct:ident {
            $($field:ident: $unit:ident $metric:literal $help:literal $({ $($key:ident: $value:expr),+ })?;)+
        }
    ) => {
        $(#[$meta])*
        pub struct $struct {
            $(#[doc = $help] pub $field: u64,)+
        }

        impl $struct {
            pub const COUNTERS: &'static [$crate::counters::Counter<Self>] = &[$($crate::counters::Counter {
                $($($key: $value,)+)?
                ..$crate::counters::Counter::new(
                    stringify!($field),
                    $crate::counters::Unit::$unit,
                    $metric,
                    $help,
                    |of: &Self| of.$field,
                )
            }),+];
        }

        impl std::ops::AddAssign for $struct {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}
