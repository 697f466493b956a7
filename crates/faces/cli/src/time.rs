//! Times out of arguments: the same notation in every verb.

use std::time::Duration;

const HOW: &str = "write a time such as 10, 10s, 500ms, 2m or 1h";

/// A time: `10` and `10s` are seconds, `500ms`, `2m`, `1h` what they say.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(HOW.to_owned()),
    };
    let value = number.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.and_then(|value| Duration::try_from_secs_f64(value * scale).ok()).ok_or_else(|| HOW.to_owned())
}

/// A time from `least` to `most`, both as they are written.
pub(crate) fn within(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = time(text)?;
        let bounds = time(least)?..=time(most)?;
        if bounds.contains(&found) { Ok(found) } else { Err(format!("write a time from {least} to {most}")) }
    }
}

/// A duration in whole seconds.
pub(crate) fn seconds_within(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    let read = within(least, most);
    move |text| match read(text)? {
        found if found.subsec_nanos() == 0 => Ok(found.as_secs()),
        _ => Err("write whole seconds, such as 60, 60s or 2m".to_owned()),
    }
}

/// The length of an interval. Below 100 ms the kernel's CPU times, which count ticks of 10 ms, say nothing, and a reading is a large part of it.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    within("100ms", "1h")(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, ms) in
            [("10", 10_000), ("5.5s", 5500), ("500ms", 500), ("2m", 120_000), ("2min", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "-1", "inf", "1d", "ms", "1 0"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(within("300ms", "1m")("0.3"), Ok(Duration::from_millis(300)));
        assert!(within("300ms", "1m")("61").is_err_and(|message| message.contains("from 300ms to 1m")));
        assert_eq!(seconds_within("1s", "24h")("2m"), Ok(120));
        assert!(seconds_within("1s", "24h")("1.5").is_err());
        assert!(interval("0").is_err() && interval("0.1").is_ok());
    }
}
