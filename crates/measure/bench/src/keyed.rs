//! Enums whose values have a word on the command line and in files.

/// Gives an enum `ALL` of its values, the word of each (`key`), and a parser that says which words there are.
macro_rules! keyed {
    ($type:ident: $($value:ident $word:literal),+; $unknown:expr) => {
        impl $type {
            /// All, in the order of help.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// The word on the command line and in files.
            pub fn key(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::BenchError;

            fn from_str(text: &str) -> Result<Self, $crate::BenchError> {
                let unknown: fn(&str, &[&str]) -> String = $unknown;
                let found = Self::ALL.into_iter().find(|one| one.key() == text);
                found.ok_or_else(|| $crate::BenchError::Setting(unknown(text, &Self::ALL.map(Self::key))))
            }
        }
    };
}

pub(crate) use keyed;
