//! Requirements of [detection] on the file: a prefix to protect, and limits.

use super::{Finding, Kind, Weight, found};
use crate::{detect::DetectConfig, file::RuleFile};

/// Settings of [detection] that are probably not meant.
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
    findings
}
