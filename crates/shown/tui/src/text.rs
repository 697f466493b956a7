//! Words in columns: what several views do when there is little room.

use model::units;

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

/// `text` in lines of `width` columns; a longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in units::pieces(text) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Each sentence in lines of `width` columns: whole where all of them fit `room` lines, else `least` lines of each. `…` marks what was cut.
pub(crate) fn sentences(all: &[String], width: usize, room: usize, least: usize) -> Vec<String> {
    let mut each: Vec<Vec<String>> = all.iter().map(|text| wrapped(text, width)).collect();
    if each.iter().map(Vec::len).sum::<usize>() > room {
        for lines in each.iter_mut().filter(|lines| lines.len() > least) {
            lines.truncate(least);
            if let Some(last) = lines.last_mut() {
                *last = last.chars().take(width.saturating_sub(1)).chain(['…']).collect();
            }
        }
    }
    each.into_iter().flatten().map(|line| middle_out(&line, width)).collect()
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

    #[test]
    fn sentences_are_whole_or_marked() {
        let all = ["one two three four".to_owned(), "five".to_owned()];
        assert_eq!(sentences(&all, 9, 4, 1), ["one two", "three", "four", "five"]);
        assert_eq!(sentences(&all, 9, 3, 1), ["one two…", "five"]);
        assert_eq!(sentences(&all, 7, 3, 1), ["one tw…", "five"]);
    }
}
