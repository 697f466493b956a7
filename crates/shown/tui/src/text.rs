//! Words in columns: what several views do when there is little room.

/// `text` in at most `room` columns. What is too long loses its middle: names of one origin differ at their ends.
pub(crate) fn middle_out(text: &str, room: usize) -> String {
    let len = text.chars().count();
    if len <= room {
        return text.to_owned();
    }
    let Some(kept) = room.checked_sub(1) else { return String::new() };
    let (front, back) = (kept.div_ceil(2), kept / 2);
    let mut shown: String = text.chars().take(front).collect();
    shown.push('…');
    shown.extend(text.chars().skip(len - back));
    shown
}

/// The words in lines of `width` columns, none of them broken.
pub(crate) fn lines_of(words: &[&str], width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + word.chars().count() <= usize::from(width) => {
                *line += &format!("  {word}");
            }
            _ => lines.push(format!(" {word}")),
        }
    }
    lines
}

/// The first of the texts that fits `width` columns, or the last one.
pub(crate) fn that_fits(texts: &[String], width: u16) -> String {
    let fits = texts.iter().find(|text| text.chars().count() <= usize::from(width));
    fits.or(texts.last()).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_keeps_both_ends() {
        assert_eq!(middle_out("pings", 5), "pings");
        assert_eq!(middle_out("attack 198.18.0.2/32 few-sources 2", 20), "attack 198…sources 2");
        assert_eq!((middle_out("pings", 1).as_str(), middle_out("pings", 0).as_str()), ("…", ""));
    }
}
