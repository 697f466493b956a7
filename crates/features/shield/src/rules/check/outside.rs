//! What [detection] needs beside the file: something to watch, limits, folders, a program.

use std::path::Path;

use sys::program::find;

use super::{Finding, Kind, Weight, found};
use crate::{detect::DetectConfig, rules::file::RuleFile};

/// What is probably not meant in [detection].
pub(super) fn detection(file: &RuleFile) -> Vec<Finding> {
    let config = &file.detection;
    let mut findings = Vec::new();
    let mut warn =
        |kind: Kind, what: String, instead: &str| findings.push(found(kind, Weight::Warning, None, what, instead));
    if file.rules.protected.is_empty() && *config != DetectConfig::default() {
        warn(
            Kind::NothingProtected,
            "[detection] has nothing to watch: no prefix is protected".to_owned(),
            "write protect = [\"203.0.113.0/24\"] at the top of the file, or remove [detection]",
        );
    }
    if !file.rules.protected.is_empty() && !config.baseline.learn && config.threshold.is_empty() {
        warn(
            Kind::NoLimits,
            "no attack will ever be detected: there is no threshold, and baseline.learn = false".to_owned(),
            "write threshold = { packets = 100000 }, or remove baseline.learn",
        );
    }
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
