//! `evenkeel doctor --nodes` and `evenkeel doctor compare`: many machines, and where they differ.

use std::{path::PathBuf, time::Duration};

use anyhow::anyhow;
use clap::Args;
use doctor::{
    compare::compare,
    nodes::{self, NodesError, NodesOptions},
};
use model::{
    doctor::{Report, Role},
    doctor_nodes::{Node, Nodes},
    schema::Document,
};
use report::{Look, compare_text, nodes_text};

use super::with_end;
use crate::time::seconds_within;
use crate::{
    failure::{Failure, Outcome, json, note_within, print_verdict},
    numbers::number,
};

/// Many machines over ssh.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many machines")]
pub(super) struct NodesArgs {
    /// Examine these machines over ssh and compare them.
    ///
    /// Each is host, user@host or ssh://user@host:port.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["root", "fix", "dry_run"])]
    nodes: Vec<String>,
    /// The same, with one machine in each line of a file; # begins a comment.
    #[arg(long, hide_short_help = true, value_name = "FILE", conflicts_with_all = ["root", "fix", "dry_run"])]
    nodes_file: Option<PathBuf>,
    /// An option of ssh, as behind its -o: --ssh-option Port=2222.
    #[arg(long, hide_short_help = true, value_name = "OPTION")]
    ssh_option: Vec<String>,
    /// Copy this program to machines that lack it, check it there, run it, and take it away again.
    #[arg(long, hide_short_help = true)]
    copy: bool,
    /// With --copy: the program to copy, built for those machines [default: this one].
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "copy")]
    copy_from: Option<PathBuf>,
    /// The program on those machines, by name or path.
    #[arg(long, hide_short_help = true, value_name = "PATH", default_value = "evenkeel")]
    program: String,
    /// Machines that are asked at the same time.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 16, value_parser = number::<u16>("a number of machines", "16", 1..=256))]
    parallel: u16,
    /// The longest that one machine may take, 1s to 1h.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "30s", value_parser = seconds_within("1s", "1h"))]
    timeout: u64,
}

impl NodesArgs {
    /// Other machines are meant.
    pub(super) fn is_given(&self) -> bool {
        !self.nodes.is_empty() || self.nodes_file.is_some()
    }
}

/// Compare reports that `evenkeel doctor --json` wrote.
///
/// Exit code 1 when a machine stands alone with something, 0 when none does.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// The files, one for each machine.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Show what all agree on, too.
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Print JSON (schema evenkeel.doctor.compare/1).
    #[arg(long)]
    json: bool,
}

/// The arguments that hold for every machine.
pub(super) struct Common<'a> {
    pub(super) role: Option<Role>,
    pub(super) only: &'a [String],
    pub(super) json: bool,
    pub(super) all: bool,
}

/// Asks all machines and compares their answers.
pub(super) fn run(args: &NodesArgs, common: &Common<'_>) -> Result<Outcome, Failure> {
    let mut texts = args.nodes.clone();
    if let Some(path) = &args.nodes_file {
        texts.push(host::file::read_text(path).map_err(|source| NodesError::List { path: path.clone(), source })?);
    }
    let names = nodes::names(&texts)?;
    let copy = match (args.copy, &args.copy_from) {
        (true, Some(path)) => Some(path.clone()),
        (true, None) => Some(std::env::current_exe().map_err(Failure::internal)?),
        (false, _) => None,
    };
    let options = NodesOptions {
        ssh_options: args.ssh_option.clone(),
        timeout: Duration::from_secs(args.timeout),
        parallel: args.parallel.into(),
        program: args.program.clone(),
        copy,
        role: common.role,
        only: common.only.to_vec(),
    };
    let answers = nodes::ask(&names, &options, |node| {
        if let Some(error) = &node.error {
            note_within(format_args!("{}: {error}", node.node));
        }
    })?;
    let comparison = compare(&reports(&answers));
    let failed = answers.iter().filter(|node| node.report.is_none()).count();
    let findings = answers.iter().filter_map(|node| node.report.as_ref()).any(Report::has_findings);
    let total = answers.len();
    let text = if common.json {
        json("doctor.nodes", Nodes { nodes: answers, comparison })?
    } else {
        let look = Look::of_stdout();
        let text = nodes_text(&answers, look);
        match total - failed {
            0 | 1 => text,
            _ => format!("{text}\n{}", compare_text(&comparison, look, common.all)),
        }
    };
    let outcome = if findings { Outcome::No } else { Outcome::Fine };
    let outcome = print_verdict(&with_end(&text), outcome)?;
    match failed {
        0 => Ok(outcome),
        _ => {
            let machines = if total == 1 { "machine" } else { "machines" };
            Err(Failure::lacking(anyhow!("{failed} of {total} {machines} gave no report (named above)")))
        }
    }
}

