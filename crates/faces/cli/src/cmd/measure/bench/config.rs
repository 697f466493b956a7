//! From flags to what is asked for, and from that to how long each thing takes.

use std::{path::PathBuf, str::FromStr};

use ::bench::{
    benches,
    dut::{DutKind, RuleOrder},
    frames,
    outside::two_ports,
    run::{Boxes, GuestBoxes, Request, Saved, Settings, Test},
    search::NAMES,
};
use anyhow::anyhow;
use host::Host;
use lab::boxes::Family;
use model::{
    bench::{BenchRun, FrameSpec, Status},
    sources,
};

use super::BenchArgs;
use crate::{cmd::measure::once, failure::Failure};

/// The boxes that are built when none is named: the study's three modes.
const DEFAULT_DUTS: [DutKind; 3] = [DutKind::Router, DutKind::Stateful, DutKind::Stateless];
/// The rules of its filters.
const DEFAULT_RULES: u32 = 25;

/// A loss ratio: `0.1%`, `0.001`, `0`.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |n| (n, 0.01));
    let value: f64 = number.trim().parse().map_err(|_| format!("`{text}` is no ratio; write 0.1% or 0.001"))?;
    let value = value * scale;
    if (0.0..=0.5).contains(&value) { Ok(value) } else { Err(format!("a loss ratio is from 0 to 50 %, not {text}")) }
}

/// Default file of a run.
pub(super) fn default_file(verb: &str) -> PathBuf {
    PathBuf::from(format!("{verb}-{}.json", host::machine::now().replace([':', '-'], "")))
}

/// Checks everything that can be checked before anything is made, and begins a run: of `guests`, or of the boxes that the flags name.
pub(super) fn begin(args: &BenchArgs, host: &Host, guests: Option<GuestBoxes>) -> Result<Saved, Failure> {
    let (request, remarks) = request(args, host, guests.map(Boxes::Guests))?;
    let settings = settings(&request)?;
    Ok(Saved {
        run: BenchRun {
            timestamp: host::machine::now(),
            ended: None,
            version: env!("CARGO_PKG_VERSION").into(),
            machine: host::machine::describe(host),
            setup: benches::setup(&request, &settings)?,
            modes: Vec::new(),
            status: Status::Partial { reason: "it has not begun".into(), begun: None },
            sources: sources::firewall_rates(),
            conclusion: String::new(),
            notes: Vec::new(),
        },
        request,
        done: Vec::new(),
        begun: None,
        remarks,
    })
}

/// All that the presets and overrides come to.
pub(super) fn settings(request: &Request) -> Result<Settings, Failure> {
    Ok(Settings::of(request)?)
}

/// The request; without `made` with the boxes that the flags name.
pub(super) fn request(args: &BenchArgs, host: &Host, made: Option<Boxes>) -> Result<(Request, Vec<String>), Failure> {
    let family = if args.ipv6 { Family::V6 } else { Family::V4 };
    let tests = if args.test.is_empty() { vec![Test::Throughput, Test::Latency] } else { args.test.clone() };
    let flows = args.flows.unwrap_or(1);
    if !(1..=frames::FLOWS_MAX).contains(&flows) {
        return Err(Failure::usage(anyhow!("--flows takes 1 to {}, not {flows}", frames::FLOWS_MAX)));
    }
    let preset = args.preset.clone().unwrap_or_else(|| NAMES[0].into());
    let mut tests = tests;
    tests.sort_unstable();
    tests.dedup();
    let mut request = Request {
        boxes: made.map_or_else(|| boxes(args), Ok)?,
        frames: Vec::new(),
        tests,
        preset,
        loss_ratio: args.loss_ratio,
        trial_s: args.trial.map(|trial| trial.as_secs_f64()),
        repeats: args.repeats,
        one_way: args.one_way,
        flows,
        ipv6: args.ipv6,
        rules: args.rules.unwrap_or(DEFAULT_RULES),
        rule_order: args.rule_order.unwrap_or(RuleOrder::Study),
        bridged: args.bridged,
        cpus: rig::cores::usable(host, args.cpus.as_ref())?,
    };
    let mut remarks: Vec<String> = frames::least_note(family).into_iter().collect();
    request.frames = frames(args, &request, &mut remarks)?;
    Ok((request, remarks))
}

fn boxes(args: &BenchArgs) -> Result<Boxes, Failure> {
    match &args.ports[..] {
        [] => {
            let keys: Vec<&str> = match args.dut.is_empty() {
                true => DEFAULT_DUTS.map(DutKind::key).to_vec(),
                false => args.dut.iter().map(String::as_str).collect(),
            };
            let kinds = keys.into_iter().map(DutKind::from_str).collect::<Result<Vec<_>, _>>()?;
            Ok(Boxes::Lab(once(kinds).into_iter().map(|k| k.key().to_owned()).collect()))
        }
        names => {
            let [a, b] = two_ports(names)?;
            Ok(Boxes::Ports(a, b))
        }
    }
}

/// The frames, each of them laid out once, so that what cannot be sent is told now.
fn frames(args: &BenchArgs, request: &Request, remarks: &mut Vec<String>) -> Result<Vec<FrameSpec>, Failure> {
    let family = if args.ipv6 { Family::V6 } else { Family::V4 };
    let rehearsal = benches::rehearsal(request);
    let mut all = match &args.sizes {
        Some(text) => frames::parse(text, family)?,
        None if args.datagrams.is_none() && !args.imix && args.replay.is_none() => frames::rfc2544(family),
        None => Vec::new(),
    };
    match args.datagrams.as_deref() {
        None => {}
        Some("") => all.extend(frames::fragmented(family)),
        Some(list) => {
            for payload in list.split(',') {
                all.extend(frames::parse(&format!("udp{}", payload.trim()), family)?);
            }
        }
    }
    if args.imix {
        all.push(frames::imix(family));
    }
    if let Some(path) = &args.replay {
        let replay = frames::Replay::read(path, &rehearsal)?;
        all.push(replay.spec());
        remarks.extend(replay.notes().into_iter().map(|n| format!("{}: {n}", path.display())));
    }
    let all = once(all);
    for frame in &all {
        frames::lay_out(frame, &rehearsal)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_ratio_is_a_share_or_a_percentage() {
        for (text, value) in [("0.1%", 0.001), ("0.001", 0.001), ("0", 0.0), ("5 %", 0.05)] {
            assert!((ratio(text).unwrap() - value).abs() < 1e-12, "{text}");
        }
        for wrong in ["", "%", "-1", "60%", "one", "NaN"] {
            assert!(ratio(wrong).is_err(), "{wrong}");
        }
    }
}
