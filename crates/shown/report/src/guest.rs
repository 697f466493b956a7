//! Events that card models cost a guest, as text.

use model::{
    bench::{
        PublishedRate,
        guest::{Burst, Card, GuestRun, VerbOutcome, of_bare},
    },
    units,
};

use crate::{PUBLISHED, conditions, table::Look};

/// The columns of the accesses.
pub(crate) const ACCESSES: [&str; 9] =
    ["CARD", ">BURST", ">ACCESSES", ">READS", ">WRITES", ">NOTIFICATIONS", ">INTERRUPTS", ">SPREAD", ">LOST"];
/// The columns of the cards.
pub(crate) const CARDS: [&str; 7] = ["CARD", "DRIVER", ">QUEUES", ">RING", "NATIVE XDP", ">READY", "OFFLOADS"];
/// The columns of the rates of others.
pub(crate) const RATES: [&str; 6] = ["CARD", ">FRAME", ">RATE", "OF", ">OF BARE METAL", "WHO, ON WHAT"];
/// The columns of the verbs.
pub(crate) const VERBS: [&str; 4] = ["CARD", "EVENKEEL", "RESULT", "SAID"];
const NONE: &str = "\u{2013}";
/// Warning before the figures.
pub(crate) const NO_RATES: &str =
    "The guest is emulated: what follows is counted. No rate, delay or ranking is shown; emulation has none.";

pub fn guest_text(run: &GuestRun, look: Look) -> String {
    let mut text: String = conclusion(run).iter().map(|sentence| look.paragraph(sentence)).collect();
    text += &look.paragraph(&format!("\n{NO_RATES}"));
    text += &look.paragraph("\nFor each frame that the guest forwards:");
    text += &look.table(&ACCESSES, access_rows(run));
    if let Some((exit_ns, origin)) = run.exit() {
        text += &look.paragraph(&format!(
            "\nA model, and no measurement: accesses x {}, an exit {origin}:",
            units::nanoseconds(exit_ns)
        ));
        text += &look.table(&["CARD", ">BURST", ">ACCESSES x EXIT"], model_rows(run, exit_ns));
    }
    text += &look.paragraph("\nThe cards as the guest sees them:");
    text += &look.table(&CARDS, run.cards.iter().map(card_cells));
    text += &look.paragraph("\nevenkeel in the guest:");
    text += &look.table(&VERBS, verb_rows(run));
    for left in &run.skipped {
        text += &look.paragraph(&format!("\nLeft out, {left}."));
    }
    if !run.sources.is_empty() {
        text += &look.paragraph(&format!("\n{PUBLISHED}, never measured by evenkeel:"));
        text += &look.table(&RATES, rate_rows(run));
    }
    text.push('\n');
    text + &conditions::paragraphs(&conditions_of(run), look)
}

/// The result in sentences: whether evenkeel works on the cards, then the least and the most that they ask for.
pub(crate) fn conclusion(run: &GuestRun) -> Vec<String> {
    if is_void(run) {
        return vec!["No verdict: no card was counted.".to_owned()];
    }
    let mut all: Vec<String> = fares(run).into_iter().collect();
    let bursts = run.cards.first().map_or(&[][..], |card| &card.bursts);
    all.extend(bursts.iter().filter_map(|burst| range(run, burst.frames)));
    all
}

/// True if nothing was counted.
pub(crate) fn is_void(run: &GuestRun) -> bool {
    run.cards.iter().all(|card| card.bursts.is_empty() && card.verbs.is_empty())
}

/// True if a command failed on a card.
pub(crate) fn has_failed(run: &GuestRun) -> bool {
    run.cards.iter().flat_map(|card| &card.verbs).any(|verb| verb.outcome == VerbOutcome::Fails)
}

fn fares(run: &GuestRun) -> Option<String> {
    let of = |wanted: VerbOutcome| -> Vec<String> {
        let verbs = run.cards.iter().flat_map(|card| card.verbs.iter().map(move |verb| (card, verb)));
        verbs
            .filter(|(_, v)| v.outcome == wanted)
            .map(|(card, verb)| format!("{} on {}", verb.command, card.nic))
            .collect()
    };
    let all: usize = run.cards.iter().map(|card| card.verbs.len()).sum();
    let (failed, refused) = (of(VerbOutcome::Fails), of(VerbOutcome::Refused).len());
    let refused = match refused {
        0 => String::new(),
        some => format!("; {some} refused, since the driver or the kernel lacks something"),
    };
    match (all, failed.as_slice()) {
        (0, _) => None,
        (_, []) => Some(format!("None of {all} commands of evenkeel fails on these cards{refused}.")),
        (_, some) => Some(format!("{} of {all} commands of evenkeel FAIL: {}{refused}.", some.len(), some.join("; "))),
    }
}

