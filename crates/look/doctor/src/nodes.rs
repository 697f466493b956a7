//! Asks many machines at once, over the system's OpenSSH client.

mod command;
mod run;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use model::{
    doctor::{Report, Role},
    doctor_nodes::Node,
    schema::Document,
};

/// The schema of an answer.
pub const SCHEMA: &str = "evenkeel.doctor/1";

/// Options of asking machines.
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// Options of ssh, as behind its `-o`.
    pub ssh_options: Vec<String>,
    /// The longest time for one machine.
    pub timeout: Duration,
    /// Machines asked at the same time.
    pub parallel: usize,
    /// The program there, by name or path.
    pub program: String,
    /// A program to copy there, and to take away again, where there is none.
    pub copy: Option<PathBuf>,
    /// The role to examine them for; guessed by each when none.
    pub role: Option<Role>,
    /// Only these checks; all when empty.
    pub only: Vec<String>,
}

/// Errors of a machine, or of the list of them.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    #[error(
        "there is no machine to ask: name them with --nodes a,b,c, or one in each line of a file with --nodes-file"
    )]
    Nobody,
    #[error("`{0}` is no machine's name (host, user@host or ssh://user@host:port)")]
    BadName(String),
    #[error("cannot read the list of machines {}: {source}", path.display())]
    List { path: PathBuf, source: std::io::Error },
    #[error("cannot read {} to copy it: {source}", path.display())]
    Copy { path: PathBuf, source: std::io::Error },
    #[error("cannot run ssh: {0} (the Debian package is openssh-client)")]
    Start(std::io::Error),
    #[error("no answer within {} s{message}; --timeout gives it more", .timeout.as_secs())]
    TimedOut { timeout: Duration, message: String },
    #[error("ssh failed: {0}")]
    Refused(String),
    #[error(
        "there is no `{0}` there: install it, name its path with --program, or give --copy to have it copied for the moment"
    )]
    Missing(String),
    #[error("the copied program could not be run: {0}")]
    NotCopied(String),
    #[error("evenkeel failed there with exit code {code}: {message}")]
    Failed { code: i32, message: String },
    #[error(
        "it answers `{0}`, and this program reads `{SCHEMA}`: install the same version there, or give --copy with another --program"
    )]
    WrongSchema(String),
    #[error("its answer is not a report: {0}")]
    Garbled(String),
}

model::classified!(NodesError: Lacking, Usage: Nobody BadName List Copy);

/// The machines of a list: one or several in each line, `#` begins a comment.
///
/// # Errors
/// When a name is none, or there is no name at all.
pub fn names(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<String>, NodesError> {
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for text in texts {
        for line in text.as_ref().lines() {
            let line = line.split('#').next().unwrap_or_default();
            for name in line.split(|c: char| c == ',' || c.is_whitespace()).filter(|name| !name.is_empty()) {
                if !host::ssh::is_name(name) {
                    return Err(NodesError::BadName(name.to_owned()));
                }
                if seen.insert(name.to_owned()) {
                    names.push(name.to_owned());
                }
            }
        }
    }
    if names.is_empty() { Err(NodesError::Nobody) } else { Ok(names) }
}

/// Asks every machine, several at the same time, and calls `notify` as the answers come. The answers are in the order of the
/// names; a machine that fails has its reason instead.
pub fn ask(names: &[String], options: &NodesOptions, notify: impl Fn(&Node) + Sync) -> Result<Vec<Node>, NodesError> {
    let copy = options.copy.as_deref().map(command::Copy::read).transpose()?;
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<Node>>> = Mutex::new(vec![None; names.len()]);
    thread::scope(|scope| {
        for _ in 0..options.parallel.clamp(1, names.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, name)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, names.get(n)?)))
                {
                    let node = match ask_one(name, options, copy.as_ref()) {
                        Ok(report) => Node { node: name.clone(), report: Some(report), error: None },
                        Err(why) => Node { node: name.clone(), report: None, error: Some(why.to_string()) },
                    };
                    notify(&node);
                    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[at] = Some(node);
                }
            });
        }
    });
    Ok(answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().flatten().collect())
}

