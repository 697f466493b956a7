//! A plan as text: a line per NIC, then the table.

use model::CpuSet;
use report::Look;
use spread::{Row, SpreadPlan};

/// The longest list of CPUs that a cell holds in full, in columns.
const LIST_WIDTH: usize = 21;

/// The plan for people, at most 120 columns wide. Neighbouring queues that get CPUs for the same reason share a
/// line, unless `full`. Without a setting there is no table.
pub(super) fn text(planned: &SpreadPlan, full: bool) -> String {
    let look = Look { width: Look::of_stdout().width.min(120), ..Look::of_stdout() };
    let mut out: String = planned.nics.iter().map(|nic| look.paragraph(&nic.to_string())).collect();
    if planned.rows.is_empty() {
        return out;
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let rows = planned.rows.chunk_by(|a, b| !full && alike(a, b)).map(|run| match run {
        [row] => {
            let new = if row.changes { brief(&row.new) } else { "=".to_owned() };
            vec![row.nic.clone(), row.what.clone(), brief(&row.old), new, row.reason.clone()]
        }
        [first, .., last] => {
            let new = brief_run(run);
            let (old, new) = if first.changes { (brief(&first.old), new) } else { (new, "=".to_owned()) };
            vec![first.nic.clone(), span(&first.what, &last.what), old, new, first.reason.clone()]
        }
        [] => Vec::new(),
    });
    out.push_str(&look.table_within(&["NIC", "SETTING", "NOW", "NEW", "WHY"], rows.collect(), &["NOW"]));
    out
}

/// Two neighbouring lines say the same of two queues in a row, with as many CPUs each.
fn alike(a: &Row, b: &Row) -> bool {
    let cpus = |row: &Row| CpuSet::parse_list(&row.new).ok().map(|set| set.len());
    let same =
        a.nic == b.nic && a.reason == b.reason && a.changes == b.changes && cpus(a).is_some() && cpus(a) == cpus(b);
    // What changes must come from the same value; what stays may be another CPU each.
    same && (!a.changes || a.old == b.old) && follows(&a.what, &b.what)
}

/// `b` is `a` with each number one higher: `rxtx 3 IRQ 73` and `rxtx 4 IRQ 74`.
fn follows(a: &str, b: &str) -> bool {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split(' ').collect(), b.split(' ').collect());
    let next = |(a, b): (&&str, &&str)| match (a.parse::<u32>(), b.parse::<u32>()) {
        (Ok(a), Ok(b)) => b == a + 1,
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(&b).all(next)
}

/// `rxtx 0 IRQ 70` to `rxtx 5 IRQ 75` as `rxtx 0-5 IRQ 70-75`.
fn span(first: &str, last: &str) -> String {
    let word = |(a, b): (&str, &str)| if a == b { a.to_owned() } else { format!("{a}-{b}") };
    first.split(' ').zip(last.split(' ')).map(word).collect::<Vec<_>>().join(" ")
}

/// A list of CPUs that fits into a cell: `0,4,8,…,124 (32)` with the number of CPUs. Anything else stays as it is.
fn brief(text: &str) -> String {
    match CpuSet::parse_list(text) {
        Ok(set) if text.len() > LIST_WIDTH => shorten(text, set.len()),
        _ => text.to_owned(),
    }
}

/// Describes a run of lines that are alike: the CPU of each, or how many CPUs each gets.
fn brief_run(run: &[Row]) -> String {
    let sets: Vec<CpuSet> = run.iter().filter_map(|r| CpuSet::parse_list(&r.new).ok()).collect();
    match sets.first().map_or(0, CpuSet::len) {
        1 if sets.windows(2).any(|w| w[0] != w[1]) => {
            brief_sequence(&sets.iter().filter_map(CpuSet::first).collect::<Vec<_>>())
        }
        _ if sets.windows(2).all(|w| w[0] == w[1]) => brief(&run[0].new),
        cpus => format!("{cpus} CPUs each"),
    }
}

/// CPUs in the order of their queues: `0-5`, `0,2,4`, `0,2,4,…,22 (12)`.
fn brief_sequence(cpus: &[u32]) -> String {
    let parts: Vec<String> = cpus
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(ToString::to_string).collect(),
        })
        .collect();
    let text = parts.join(",");
    if text.len() > LIST_WIDTH { shorten(&text, cpus.len()) } else { text }
}

fn shorten(list: &str, count: usize) -> String {
    let parts: Vec<&str> = list.split(',').collect();
    match parts.as_slice() {
        [a, b, c, _, .., last] => format!("{a},{b},{c},…,{last} ({count})"),
        _ => list.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened_between_numbers() {
        assert_eq!(brief("0-3,8"), "0-3,8");
        assert_eq!(brief("0,4,8,12,16,20,24,28,32,36"), "0,4,8,…,36 (10)");
        assert_eq!(brief("a text that is longer than a cell"), "a text that is longer than a cell");
        assert_eq!(brief_sequence(&[0, 1, 2, 3]), "0-3");
        assert_eq!(brief_sequence(&[4, 2, 3, 0]), "4,2-3,0");
        assert_eq!(brief_sequence(&(0..24).step_by(2).collect::<Vec<_>>()), "0,2,4,…,22 (12)");
    }

    #[test]
    fn a_plan_without_a_setting_has_no_table() {
        assert_eq!(text(&SpreadPlan::default(), false), "");
    }

    #[test]
    fn only_queues_in_a_row_share_a_line() {
        let row = |what: &str, new: &str| Row {
            nic: "eth0".into(),
            what: what.into(),
            old: "0-7".into(),
            new: new.into(),
            reason: "its own core".into(),
            changes: true,
        };
        let a = row("rxtx 0 IRQ 70", "0");
        assert!(alike(&a, &row("rxtx 1 IRQ 71", "1")));
        assert!(!alike(&a, &row("rxtx 1 IRQ 72", "1")), "a gap between the interrupts");
        assert!(!alike(&a, &row("rxtx 1 IRQ 71", "1-2")), "more CPUs");
        let pairs = [row("tx 0 XPS", "0,32"), row("tx 1 XPS", "1,33")];
        assert!(alike(&pairs[0], &pairs[1]));
        assert_eq!(brief_run(&pairs), "2 CPUs each");
        assert!(!alike(&a, &Row { old: "0".into(), ..row("rxtx 1 IRQ 71", "1") }), "another value now");
        assert!(!alike(&a, &Row { changes: false, ..row("rxtx 1 IRQ 71", "1") }), "that one stays");
        assert_eq!(span("rxtx 0 IRQ 70", "rxtx 5 IRQ 75"), "rxtx 0-5 IRQ 70-75");
    }
}