/// The least and the most accesses for a frame, with the cards that ask for them.
fn range(run: &GuestRun, frames: u32) -> Option<String> {
    let of = |card: &Card| Some(card.bursts.iter().find(|b| b.frames == frames)?.median.accesses());
    let known = || run.cards.iter().filter_map(|card| Some((of(card)?, &card.nic)));
    let (least, most) = (known().min_by(|a, b| a.0.total_cmp(&b.0))?, known().max_by(|a, b| a.0.total_cmp(&b.0))?);
    let of = |(accesses, nic): (f64, &String)| format!("{accesses:.2} ({nic})");
    let figures = if least.1 == most.1 { of(least) } else { format!("{} to {}", of(least), of(most)) };
    Some(format!("At a burst of {frames} each forwarded frame takes {figures} accesses to a device."))
}

/// A row for each card and burst.
pub(crate) fn access_rows(run: &GuestRun) -> Vec<[String; 9]> {
    let row = |card: &Card, burst: &Burst| {
        let of = |value: f64| format!("{value:.2}");
        let median = &burst.median;
        [
            card.nic.clone(),
            burst.frames.to_string(),
            of(median.accesses()),
            of(median.reads),
            of(median.writes),
            of(median.notifications),
            of(median.interrupts),
            if burst.runs.len() > 1 { format!("{:.1} %", 100.0 * burst.spread) } else { NONE.to_owned() },
            burst.lost.to_string(),
        ]
    };
    run.cards.iter().flat_map(|card| card.bursts.iter().map(move |burst| row(card, burst))).collect()
}

/// Accesses times what an exit costs elsewhere.
pub(crate) fn model_rows(run: &GuestRun, exit_ns: f64) -> Vec<[String; 3]> {
    let row = |card: &Card, burst: &Burst| {
        let ns = burst.median.accesses() * exit_ns;
        [card.nic.clone(), burst.frames.to_string(), units::nanoseconds(ns)]
    };
    run.cards.iter().flat_map(|card| card.bursts.iter().map(move |burst| row(card, burst))).collect()
}

pub(crate) fn card_cells(card: &Card) -> [String; 7] {
    [
        card.nic.clone(),
        card.driver.clone(),
        card.queues.to_string(),
        card.ring.map_or_else(|| NONE.to_owned(), |ring| ring.to_string()),
        if card.native_xdp.is_ok() { "yes".to_owned() } else { "no".to_owned() },
        format!("{:.1} s", card.ready_s),
        card.offloads.join(", "),
    ]
}

/// A row for each card and verb.
pub(crate) fn verb_rows(run: &GuestRun) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for card in &run.cards {
        for verb in &card.verbs {
            rows.push([card.nic.clone(), verb.command.clone(), verb.outcome.word().to_owned(), verb.message.clone()]);
        }
    }
    rows
}

/// The rates of others.
pub(crate) fn rate_rows(run: &GuestRun) -> Vec<[String; 6]> {
    let row = |rate: &PublishedRate| {
        let way = if rate.per_direction { "one direction" } else { "both directions" };
        let frame = format!("{} bytes", rate.frame_bytes);
        let share =
            of_bare(rate, &run.sources).map_or_else(|| NONE.to_owned(), |share| format!("{:.0} %", 100.0 * share));
        [rate.platform.clone(), frame, units::pps(rate.pps), way.to_owned(), share, rate.citation.clone()]
    };
    run.sources.iter().map(row).collect()
}

/// Words as a shell takes them.
fn pasteable(words: &[String]) -> String {
    let plain = |word: &String| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=,.:/@+".contains(c));
    let quoted = |word: &String| if plain(word) { word.clone() } else { format!("'{word}'") };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Conditions of the figures.
pub(crate) fn conditions_of(run: &GuestRun) -> conditions::Conditions {
    let exit = match &run.measured_exit_ns {
        Ok(ns) => format!(
            "{} here and back: three instructions in a guest of KVM, the median of ten batches of 1,000",
            units::nanoseconds(*ns)
        ),
        Err(why) => format!("not measured: {why}"),
    };
    let mut all = vec![
        conditions::machine(&run.machine),
        ("Of QEMU's lines", "ROOT is the guest's first file system, FOLDER one for its console and its orders; the tap devices have gone with the run: put yours in their places".to_owned()),
        ("Why not by KVM", run.emulation_reason.clone()),
        ("An exit to user space", exit),
        ("Guest", format!("Linux {}, {}", run.kernel, run.qemu)),
        ("Runs", run.runs.to_string()),
    ];
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all.extend(
        run.cards.iter().map(|card| ("QEMU", format!("{}: qemu-system-x86_64 {}", card.nic, pasteable(&card.qemu)))),
    );
    all.extend(run.cards.iter().map(|card| ("libvirt", format!("{}: {}", card.nic, card.libvirt))));
    all
}
