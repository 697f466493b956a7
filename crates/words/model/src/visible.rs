//! Text that a terminal shows instead of obeying it.

use std::borrow::Cow;

/// Colours and weights that leave text readable on any ground (ECMA-48, select graphic rendition): reset, bold, faint, italic, underlined and
/// their ends, red to white, their bright forms, the default. No black, no ground, nothing that hides.
const HARMLESS: [u8; 23] = [0, 1, 2, 3, 4, 22, 23, 24, 31, 32, 33, 34, 35, 36, 37, 39, 91, 92, 93, 94, 95, 96, 97];

/// `text` with every character that a terminal would act on written as an escape: `\x1b` below 0x20, `\u0085` or `\u202e` above, so that
/// JSON stays JSON and means the same. Line ends and tabs stay; so do our own colours.
pub fn visible(text: &str) -> Cow<'_, str> {
    // Bytes of what is escaped: controls, and the first bytes of U+0080-009F, U+061C, U+200B-U+2069, U+FEFF.
    let suspicious =
        |byte: u8| (byte < 0x20 && byte != b'\n' && byte != b'\t') || matches!(byte, 0x7f | 0xc2 | 0xd8 | 0xe2 | 0xef);
    if !text.bytes().any(suspicious) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match colour(rest) {
            Some(len) => {
                out.push_str(&rest[..len]);
                len
            }
            None => {
                push(&mut out, c);
                c.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    Cow::Owned(out)
}

/// As [`visible`], for text that has no colours of ours: those in it are somebody else's, and are escaped too.
pub fn visible_plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_acted_on) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push(&mut out, c));
    Cow::Owned(out)
}

/// As [`visible`], for a piece of one line: line ends, tabs and colours are escaped too.
pub fn visible_word(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c.is_ascii_control() || is_acted_on(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ => push(&mut out, c),
        }
    }
    Cow::Owned(out)
}

fn push(out: &mut String, c: char) {
    match c {
        c if !is_acted_on(c) => out.push(c),
        c if c < ' ' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        c => out.push_str(&format!("\\u{:04x}", u32::from(c))),
    }
}

/// True for controls but line ends and tabs, and for what turns or hides text: marks of direction, zero-width characters.
fn is_acted_on(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => true,
        c => c.is_control(),
    }
}

/// Length of a harmless colour at the beginning of `text`.
fn colour(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\x1b[")?;
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    let known = |code: &str| code.is_empty() || code.parse().is_ok_and(|code: u8| HARMLESS.contains(&code));
    (body.as_bytes()[end] == b'm' && body[..end].split(';').all(known)).then_some("\x1b[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_seen() {
        for (text, shown) in [
            ("plain é 漢 – “x”\n\tnext", "plain é 漢 – “x”\n\tnext"),
            ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
            ("\x1b[2Jgone", "\\x1b[2Jgone"),
            ("a\rb\x08c\x00", "a\\x0db\\x08c\\x00"),
            ("\u{9b}2J\u{7f}\u{85}", "\\u009b2J\\u007f\\u0085"),
            ("a\u{202e}b\u{2066}c\u{200b}\u{feff}\u{61c}", "a\\u202eb\\u2066c\\u200b\\ufeff\\u061c"),
            ("\x1b[1;31mred\x1b[0m\x1b[m", "\x1b[1;31mred\x1b[0m\x1b[m"),
            ("\x1b[8mhidden\x1b[30;40m", "\\x1b[8mhidden\\x1b[30;40m"),
            ("\x1b[31", "\\x1b[31"),
            ("\x1b", "\\x1b"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible(&visible(text)), shown, "a second time changes nothing");
        }
        assert_eq!(visible_word("a\nb\tc\x1b[31md"), "a\\nb\\tc\\x1b[31md");
        assert!(matches!(visible_word("plain"), Cow::Borrowed(_)));
        assert_eq!(visible_plain("a\nb\tc\x1b[31md\u{202e}"), "a\nb\tc\\x1b[31md\\u202e");
        assert!(matches!(visible_plain("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let text = serde_json::to_string(&["\x1b[2J\u{9b}\u{202e}\u{7f}é\n"]).unwrap();
        let shown = visible(&text);
        assert!(!shown.contains(['\u{9b}', '\u{202e}', '\u{7f}', '\x1b']), "{shown}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), ["\x1b[2J\u{9b}\u{202e}\u{7f}é\n"]);
    }
}
