//! `evenkeel top --settings`: rings, channels, coalescing and offloads as they are now.

use host::{Host, Root, picture::Nic};
use report::Look;
use serde::Serialize;

use super::TopArgs;
use crate::failure::{Failure, Outcome, print, print_json};

#[derive(Serialize)]
struct Settings<'a> {
    interfaces: Vec<&'a Nic>,
}

/// Prints the settings of the interfaces named, or of all.
pub(super) fn run(args: &TopArgs) -> Result<Outcome, Failure> {
    let root = args.root.as_deref().map_or_else(|| Ok(Root::live()), Root::open)?;
    let host = Host::read(&root)?;
    let named = crate::args::interfaces(&args.interfaces, args.root.is_some());
    for name in &named {
        host.named(name)?;
    }
    let wanted = |nic: &&Nic| named.is_empty() || named.contains(&nic.name);
    let interfaces: Vec<&Nic> = host.nics.iter().filter(wanted).collect();
    if args.intervals.json {
        return print_json("top.settings", Settings { interfaces }).map(|()| Outcome::Fine);
    }
    let text = interfaces.into_iter().map(of).collect::<Vec<_>>().join("\n");
    print(&text).map(|()| Outcome::Fine)
}

fn of(nic: &Nic) -> String {
    let or = |value: Option<String>| value.unwrap_or_else(|| "not told by the driver".to_owned());
    let of_most = |now: u32, most: u32| format!("{now} of {most}");
    let rings = nic.rings.map(|r| format!("rx {}, tx {}", of_most(r.rx, r.rx_max), of_most(r.tx, r.tx_max)));
    let channels = nic.channels.map(|c| {
        let all = [("combined", c.combined, c.combined_max), ("rx", c.rx, c.rx_max), ("tx", c.tx, c.tx_max)];
        let there = all.into_iter().filter(|(.., most)| *most > 0);
        there.map(|(name, now, most)| format!("{name} {}", of_most(now, most))).collect::<Vec<_>>().join(", ")
    });
    let coalescing = nic.coalescing.map(|c| {
        let switch = |name: &str, on: Option<bool>| on.map(|on| format!("{name} {}", if on { "on" } else { "off" }));
        let number = |name: &str, n: Option<u32>| n.map(|n| format!("{name} {n}"));
        let all = [
            switch("adaptive-rx", c.adaptive_rx),
            number("rx-usecs", c.rx_usecs),
            number("rx-frames", c.rx_frames),
            switch("adaptive-tx", c.adaptive_tx),
            number("tx-usecs", c.tx_usecs),
            number("tx-frames", c.tx_frames),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    let features = |on: bool| {
        let names = nic.features.iter().filter(|(_, f)| !f.fixed && f.on == on).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let threaded = nic.threaded.map(|on| if on { "in kernel threads" } else { "in softirq" }.to_owned());
    let rows = [
        ("driver", or(nic.driver.clone())),
        ("link", format!("{}, {}, MTU {}", nic.operstate, speed(nic), nic.mtu)),
        ("queues", format!("rx {}, tx {}", nic.rx_queues.len(), nic.tx_queues.len())),
        ("rings", or(rings)),
        ("channels", or(channels.filter(|text| !text.is_empty()))),
        ("coalescing", or(coalescing.filter(|text| !text.is_empty()))),
        ("NAPI", or(threaded)),
        ("offloads on", features(true)),
        ("offloads off", features(false)),
    ];
    let look = Look::of_stdout();
    let lines = rows.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| {
        // Long lists break below themselves, as a paragraph does.
        let indent = " ".repeat(16);
        let room = Look { width: look.width.saturating_sub(16).max(20), ..look };
        let text = room.paragraph(value).trim_end().replace('\n', &format!("\n{indent}"));
        format!("  {name:<14}{text}\n")
    });
    format!("{}\n{}", nic.name, lines.collect::<String>())
}

fn speed(nic: &Nic) -> String {
    nic.speed_mbps.map_or_else(|| "speed not told".to_owned(), |mbps| format!("{mbps} Mbit/s"))
}
