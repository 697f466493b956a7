//! The envelope of everything that is printed as JSON.

use serde::{Deserialize, Serialize};

/// A JSON document of this program: `{"schema": "evenkeel.<verb>/<version>", …}` with the fields of `body` beside it.
///
/// A reader checks `schema` first. Fields may be added within a version; a field that changes its meaning or goes away
/// makes a new version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document<T> {
    /// The name and version of the schema, such as `evenkeel.top/1`.
    pub schema: String,
    #[serde(flatten)]
    pub body: T,
}

impl<T> Document<T> {
    /// Wraps `body` as version `version` of the schema of `verb`.
    pub fn new(verb: &str, version: u32, body: T) -> Self {
        Self { schema: format!("evenkeel.{verb}/{version}"), body }
    }
}
