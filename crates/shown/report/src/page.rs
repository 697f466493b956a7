//! Parts of all pages: their error, a heading, and sentences with commands in them.

use std::fmt::Display;

use model::{Classified, ErrorClass};

use crate::chart::svg::escaped;

/// The heading under which the figures of others are shown, in text and on the page.
pub const PUBLISHED: &str = "Published by others, on other hardware";

/// What can go wrong when a page is built.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("cannot build the page: {0}; this is a fault of evenkeel")]
    Template(#[from] askama::Error),
}

impl Classified for PageError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Internal
    }
}

/// A sentence of a terminal as HTML: what stands between backticks is code.
pub(crate) fn marked(sentence: impl Display) -> String {
    let sentence = escaped(&sentence.to_string());
    let parts: Vec<&str> = sentence.split('`').collect();
    let mut html = String::with_capacity(sentence.len());
    for (i, part) in parts.iter().enumerate() {
        html += match (i % 2, i + 1 < parts.len()) {
            (0, _) => "",
            (_, true) => "<code>",
            (_, false) => "`",
        };
        html += part;
        html += if i % 2 == 1 && i + 1 < parts.len() { "</code>" } else { "" };
    }
    html
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn commands_are_code_and_no_sentence_is_markup() {
        let run = "run `evenkeel link run -- <b>`, then `top`.";
        assert_eq!(marked(run), "run <code>evenkeel link run -- &lt;b&gt;</code>, then <code>top</code>.");
        assert_eq!(marked("one ` is a mark; <b>"), "one ` is a mark; &lt;b&gt;");
        assert_eq!(marked("`a` and ` alone"), "<code>a</code> and ` alone");
    }
}
