//! The text of `keep status`.

use keep::status::{Event, FileState, FileStatus, Status};
use report::Look;

/// Number of events in a status.
const EVENTS_MAX: usize = 5;

/// An event in one line: `spread-eth0: 3 settings written, since eth0 appeared (12 ms)`.
pub(super) fn line(event: &Event) -> String {
    let took = event.took_ms.map_or_else(String::new, |ms| format!(" ({ms:.0} ms)"));
    match event.file.is_empty() {
        true => format!("{}{took}", event.message),
        false => format!("{}: {}{took}", event.file, event.message),
    }
}

fn aged(event: &Event) -> String {
    format!("{:.0} s ago: {}", event.age_s, line(event))
}

pub(super) fn text(status: &Status) -> String {
    if status.files.is_empty() {
        let events: String = status.events.iter().map(|event| aged(event) + "\n").collect();
        return format!("{events}Nothing is kept: {} has no file. Begin: evenkeel keep add spread\n", status.folder);
    }
    let look = Look::of_stdout();
    let row = |file: &FileStatus| {
        vec![file.name.clone(), file.intents.join("; "), file.state.name().to_owned(), detail(file)]
    };
    let rows: Vec<Vec<String>> = status.files.iter().map(row).collect();
    let mut text = look.table_within(&["FILE", "KEEPS", "STATE", "DETAIL"], rows, &["KEEPS"]);
    let mut add = |line: &str| text.push_str(&format!("\n{line}"));
    for file in &status.files {
        let said = file.problem.iter().chain(&file.pending).chain(&file.differing).chain(&file.warnings);
        said.for_each(|what| add(&format!("{}: {what}", file.name)));
    }
    for it in &status.contested {
        let who = it.likely.as_ref().map_or_else(String::new, |who| format!(" ({who})"));
        add(&format!("{} has another owner{who}: left alone for {} s more", it.setting, it.rest_s));
    }
    for event in status.events.iter().rev().take(EVENTS_MAX).rev() {
        add(&aged(event));
    }
    add(&match (status.pid, status.reading_s) {
        (Some(pid), Some(reading)) => format!("Process {pid} keeps this; a reading takes {:.1} ms.", reading * 1e3),
        _ => "No process keeps this. Start one: evenkeel keep run, or the unit that evenkeel keep unit prints."
            .to_owned(),
    });
    text + "\n"
}

fn detail(file: &FileStatus) -> String {
    let settings = match file.settings {
        1 => "1 setting".to_owned(),
        many => format!("{many} settings"),
    };
    match file.state {
        FileState::Kept | FileState::Pending => settings,
        FileState::Differs => format!("{} of {} differ", file.differing.len(), file.settings + file.differing.len()),
        FileState::Failed | FileState::Refused => "see below".to_owned(),
    }
}