fn ask_one(name: &str, options: &NodesOptions, copy: Option<&command::Copy>) -> Result<Report, NodesError> {
    let there = command::installed(options);
    match (run::ssh(name, options, &there, None).and_then(|answer| judge(&answer)), copy) {
        (Err(NodesError::Missing(_)), Some(copy)) => {
            run::ssh(name, options, &copy.command(options), Some(copy.bytes())).and_then(|answer| judge(&answer))
        }
        (Err(NodesError::Missing(_)), None) => Err(NodesError::Missing(options.program.clone())),
        (answer, _) => answer,
    }
}

/// The report in an answer of ssh.
fn judge(answer: &run::Answer) -> Result<Report, NodesError> {
    let message = host::ssh::last_words(&answer.stderr);
    match answer.code {
        0 | 1 if answer.stdout.trim_start().starts_with('{') => parse(&answer.stdout),
        255 => Err(NodesError::Refused(message)),
        126 | 127 if answer.stdout.trim().is_empty() => Err(NodesError::Missing(String::new())),
        code => match command::copy_failure(code) {
            Some(why) => Err(NodesError::NotCopied(why.to_owned())),
            None => Err(NodesError::Failed { code, message }),
        },
    }
}

/// Reads a report; its schema first.
pub fn parse(text: &str) -> Result<Report, NodesError> {
    let garbled = |e: serde_json::Error| NodesError::Garbled(e.to_string());
    let document: Document<serde_json::Value> = host::ssh::json(text.as_bytes()).map_err(garbled)?;
    if document.schema != SCHEMA {
        return Err(NodesError::WrongSchema(document.schema));
    }
    serde_json::from_value(document.body).map_err(garbled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_machines() {
        let names_of = |text: &str| names([text]);
        assert_eq!(
            names_of("a,b # c\n\n root@10.0.0.1\nssh://x@h:2222 a\n").unwrap(),
            ["a", "b", "root@10.0.0.1", "ssh://x@h:2222"]
        );
        assert!(matches!(names_of("# nobody\n"), Err(NodesError::Nobody)));
        assert!(matches!(names_of("-oProxyCommand=x"), Err(NodesError::BadName(_))));
        assert!(matches!(names_of("a;reboot"), Err(NodesError::BadName(_))));
    }

    #[test]
    fn answers_are_judged_by_code_and_schema() {
        let answer =
            |code, stdout: &str, stderr: &str| run::Answer { code, stdout: stdout.into(), stderr: stderr.into() };
        let refused =
            judge(&answer(255, "", "Warning\nssh: connect to host x port 22: Connection refused\n")).unwrap_err();
        assert!(refused.to_string().contains("Connection refused"), "{refused}");
        assert!(matches!(judge(&answer(127, "", "sh: 1: evenkeel: not found")), Err(NodesError::Missing(_))));
        assert!(
            matches!(judge(&answer(0, r#"{"schema":"evenkeel.doctor/9"}"#, "")), Err(NodesError::WrongSchema(s)) if s.ends_with("/9"))
        );
        assert!(matches!(judge(&answer(0, "{", "")), Err(NodesError::Garbled(_))));
        assert!(matches!(judge(&answer(3, "", "evenkeel: no /proc")), Err(NodesError::Failed { code: 3, .. })));
        assert!(matches!(judge(&answer(command::CHECKSUM, "", "")), Err(NodesError::NotCopied(_))));
        let forged = judge(&answer(0, r#"{"schema":"x\nn2: all fine"}"#, "")).unwrap_err().to_string();
        assert!(forged.contains("`x\\nn2: all fine`"), "{forged}");
        let good = r#"{"schema":"evenkeel.doctor/1","hostname":"h","kernel":"k\nn2","role":"server","role_guessed":true,"findings":[]}"#;
        assert_eq!(judge(&answer(0, good, "")).unwrap().kernel, "k\\nn2");
    }
}
