//! A sample of `evenkeel top` as text.

use std::fmt::Write;

use model::{
    stations::LossKind,
    top::{Coalescing, CoreRates, DropRate, InterfaceRates, QueueRates, TopSample},
    units,
};

use crate::table::Look;

const NOT_COUNTED: &str = "-";

/// The tables of one interval: interfaces, where packets were lost, queues with interrupt and CPU, cores.
pub fn top_text(sample: &TopSample, look: Look) -> String {
    let mut out = String::new();
    let parts = [sample.timestamp.clone(), sample.hostname.clone(), format!("interval {:.2} s", sample.interval_s)];
    out.push_str(&look.line_of(&parts));
    let _ = write!(out, "\n{}", interfaces(&sample.interfaces, look));
    for section in [
        drops(&sample.interfaces, look),
        fast_path(&sample.interfaces, look),
        queues(&sample.interfaces, look),
        moderation(&sample.interfaces, look),
    ] {
        if !section.is_empty() {
            let _ = write!(out, "\n{section}");
        }
    }
    let _ = write!(out, "\n{}", cores(&sample.cores, look));
    for note in &sample.notes {
        let _ = write!(out, "\n{}", look.paragraph(note));
    }
    out
}

fn interfaces(interfaces: &[InterfaceRates], look: Look) -> String {
    if interfaces.is_empty() {
        return "Nothing to show: no interface moved or lost a packet.\n".into();
    }
    let rows = interfaces.iter().map(|i| {
        vec![
            i.name.clone(),
            i.driver.clone().unwrap_or_else(|| NOT_COUNTED.into()),
            units::pps(i.rx_pps),
            units::bits_per_second(i.rx_bps),
            units::pps(i.tx_pps),
            units::bits_per_second(i.tx_bps),
            units::pps(i.drops_pps()),
        ]
    });
    let heads = ["INTERFACE", "DRIVER", ">RX", ">RX RATE", ">TX", ">TX RATE", ">LOST"];
    let table = look.table_within(&heads, rows.collect(), &["DRIVER", "TX RATE", "RX RATE"]);
    format!(
        "{table}{}",
        look.paragraph("LOST: what the NIC, the driver or the stack counted as dropped. Losses in sockets and rules: `evenkeel ledger`.")
    )
}

/// Share of arriving frames that `evenkeel route` forwards.
fn fast_path(interfaces: &[InterfaceRates], look: Look) -> String {
    let row = |i: &InterfaceRates| {
        let route = i.route.as_ref()?;
        let share = route.share().map_or_else(|| NOT_COUNTED.to_owned(), units::percent);
        let rates = [units::pps(route.forwarded_pps), units::pps(route.slow_path_pps), share];
        Some([i.name.clone(), route.mode.name().to_owned()].into_iter().chain(rates).collect())
    };
    let rows: Vec<Vec<String>> = interfaces.iter().filter_map(row).collect();
    let heads = ["INTERFACE", "FAST PATH", ">FORWARDED", ">UP TO THE KERNEL", ">SHARE"];
    if rows.is_empty() { String::new() } else { look.table(&heads, rows) }
}

fn moderation(interfaces: &[InterfaceRates], look: Look) -> String {
    let rows: Vec<_> =
        interfaces.iter().filter_map(|i| Some(vec![i.name.clone(), coalescing(i.coalescing.as_ref()?)])).collect();
    if rows.is_empty() { String::new() } else { look.table(&["INTERFACE", "INTERRUPT COALESCING"], rows) }
}

