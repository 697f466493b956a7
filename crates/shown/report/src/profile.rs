//! A profile of CPU time as text, and two of them side by side.

use std::fmt::Write;

use model::{
    profile::{Class, ClassDifference, ClassShare, Comparison, CoreProfile, Named, PacketBase, Profile},
    units,
};

use crate::table::Look;

/// Parts of a profile that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfileView {
    /// A column for every core, however wide the table becomes.
    pub per_core: bool,
    /// The most expensive functions of each class, and those that no rule names.
    pub verbose: bool,
    /// Number of functions, whatever their class; 0 for none.
    pub functions: usize,
}

/// Functions shown per class.
const FUNCTIONS_PER_CLASS_MAX: usize = 3;
/// Share of all time from which the takers of locks are shown, in percent.
const LOCKS_FROM_PERCENT: f64 = 1.0;
/// Unclassified time is explained from this share on, in percent.
const UNCLASSIFIED_FROM_PERCENT: f64 = 1.0;
/// The width of the columns that are always there, and of one for a core.
const FIXED_COLUMNS: u16 = 46;
const CORE_COLUMN: u16 = 7;
/// Core columns on a page without an end.
const CORES_MAX: usize = 16;

/// The profile: its circumstances, the table of classes, locks, programs and what a reader should know.
pub fn profile_text(profile: &Profile, view: ProfileView, look: Look) -> String {
    let mut out = look.paragraph(&head(profile));
    let (cores, folded) = shown_cores(profile, view, look);
    let _ = write!(out, "\n{}", classes(profile, &cores, look));
    if folded > 0 {
        let text = format!("The {} busiest of {} cores; --per-core shows all.", cores.len(), profile.cores.len());
        out.push_str(&look.paragraph(&text));
    }
    if let Some(packets) = &profile.packets {
        out.push_str(&look.paragraph(&format!("ns/packet: {}", base(packets))));
    }
    for text in [locks(profile), programs(profile), left_out(profile), unclassified(profile)].into_iter().flatten() {
        let _ = write!(out, "\n{}", look.paragraph(&text));
    }
    if view.verbose {
        let _ = write!(out, "\n{}", dearest(profile, look));
        let _ = write!(out, "\n{}", look.paragraph(&unnamed(profile)));
    }
    if view.functions > 0 {
        let rows = profile.functions.iter().take(view.functions);
        let rows = rows.map(|f| vec![of_samples(profile, f.samples), f.name.clone()]);
        let _ = write!(out, "\n{}", look.table(&[">OF ALL TIME", "FUNCTION"], rows));
    }
    for note in &profile.notes {
        let _ = write!(out, "\n{}", look.paragraph(note));
    }
    out
}

fn head(profile: &Profile) -> String {
    let m = &profile.machine;
    let place = if m.hostname.is_empty() { String::new() } else { format!("  {}, Linux {}", m.hostname, m.kernel) };
    let lost = match profile.lost {
        0 => "none lost".to_owned(),
        n => format!("{} lost", units::grouped(n)),
    };
    format!(
        "{}{place}, {:.1} s, {} samples on {} ({} per second each), {lost}",
        profile.timestamp,
        profile.seconds,
        units::grouped(profile.samples),
        cpus(profile.cores.len()),
        profile.frequency_hz,
    )
}

fn cpus(n: usize) -> String {
    if n == 1 { "1 CPU".into() } else { format!("{n} CPUs") }
}

fn base(packets: &PacketBase) -> String {
    format!("CPU time of all cores / packets {} ({})", packets.what, units::pps(packets.pps))
}

