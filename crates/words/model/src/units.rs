//! Numbers for people: a sensible count of digits, a unit, SI prefixes.

/// A number with an SI prefix and three significant digits: `1.61 M`, `950 k`, `12`.
fn si(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        v if v >= 999.5e9 => (value / 1e12, " T"),
        v if v >= 999.5e6 => (value / 1e9, " G"),
        v if v >= 999.5e3 => (value / 1e6, " M"),
        v if v >= 999.5 => (value / 1e3, " k"),
        _ => (value, " "),
    };
    let digits = match scaled.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    if prefix == " " && value.fract() == 0.0 { format!("{value:.0} ") } else { format!("{scaled:.digits$}{prefix}") }
}

/// A rate in packets per second: `1.61 Mpps`.
pub fn pps(packets_per_second: f64) -> String {
    format!("{}pps", si(packets_per_second))
}

/// A rate in bits per second: `9.42 Gbit/s`.
pub fn bits_per_second(bits_per_second: f64) -> String {
    format!("{}bit/s", si(bits_per_second))
}

/// A count with an SI prefix: `12.3 M`.
pub fn count(n: u64) -> String {
    si(n as f64).trim_end().to_owned()
}

/// A count with its digits grouped by spaces: `12 345 678`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// The pieces of a text between which a line may break: its words, but a number with its groups of digits and its unit is one.
pub fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match pieces.last_mut() {
            Some(last) if goes_on(last, word) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// True if `next` goes on with the number in which `last` ends.
fn goes_on(last: &str, next: &str) -> bool {
    let next = next.trim_end_matches([',', '.', ';', ':', ')']);
    let group = next.len() == 3 && next.bytes().all(|b| b.is_ascii_digit());
    let unit = matches!(next, "%" | "k" | "M" | "G" | "T" | "B" | "KiB" | "MiB" | "GiB" | "ns" | "µs" | "ms" | "s");
    let rate = ["pps", "bit/s"].iter().any(|rate| next.strip_suffix(rate).is_some_and(|prefix| prefix.len() <= 1));
    last.ends_with(|c: char| c.is_ascii_digit()) && (group || unit || rate)
}

/// A number with its noun: `1 rule`, `2 rules`.
pub fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

/// A size in bytes with a binary prefix: `4.0 MiB`.
pub fn bytes(n: u64) -> String {
    const PREFIXES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = n as f64;
    let mut i = 0;
    while scaled >= 1023.95 && i + 1 < PREFIXES.len() {
        scaled /= 1024.0;
        i += 1;
    }
    if i == 0 { format!("{n} B") } else { format!("{scaled:.1} {}", PREFIXES[i]) }
}

/// A duration given in nanoseconds: `312 ns`, `4.20 µs`, `1.50 s`.
pub fn nanoseconds(ns: f64) -> String {
    let (scaled, unit) = match ns.abs() {
        v if v >= 999.5e6 => (ns / 1e9, "s"),
        v if v >= 999.5e3 => (ns / 1e6, "ms"),
        v if v >= 999.5 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    let digits = match scaled.abs() {
        v if v >= 99.95 || unit == "ns" => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$} {unit}")
}

/// A share of a whole in percent, with a digit more where it is small: `37.5 %`, `0.04 %`.
pub fn percent(ratio: f64) -> String {
    let p = ratio * 100.0;
    let digits = if p != 0.0 && p.abs() < 0.995 { 2 } else { 1 };
    format!("{p:.digits$} %")
}

/// A duration in words: `42 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration_words(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, 0, _) => format!("{h} h"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let words = [0.4, 42.2, 120.0, 200.0, 7500.0, 7200.0].map(duration_words);
        assert_eq!(words, ["0 s", "42 s", "2 min", "3 min 20 s", "2 h 5 min", "2 h"]);
    }

    #[test]
    fn rates_keep_three_digits() {
        assert_eq!(pps(1_612_345.0), "1.61 Mpps");
        assert_eq!(pps(999_499.0), "999 kpps");
        assert_eq!(pps(999_600.0), "1.00 Mpps");
        assert_eq!(pps(0.0), "0 pps");
        assert_eq!(pps(12.0), "12 pps");
        assert_eq!(bits_per_second(9.416e9), "9.42 Gbit/s");
    }

    #[test]
    fn counts_group_and_scale() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(count(12_300_000), "12.3 M");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4 << 20), "4.0 MiB");
    }

    #[test]
    fn a_number_is_one_piece_with_its_unit() {
        let text = "Of 1 234 567 packets, 12.5 % (±1.4 %) in 10 s; 3 queues at 9.42 Gbit/s, 1 Mpps.";
        let whole = ["1 234 567", "12.5 %", "(±1.4 %)", "10 s;", "3", "queues", "9.42 Gbit/s,", "1 Mpps."];
        let pieces = pieces(text);
        assert!(whole.iter().all(|piece| pieces.iter().any(|p| p == piece)), "{pieces:?}");
    }

    #[test]
    fn durations_change_unit() {
        assert_eq!(nanoseconds(312.0), "312 ns");
        assert_eq!(nanoseconds(4_200.0), "4.20 µs");
        assert_eq!(nanoseconds(1.5e9), "1.50 s");
        assert_eq!(percent(0.375), "37.5 %");
        assert_eq!(percent(0.0004), "0.04 %");
    }
}