/// Interrupt coalescing in a few letters: `rx adaptive 8us/32f tx 16us`.
pub fn coalescing(c: &Coalescing) -> String {
    let side = |name: &str, adaptive: Option<bool>, usecs: Option<u32>, frames: Option<u32>| {
        let limits: Vec<String> =
            [usecs.map(|n| format!("{n}us")), frames.map(|n| format!("{n}f"))].into_iter().flatten().collect();
        let mut words = vec![name.to_owned()];
        words.extend((adaptive == Some(true)).then(|| "adaptive".to_owned()));
        words.extend((!limits.is_empty()).then(|| limits.join("/")));
        if words.len() > 1 { words.join(" ") } else { String::new() }
    };
    let rx = side("rx", c.adaptive_rx, c.rx_usecs, c.rx_frames);
    let tx = side("tx", c.adaptive_tx, c.tx_usecs, c.tx_frames);
    let both = [rx, tx].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ");
    if both.is_empty() { NOT_COUNTED.into() } else { both }
}

fn drops(interfaces: &[InterfaceRates], look: Look) -> String {
    let mut rows = Vec::new();
    for i in interfaces {
        let row = |d: &DropRate, kind: LossKind| {
            vec![i.name.clone(), units::pps(d.pps), kind.word().to_owned(), d.place.clone()]
        };
        rows.extend(i.drops.iter().map(|d| row(d, LossKind::Lost)));
        rows.extend(i.no_loss.iter().map(|d| row(d, LossKind::Harmless)));
    }
    if rows.is_empty() { String::new() } else { look.table(&["INTERFACE", ">ENDED", "KIND", "WHERE"], rows) }
}

fn queues(interfaces: &[InterfaceRates], look: Look) -> String {
    let rows: Vec<_> = interfaces.iter().flat_map(|i| i.queues.iter().map(|q| queue(&i.name, q))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["INTERFACE", ">QUEUE", ">RX", ">TX", ">LOST", ">IRQ", ">IRQ/s", ">CPU", "MAY RUN ON"];
    look.table_within(&heads, rows, &["MAY RUN ON", "IRQ/s", "IRQ", "LOST"])
}

fn queue(interface: &str, q: &QueueRates) -> Vec<String> {
    let dash = || NOT_COUNTED.to_owned();
    let rate = |pps: Option<f64>| pps.map_or_else(dash, units::pps);
    vec![
        interface.to_owned(),
        q.n.to_string(),
        rate(q.rx_pps),
        rate(q.tx_pps),
        rate(q.drops_pps),
        q.irq.map_or_else(dash, |n| n.to_string()),
        q.irq_rate.map_or_else(dash, per_second),
        q.cpu.map_or_else(dash, |n| n.to_string()),
        q.affinity.as_ref().map_or_else(dash, ToString::to_string),
    ]
}

/// BUSY to STEAL are percent of time; STACK is packets that entered the stack, SQZ packet work cut short.
fn cores(cores: &[CoreRates], look: Look) -> String {
    let rows = cores.iter().map(|c| {
        let l = &c.load;
        let percent = |p: f64| format!("{p:.0}");
        vec![
            l.cpu.to_string(),
            percent(l.busy_percent()),
            percent(l.user_percent),
            percent(l.system_percent),
            percent(l.irq_percent),
            percent(l.softirq_percent),
            percent(l.steal_percent),
            per_second(c.device_irqs_per_s),
            per_second(c.net_rx_per_s),
            per_second(c.softnet_processed_pps),
            per_second(c.softnet_dropped_pps + c.flow_limited_pps),
            per_second(c.softnet_squeezed_per_s),
        ]
    });
    let heads = [
        ">CPU", ">BUSY", ">USER", ">SYS", ">IRQ", ">SOFT", ">STEAL", ">IRQ/s", ">NETRX/s", ">STACK/s", ">LOST/s",
        ">SQZ/s",
    ];
    let first_to_go = ["SYS", "USER", "IRQ", "SQZ/s", "NETRX/s", "IRQ/s", "STEAL", "SOFT"];
    look.table_within(&heads, rows.collect(), &first_to_go)
}

/// A count per second without a unit: `12.3 k`.
fn per_second(rate: f64) -> String {
    units::count(rate.round() as u64)
}
