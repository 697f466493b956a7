//! Intents: options of `spread` and checks of `doctor` in a TOML file. Values are planned on the machine.

mod pattern;

use std::fmt;

use host::{
    Host,
    knob::{CoalesceField, coalescing},
    picture::Nic,
};
use model::{CpuSet, doctor::Role};
use serde::{Deserialize, Serialize};

pub use self::pattern::{Matched, Pattern, matched};

/// The content of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Intents {
    /// The reaction to a setting that another program has written.
    pub drift: Drift,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doctor: Vec<Doctor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// The setting gets the kept value again.
    #[default]
    Restore,
    /// The setting is reported and keeps the foreign value.
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

/// Use of RPS or XPS, as in the options of `spread`.
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
    /// The driver's maximum.
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

/// A placement, with the options of `spread apply`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spread {
    /// Names of interfaces. Without a name, a MAC address and a driver, the table selects every network card that is up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Pattern>,
    pub mac: Option<String>,
    pub driver: Option<String>,
    pub cpus: Option<CpuSet>,
    pub except: Option<CpuSet>,
    pub rps: Steering,
    pub rfs: Option<u32>,
    pub xps: Steering,
    pub threaded: Option<Switch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coalesce: Vec<Coalescing>,
    pub ring: Option<RingSize>,
}

/// Fixes of the doctor's checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doctor {
    /// Checks, or checks of one object: `rings`, `rings:eth0`.
    pub checks: Vec<String>,
    pub role: Option<Role>,
    /// Names of interfaces; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Pattern>,
}

impl Spread {
    /// True if the table selects every network card that is up.
    pub fn is_for_all(&self) -> bool {
        self.interfaces.is_empty() && self.mac.is_none() && self.driver.is_none()
    }

    /// The selected interfaces.
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

/// `spread eth0, ens*`
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.interfaces.iter().map(|pattern| pattern.as_str().to_owned());
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
    /// A phrase per intent, such as `spread ens*`.
    pub fn phrases(&self) -> Vec<String> {
        let spread = self.spread.iter().map(ToString::to_string);
        spread.chain(self.doctor.iter().map(ToString::to_string)).collect()
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        // Tables, strings and numbers: TOML can express all of them.
        let body = toml::to_string(self).unwrap_or_default();
        format!("# Kept by evenkeel, see evenkeel-keep(1). `evenkeel keep status` shows the result.\n{body}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_reads_back() {
        let spread = Spread {
            interfaces: vec![Pattern::try_from("ens*".to_owned()).unwrap()],
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
