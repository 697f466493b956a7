//! Requirements of `[detection]` outside the file: folders to write in, a program to run.

use std::path::Path;

use host::file;
use rules::{
    check::{Finding, Kind, Weight},
    file::RuleFile,
};
use sys::program::find;

/// Returns what on this machine stands against the file's `[detection]`.
pub fn outside(rules: &RuleFile) -> Vec<Finding> {
    let config = &rules.detection;
    let mut findings = Vec::new();
    let mut warn = |kind: Kind, what: String, instead: &str| {
        findings.push(Finding { kind, weight: Weight::Warning, line: None, what, instead: instead.to_owned() });
    };
    for (key, path) in [("events", &config.events), ("metrics.file", &config.metrics.file)] {
        let Some(path) = path else { continue };
        // Events go into a pipe as well; metrics replace a file.
        let special = (key == "metrics.file").then(|| file::refuse_special(path).err()).flatten();
        if let Some(refused) = special {
            warn(Kind::NoFile, format!("detection.{key}: {refused}"), "`run` refuses it");
        } else if let Some(why) = no_file(path) {
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

/// Returns why this can be no file that is written to.
fn no_file(path: &Path) -> Option<&'static str> {
    if path.is_dir() {
        return Some("it is a folder");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (!folder.is_dir()).then_some("its folder does not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let kinds = |key: &str| {
            let text = format!("protect = \"192.0.2.1\"\n[detection]\n{key}\n");
            let rules = rules::file::parse_in(&text, "f", Path::new("")).unwrap();
            outside(&rules).into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds("events = \"/no/such/folder/events\""), [Kind::NoFile]);
        assert_eq!(kinds(&format!("metrics.file = {:?}", folder.path())), [Kind::NoFile]);
        assert_eq!(kinds("metrics.file = \"/dev/null\""), [Kind::NoFile]);
        for program in ["/no/such/program", "no-such-program", "/etc/passwd"] {
            assert_eq!(kinds(&format!("hook.run = [{program:?}]")), [Kind::NoProgram], "{program}");
        }
        let events = folder.path().join("events");
        let none =
            ["hook.run = [\"sh\", \"-c\"]", "events = \"here\"", "events = \"/dev/null\"", "baseline.learn = false"];
        for key in none.map(str::to_owned).into_iter().chain([format!("events = {events:?}")]) {
            assert_eq!(kinds(&key), Vec::<Kind>::new(), "{key}");
        }
    }
}
