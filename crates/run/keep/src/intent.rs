//! Intents: what is to be kept, as a file of TOML says it. Not values: those are planned on the machine that is there.

use std::fmt;

use host::{
    Host,
    interface::real_name,
    knob::{CoalesceField, coalescing},
    picture::Nic,
};
use model::{CpuSet, doctor::Role};
use serde::{Deserialize, Serialize};

/// All that one file asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intents {
    /// What becomes of a setting that somebody else has written.
    #[serde(default)]
    pub drift: Drift,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doctor: Vec<Doctor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// Set back.
    #[default]
    Restore,
    /// Named, and left as it is.
    Leave,
}

impl Drift {
    pub fn name(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Leave => "leave",
        }
    }
}

/// Use of a means of steering, as `spread` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    #[default]
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingSize {
    /// The largest that the driver has.
    Max,
}

/// A setting of interrupt coalescing: `rx-usecs=50`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Coalescing(pub CoalesceField, pub String);

impl TryFrom<String> for Coalescing {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (field, value) = coalescing(&text).map_err(|why| format!("`{text}`: {why}"))?;
        Ok(Self(field, value))
    }
}

impl From<Coalescing> for String {
    fn from(Coalescing(field, value): Coalescing) -> Self {
        format!("{}={value}", field.as_str())
    }
}

/// The name of an interface, or a glob of names: `ens*`, `eth?`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
        match text.is_empty() || text.contains(is_bad) || text == "." || text == ".." {
            true => Err(format!("`{text}` is no name of an interface; write one such as eth0, or a glob such as ens*")),
            false => Ok(Self(text)),
        }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl Pattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_glob(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    pub fn matches(&self, name: &str) -> bool {
        glob(self.0.as_bytes(), name.as_bytes())
    }
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if glob(rest, name) => true,
        (Some((b'*', _)), Some((_, tail))) => glob(pattern, tail),
        (Some((b'?', rest)), Some((_, tail))) => glob(rest, tail),
        (Some((one, rest)), Some((other, tail))) => one == other && glob(rest, tail),
        _ => false,
    }
}

/// A placement, with the options of `spread apply`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The interfaces; none, and neither a MAC address nor a driver: every network card that is up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Pattern>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<CpuSet>,
    #[serde(default)]
    pub rps: Steering,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rfs: Option<u32>,
    #[serde(default)]
    pub xps: Steering,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded: Option<Switch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coalesce: Vec<Coalescing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingSize>,
}

/// Fixes of the doctor's checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doctor {
    /// Checks, or checks of one object: `rings`, `rings:eth0`.
    pub checks: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The interfaces; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Pattern>,
}

/// The interfaces of an intent on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matched {
    pub names: Vec<String>,
    /// What is named and is not there, in words.
    pub pending: Vec<String>,
}

impl Spread {
    /// True if it names no interface: it is for every network card that is up.
    pub fn is_for_all(&self) -> bool {
        self.interfaces.is_empty() && self.mac.is_none() && self.driver.is_none()
    }

    /// The interfaces that it is for.
    pub fn matched(&self, host: &Host) -> Matched {
        let mut found = matched(&self.interfaces, host);
        if let Some(mac) = &self.mac {
            let is_it = |nic: &&Nic| nic.mac.as_ref().is_some_and(|other| other.eq_ignore_ascii_case(mac));
            let mut nics: Vec<&Nic> = host.nics.iter().filter(is_it).collect();
            // A VLAN device or a bridge has the address of the card below it.
            if nics.iter().any(|nic| nic.bus.is_some()) {
                nics.retain(|nic| nic.bus.is_some());
            }
            found.add(nics, || format!("no interface has the address {mac}"));
        }
        if let Some(driver) = &self.driver {
            let is_it = |nic: &&Nic| nic.driver.as_ref() == Some(driver);
            found.add(host.nics.iter().filter(is_it).collect(), || format!("no interface has the driver {driver}"));
        }
        found
    }
}

impl Matched {
    fn add(&mut self, nics: Vec<&Nic>, pending: impl FnOnce() -> String) {
        if nics.is_empty() {
            self.pending.push(pending());
        }
        for nic in nics {
            if !self.names.contains(&nic.name) {
                self.names.push(nic.name.clone());
            }
        }
    }
}

/// The interfaces that `patterns` name.
pub fn matched(patterns: &[Pattern], host: &Host) -> Matched {
    let mut found = Matched::default();
    for pattern in patterns {
        let real = if pattern.is_glob() { pattern.0.clone() } else { real_name(&pattern.0) };
        let real = Pattern(real);
        let nics = host.nics.iter().filter(|nic| real.matches(&nic.name)).collect();
        found.add(nics, || format!("{} is not there", pattern.0));
    }
    found
}

/// `spread eth0, ens*`
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.interfaces.iter().map(|pattern| pattern.0.clone());
        let mac = self.mac.iter().map(|mac| format!("address {mac}"));
        let driver = self.driver.iter().map(|driver| format!("driver {driver}"));
        let all: Vec<String> = names.chain(mac).chain(driver).collect();
        match all.is_empty() {
            true => f.write_str("spread all cards"),
            false => write!(f, "spread {}", all.join(", ")),
        }
    }
}

/// `doctor rings, ring-size (eth0)`
impl fmt::Display for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "doctor {}", self.checks.join(", "))?;
        if !self.interfaces.is_empty() {
            let names: Vec<&str> = self.interfaces.iter().map(Pattern::as_str).collect();
            write!(f, " ({})", names.join(", "))?;
        }
        Ok(())
    }
}

impl Intents {
    /// Each intent in a few words.
    pub fn phrases(&self) -> Vec<String> {
        let spread = self.spread.iter().map(ToString::to_string);
        spread.chain(self.doctor.iter().map(ToString::to_string)).collect()
    }

    /// The text of a file.
    pub fn text(&self) -> String {
        // Lists of tables and strings: there is nothing in it that TOML has not.
        let body = toml::to_string(self).unwrap_or_default();
        format!("# Kept by evenkeel, see evenkeel-keep(1). `evenkeel keep status` shows what became of it.\n{body}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        let is = |pattern: &str, name: &str| Pattern(pattern.into()).matches(name);
        assert!(is("eth0", "eth0") && is("ens*", "ens1f0") && is("*", "x") && is("e?h*0", "eth10"));
        assert!(!is("eth", "eth0") && !is("eth?", "eth") && !is("ens*0", "ens1"));
    }

    #[test]
    fn what_was_written_reads_back() {
        let spread = Spread {
            interfaces: vec![Pattern("ens*".into())],
            cpus: CpuSet::parse_list("0-3").ok(),
            rps: Steering::On,
            rfs: Some(4096),
            threaded: Some(Switch::On),
            coalesce: vec![Coalescing(CoalesceField::RxUsecs, "50".into())],
            ring: Some(RingSize::Max),
            ..Spread::default()
        };
        let doctor = Doctor { checks: vec!["rings:eth0".into()], role: Some(Role::Router), ..Doctor::default() };
        let intents = Intents { drift: Drift::Leave, spread: vec![spread], doctor: vec![doctor] };
        assert_eq!(toml::from_str::<Intents>(&intents.text()).unwrap(), intents, "{}", intents.text());
        assert_eq!(intents.phrases(), ["spread ens*", "doctor rings:eth0"]);
    }
}
