//! The classes of failure, which the program turns into its exit codes.

/// The class of a failure, and so what the user can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The arguments or the input are wrong (exit code 2).
    Usage,
    /// The machine, the kernel or a privilege lacks something that the message names (exit code 3).
    Lacking,
    /// A fault of this program or one it cannot explain (exit code 4).
    Internal,
}

impl ErrorClass {
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Lacking => 3,
            Self::Internal => 4,
        }
    }
}

/// An error that knows its class. Every error enum of a library crate implements it.
pub trait Classified: std::error::Error {
    fn class(&self) -> ErrorClass;
}

/// Implements [`Classified`]: the class of the variants that are not named, the variants of other classes, and those that hold an error with a class.
#[macro_export]
macro_rules! classified {
    ($error:ident $(: $rest:ident)? $(, $class:ident: $($variant:ident)+)* $(; within: $($inner:ident)+)?) => {
        impl $crate::Classified for $error {
            fn class(&self) -> $crate::ErrorClass {
                match self {
                    $($(Self::$variant { .. } => $crate::ErrorClass::$class,)+)*
                    $($(Self::$inner(error) => $crate::Classified::class(error),)+)?
                    $(_ => $crate::ErrorClass::$rest,)?
                }
            }
        }
    };
}