/// The cores that get a column: all, or the busiest in the order of their numbers. And how many are left out.
fn shown_cores(profile: &Profile, view: ProfileView, look: Look) -> (Vec<&CoreProfile>, usize) {
    let mut cores: Vec<&CoreProfile> = profile.cores.iter().collect();
    let room = usize::from(look.width.saturating_sub(FIXED_COLUMNS) / CORE_COLUMN).clamp(1, CORES_MAX);
    if view.per_core || cores.len() <= room {
        return (cores, 0);
    }
    let busy = |c: &CoreProfile| c.percent.iter().filter(|(k, _)| k.is_busy()).map(|(_, p)| p).sum::<f64>();
    cores.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
    cores.truncate(room);
    cores.sort_by_key(|c| c.cpu);
    (cores, profile.cores.len() - room)
}

fn classes(profile: &Profile, cores: &[&CoreProfile], look: Look) -> String {
    let core_heads: Vec<String> = cores.iter().map(|c| format!(">CPU {}", c.cpu)).collect();
    let mut heads = vec!["CLASS", ">ALL %", ">+-", ">BUSY %"];
    heads.extend(profile.packets.is_some().then_some(">ns/PACKET"));
    heads.extend(core_heads.iter().map(String::as_str));
    // What nobody could name is told even when there was none of it.
    let mut shares = profile.classes.clone();
    if profile.class(Class::Unclassified).is_none() {
        let at = shares.iter().position(|c| c.class > Class::Unclassified).unwrap_or(shares.len());
        let nothing = ClassShare {
            class: Class::Unclassified,
            samples: 0,
            percent: 0.0,
            error: 0.0,
            ns_per_packet: None,
            top: Vec::new(),
        };
        shares.insert(at, nothing);
    }
    let rows = shares.iter().map(|c| {
        let busy = c.class.is_busy().then(|| share(profile.percent_of_busy(c.class)));
        let mut row = vec![c.class.name().to_owned(), share(c.percent), share(c.error), busy.unwrap_or_default()];
        if profile.packets.is_some() {
            row.push(c.ns_per_packet.map_or_else(String::new, ns));
        }
        row.extend(cores.iter().map(|core| core.percent.get(&c.class).map_or_else(String::new, |&p| share(p))));
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    let busy_of = |c: &CoreProfile| c.percent.iter().filter(|(k, _)| k.is_busy()).map(|(_, p)| p).sum::<f64>();
    let of_busy = if profile.busy_percent() > 0.0 { 100.0 } else { 0.0 };
    let mut sum = vec!["busy in all".to_owned(), share(profile.busy_percent()), String::new(), share(of_busy)];
    if let Some(packets) = &profile.packets {
        let core_ns = profile.seconds * 1e9 * profile.cores.len() as f64;
        sum.push(ns(profile.busy_percent() / 100.0 * core_ns / packets.packets.max(1) as f64));
    }
    sum.extend(cores.iter().map(|c| share(busy_of(c))));
    rows.push(sum);
    look.table(&heads, rows)
}

fn share(percent: f64) -> String {
    // The sum of nothing is -0.
    format!("{:.1}", percent + 0.0)
}

fn ns(ns: f64) -> String {
    if ns < 9.95 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// A number of samples as a share of all.
fn of_samples(profile: &Profile, samples: u64) -> String {
    format!("{:.1} %", 100.0 * samples as f64 / profile.samples.max(1) as f64)
}

fn locks(profile: &Profile) -> Option<String> {
    if profile.percent(Class::Locks) < LOCKS_FROM_PERCENT {
        return None;
    }
    let callers: Vec<String> = profile
        .locks
        .iter()
        .take(5)
        .filter(|l| l.samples * 1000 >= profile.samples)
        .map(|l| {
            let waiting = match l.waiting {
                0 => String::new(),
                n => format!(", of it waiting {}", of_samples(profile, n)),
            };
            format!("{} ({}) {}{waiting}", l.caller, l.class, of_samples(profile, l.samples))
        })
        .collect();
    (!callers.is_empty()).then(|| format!("Locks are taken by {}.", callers.join("; ")))
}

fn programs(profile: &Profile) -> Option<String> {
    let user = profile.class(Class::User).filter(|c| c.percent >= 1.0)?;
    let listed: Vec<String> =
        user.top.iter().take(5).map(|p| format!("{} {}", p.name, of_samples(profile, p.samples))).collect();
    Some(format!("User programs: {}.", listed.join(", ")))
}

fn left_out(profile: &Profile) -> Option<String> {
    let left = profile.excluded.as_ref()?;
    Some(format!("Left out: {}, {:.1} % of all time.", left.what, left.percent))
}

fn unclassified(profile: &Profile) -> Option<String> {
    let class = profile.class(Class::Unclassified).filter(|c| c.percent >= UNCLASSIFIED_FROM_PERCENT)?;
    let listed: Vec<String> =
        class.top.iter().take(5).map(|f| format!("{} {}", f.name, of_samples(profile, f.samples))).collect();
    Some(format!("Unclassified: {}.", listed.join(", ")))
}

fn dearest(profile: &Profile, look: Look) -> String {
    let rows = profile.classes.iter().filter(|c| !c.top.is_empty()).map(|c| {
        let name = |f: &Named| format!("{} {}", f.name, of_samples(profile, f.samples));
        vec![
            c.class.name().to_owned(),
            c.top.iter().take(FUNCTIONS_PER_CLASS_MAX).map(name).collect::<Vec<_>>().join(", "),
        ]
    });
    look.table(&["CLASS", "TOP FUNCTIONS, OF ALL TIME"], rows)
}

fn unnamed(profile: &Profile) -> String {
    let charged = of_samples(profile, profile.attributed_to_caller);
    let listed: Vec<String> = profile.unclassified_functions.iter().take(5).map(|f| f.name.clone()).collect();
    let some = if listed.is_empty() { String::new() } else { format!(": {}", listed.join(", ")) };
    format!("{charged} of all time was in functions that no rule names, and is charged to what called them{some}.")
}

/// Two profiles, class by class.
pub fn comparison_text(c: &Comparison, look: Look) -> String {
    let mut out = String::new();
    for (letter, name, packets) in [("A", &c.a, &c.a_packets), ("B", &c.b, &c.b_packets)] {
        let packets = packets.as_ref().map_or_else(|| "no traffic to speak of".to_owned(), base);
        out.push_str(&look.paragraph(&format!("{letter}: {name}; {packets}")));
    }
    let per_packet = c.a_packets.is_some() && c.b_packets.is_some();
    let mut heads = vec!["CLASS", ">A %", ">B %", ">B-A", ">+-", ""];
    if per_packet {
        heads.extend([">A ns/PACKET", ">B ns/PACKET", ">B-A", ">+-", ""]);
    }
    let rows = c.classes.iter().map(|d| difference(d, per_packet));
    let _ = write!(out, "\n{}", look.table(&heads, rows));
    out.push_str(&look.paragraph(
        "* differs by more than two standard errors of the sampling (+-); what one sample has to do with the next, and what \
         changed besides, is not in them.",
    ));
    for note in &c.notes {
        out.push_str(&look.paragraph(note));
    }
    out
}

fn difference(d: &ClassDifference, per_packet: bool) -> Vec<String> {
    let star = |differs: bool| if differs { "*".to_owned() } else { String::new() };
    let mut row = vec![
        d.class.name().to_owned(),
        share(d.a_percent),
        share(d.b_percent),
        format!("{:+.1}", d.b_percent - d.a_percent),
        share(d.percent_error),
        star(d.percent_differs),
    ];
    if per_packet {
        let cell = |value: Option<f64>| value.map_or_else(String::new, ns);
        let change = d.a_ns.zip(d.b_ns).map_or_else(String::new, |(a, b)| format!("{:+.0}", b - a));
        let error = if d.a_ns.is_some() { cell(d.ns_error) } else { String::new() };
        row.extend([cell(d.a_ns), cell(d.b_ns), change, error, star(d.ns_differs == Some(true))]);
    }
    row
}
