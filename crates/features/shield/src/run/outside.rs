//! What `[detection]` needs beside the file: folders to write in, a program to run.

use std::path::Path;

use rules::{
    check::{Finding, Kind, Weight},
    file::RuleFile,
};
use sys::program::find;

/// What on this machine stands against the file's `[detection]`.
pub fn outside(file: &RuleFile) -> Vec<Finding> {
    let config = &file.detection;
    let mut findings = Vec::new();
    let mut warn = |kind: Kind, what: String, instead: &str| {
        findings.push(Finding { kind, weight: Weight::Warning, line: None, what, instead: instead.to_owned() });
    };
    for (key, path) in [("events", &config.events), ("metrics.file", &config.metrics.file)] {
        if let Some(path) = path
            && let Some(why) = no_file(path)
        {
            warn(
                Kind::NoFile,
                format!("cannot write detection.{key} to {}: {why}", path.display()),
                "name a file in an existing folder",
            );
        }
    }
    if let Some(program) = config.hook.as_ref().and_then(|hook| hook.run.first())
        && find(program.as_ref()).is_none()
    {
        warn(
            Kind::NoProgram,
            format!("the hook's program `{program}` does not exist or is not executable"),
            "write its whole path, and make it executable (`chmod +x`)",
        );
    }
    findings
}

/// Why this can be no file that is written to.
fn no_file(path: &Path) -> Option<&'static str> {
    if path.is_dir() {
        return Some("it is a folder");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (!folder.is_dir()).then_some("its folder does not exist")
}
