//! The clock source.

use super::{Missing, text};
use crate::root::Root;

const FOLDER: &str = "sys/devices/system/clocksource/clocksource0";

/// The clock source in use, and those that could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// The one in use, such as `tsc`.
    pub current: String,
    /// Every one the kernel would take.
    pub available: Vec<String>,
}

/// Reads the clock source; none when the kernel shows none.
pub fn read(root: &Root) -> Result<Option<Clock>, Missing> {
    let available = text(root, &format!("{FOLDER}/available_clocksource"))?.unwrap_or_default();
    let current = text(root, &format!("{FOLDER}/current_clocksource"))?;
    Ok(current.map(|current| Clock { current, available: available.split_whitespace().map(str::to_owned).collect() }))
}

pub(super) fn record(root: &Root) {
    let _ = read(root);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn current_and_available() {
        let root = machine(&[
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm \n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
        ]);
        let clock = read(&root).unwrap().unwrap();
        assert_eq!((clock.current.as_str(), clock.available.len()), ("hpet", 3));
        assert_eq!(read(&machine(&[])), Ok(None));
    }
}