pub(super) fn run_compare(args: &CompareArgs) -> Result<Outcome, Failure> {
    let mut machines: Vec<Node> = Vec::new();
    for file in &args.files {
        let wrong = |why: String| Failure::usage(anyhow!("{}: {why}", file.display()));
        let text = host::file::read_text(file).map_err(|e| wrong(e.to_string()))?;
        machines.extend(read(&text).map_err(|error| wrong(no_report(&error)))?);
    }
    name_apart(&mut machines, &args.files);
    let reports = reports(&machines);
    if reports.len() < 2 {
        return Err(Failure::usage(anyhow!(
            "one machine alone differs from none: name at least two reports (`evenkeel doctor --json > NAME.json` on each machine, \
             or one file of `evenkeel doctor --nodes … --json`)"
        )));
    }
    let comparison = compare(&reports);
    let outcome = if comparison.outliers.is_empty() { Outcome::Fine } else { Outcome::No };
    let text = match args.json {
        true => json("doctor.compare", &comparison)?,
        false => compare_text(&comparison, Look::of_stdout(), args.all),
    };
    print_verdict(&with_end(&text), outcome)
}

/// Reads one report, or those of many machines.
fn read(text: &str) -> Result<Vec<Node>, NodesError> {
    match host::ssh::json::<Document<Nodes>>(text.as_bytes()) {
        Ok(document) if document.schema == "evenkeel.doctor.nodes/1" => Ok(document.body.nodes),
        _ => {
            let report = nodes::parse(text)?;
            Ok(vec![Node { node: report.hostname.clone(), report: Some(report), error: None }])
        }
    }
}

/// Says why a file is no report, and how to write one.
fn no_report(error: &NodesError) -> String {
    let what = match error {
        NodesError::WrongSchema(schema) => format!("it holds `{schema}`, not `{}`", nodes::SCHEMA),
        NodesError::Garbled(why) => format!("it holds no report ({why})"),
        other => other.to_string(),
    };
    format!("{what}; write a report with `evenkeel doctor --json > FILE`")
}

/// Machines of one name take the names of their files.
fn name_apart(machines: &mut [Node], files: &[PathBuf]) {
    let names: Vec<String> = machines.iter().map(|m| m.node.clone()).collect();
    let twice = |name: &String| name.is_empty() || names.iter().filter(|other| *other == name).count() > 1;
    if names.iter().any(twice) && machines.len() == files.len() {
        for (machine, file) in machines.iter_mut().zip(files) {
            machine.node = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        }
    }
}

fn reports(nodes: &[Node]) -> Vec<(String, &Report)> {
    nodes.iter().filter_map(|node| Some((node.node.clone(), node.report.as_ref()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_one_name_are_distinguished_by_file() {
        let node = |name: &str| Node { node: name.into(), report: None, error: None };
        let mut machines = [node("vm"), node("vm")];
        name_apart(&mut machines, &["a/n1.json".into(), "a/n2.json".into()]);
        assert_eq!((machines[0].node.as_str(), machines[1].node.as_str()), ("n1", "n2"));
    }

    #[test]
    fn a_machine_forges_no_line_of_another() {
        let report = r#"{"schema":"evenkeel.doctor/1","hostname":"n1\nn2","kernel":"6.1\nn3","role":"server","role_guessed":true,"findings":[]}"#;
        let text = nodes_text(&read(report).unwrap(), Look::plain(200));
        assert!(text.lines().count() == 2 && text.contains("n1\\nn2") && text.contains("6.1\\nn3"), "{text}");
    }

    #[test]
    fn other_files_are_named() {
        assert!(matches!(read("{}"), Err(NodesError::Garbled(_))));
        assert!(matches!(read(r#"{"schema":"evenkeel.top/1"}"#), Err(NodesError::WrongSchema(_))));
        assert_eq!(
            read(
                r#"{"schema":"evenkeel.doctor.nodes/1","nodes":[],"comparison":{"nodes":[],"rows":[],"outliers":[]}}"#
            )
            .unwrap(),
            []
        );
    }
}
