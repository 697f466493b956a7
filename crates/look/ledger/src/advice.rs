//! Advice with what the trace knows filled in: `{target}`, `{targets}`, `{source}`, `{destination}`, `{protocol}`, `{iface}`, `{process}`.

use model::{
    stations::{Cause, Details, Flow, Share},
    units::count,
};

/// Targets that are named; `--details` lists more.
const TARGETS_MAX: usize = 3;
/// Without details one packet's port is known, and others may have lost as many.
const ALL: &str = "all ports: `evenkeel ledger --details`";

/// Facts about the owner of packets that ended at a place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known<'a> {
    /// The causes, the largest first.
    pub(crate) causes: &'a [Cause],
    /// Ports and addresses, if they were asked for.
    pub(crate) details: Option<&'a Details>,
    /// The kernel's drop reasons were traced.
    pub(crate) traced: bool,
    /// All packets that ended there, of which details may know some alone: a filter, or a sampling trace, leaves others out. 0: not known.
    pub(crate) packets: u64,
}

/// Fills in what the largest cause knows; the rest keeps general words, and a sentence says so.
pub(crate) fn filled(advice: &str, known: Known<'_>) -> String {
    if !advice.contains('{') {
        return advice.to_owned();
    }
    let cause = known.causes.first();
    let flow = cause.and_then(|c| c.example.as_ref());
    let socket = known.causes.iter().find_map(|c| socket(&c.reason));
    let mut open = false;
    let mut of = |name: &str, known: Option<String>, general: &str| {
        open |= known.is_none() && advice.contains(name);
        known.unwrap_or_else(|| general.to_owned())
    };
    let asker = flow.map_or_else(String::new, |f| format!(" (last asked by {})", f.source));
    let listed = known.details.filter(|d| !d.targets.is_empty()).map(|d| named(&d.targets, known.packets) + &asker);
    let all = if known.details.is_none() { format!("; {ALL}") } else { String::new() };
    let last = || flow.map(|f| format!("{} (the last port seen, from {}{all})", f.target(), f.source));
    let words = [
        ("{targets}", of("{targets}", listed.or_else(last), "the port asked for")),
        ("{target}", of("{target}", flow.map(Flow::target).or(socket), "the port")),
        ("{source}", of("{source}", flow.map(|f| f.source.to_string()), "a sender")),
        ("{destination}", of("{destination}", flow.map(|f| f.destination.to_string()), "the destination")),
    ];
    let text = words.iter().fold(general(advice, cause), |text, (name, value)| text.replace(name, value));
    match (open, known.traced) {
        (false, _) => text,
        (true, true) => format!("{text} Their addresses are not known: the trace looked at none of these packets."),
        (true, false) => format!("{text} Their addresses are not known without the trace."),
    }
}

/// The address of a socket that counts its own losses: `TCP 192.0.2.1:80` of `TCP 192.0.2.1:80, 2 wait, at most 1 may`; none for a
/// kernel's reason, which is one word.
fn socket(reason: &str) -> Option<String> {
    reason.contains(' ').then(|| reason.split(", ").next().unwrap_or(reason).to_owned())
}

/// Targets by their packets: `3 ports: UDP 192.0.2.1:514 (300), …`.
fn named(targets: &[Share], all: u64) -> String {
    let one = |s: &Share| format!("{} ({})", s.what, count(s.packets));
    match targets {
        [only] if only.packets < all => {
            format!("{} ({} of these {} packets)", only.what, count(only.packets), count(all))
        }
        [only] => only.what.clone(),
        _ => {
            let names = targets.iter().take(TARGETS_MAX).map(one).collect::<Vec<_>>().join(", ");
            let more = if targets.len() > TARGETS_MAX { " and others" } else { "" };
            format!("several ports: {names}{more}")
        }
    }
}

/// Advice without the details of a cause, for advice that reads well without them.
fn general(advice: &str, cause: Option<&Cause>) -> String {
    let flow = cause.and_then(|c| c.example.as_ref());
    let of = |known: Option<String>, general: &str| known.unwrap_or_else(|| general.to_owned());
    let alone = |name: &Option<String>| name.as_ref().map(|n| n.split(" queue ").next().unwrap_or(n).to_owned());
    [
        ("{protocol}", of(flow.map(|f| f.protocol.clone()), "an IP protocol")),
        ("{iface}", of(cause.and_then(|c| alone(&c.interface)), "INTERFACE")),
        ("{process}", of(cause.and_then(|c| c.process.clone()), "The program")),
    ]
    .iter()
    .fold(advice.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Advice for drops that have no place of their own: what the kernel's reason means; none for reasons that are not known.
pub(crate) fn of_reason(causes: &[Cause]) -> Option<String> {
    let reason = Some(&causes.first()?.reason).filter(|r| *r != "NOT_SPECIFIED")?;
    let known = bpf::drop_reasons::explain(reason)?;
    let remedy = if known.remedy.is_empty() { String::new() } else { format!(" To do: {}.", known.remedy) };
    Some(format!("{reason} means: {}.{remedy}", known.meaning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::stations::Flow;

    #[test]
    fn what_is_known_is_filled_in() {
        let flow = Flow {
            protocol: "UDP".into(),
            source: [192, 0, 2, 1].into(),
            source_port: Some(5000),
            destination: [192, 0, 2, 2].into(),
            destination_port: Some(53),
        };
        let cause = Cause { example: Some(flow), interface: Some("eth0 queue 3".into()), ..Cause::default() };
        let text = "{process} on {target} from {source} by {iface}.";
        let of = |causes: &[Cause], traced| filled(text, Known { causes, traced, ..Known::default() });
        assert_eq!(of(std::slice::from_ref(&cause), true), "The program on UDP 192.0.2.2:53 from 192.0.2.1 by eth0.");
        let excuse = "Their addresses are not known without the trace.";
        assert_eq!(of(&[], false), format!("The program on the port from a sender by INTERFACE. {excuse}"));
        assert!(!of(&[], true).contains("without the trace"), "the trace ran");
        // Of a socket that counts by itself the address is known without a packet.
        let socket =
            Cause { reason: "UDP 192.0.2.2:514".into(), process: Some("syslogd[7]".into()), ..Cause::default() };
        let known = Known { causes: &[socket], ..Known::default() };
        assert_eq!(filled("{process} reads {target}.", known), "syslogd[7] reads UDP 192.0.2.2:514.");
        let reason = Cause { reason: "SOCKET_RCVBUFF".into(), process: Some("syslogd[7]".into()), ..Cause::default() };
        let known = Known { causes: &[reason], traced: true, ..Known::default() };
        assert!(filled("{process} reads {target}.", known).starts_with("syslogd[7] reads the port."), "no address");
        // Several ports are not told as one.
        let share = |what: &str, packets| Share { what: what.into(), packets };
        let details = Details {
            targets: vec![share("UDP 192.0.2.2:53", 20), share("UDP 192.0.2.2:514", 10)],
            ..Details::default()
        };
        let known = Known { causes: &[cause], details: Some(&details), traced: true, packets: 30 };
        assert_eq!(
            filled("on {targets}", known),
            "on several ports: UDP 192.0.2.2:53 (20), UDP 192.0.2.2:514 (10) (last asked by 192.0.2.1)"
        );
        assert_eq!(
            filled("on {targets}", Known { details: None, ..known }),
            "on UDP 192.0.2.2:53 (the last port seen, from 192.0.2.1; all ports: `evenkeel ledger --details`)"
        );
        // Others may have ended there, which a filter left out.
        let details = Details { targets: vec![share("UDP 192.0.2.2:53", 20)], ..Details::default() };
        assert_eq!(
            filled("on {targets}", Known { details: Some(&details), ..known }),
            "on UDP 192.0.2.2:53 (20 of these 30 packets) (last asked by 192.0.2.1)"
        );
        assert_eq!(
            filled("on {targets}", Known { details: Some(&Details::default()), ..known }),
            "on UDP 192.0.2.2:53 (the last port seen, from 192.0.2.1)"
        );
        let known = Cause { reason: "VXLAN_VNI_NOT_FOUND".into(), ..Cause::default() };
        assert!(of_reason(&[known]).is_some_and(|a| a.contains("ip -d link show type vxlan")));
        assert_eq!(of_reason(&[Cause { reason: "NOT_SPECIFIED".into(), ..Cause::default() }]), None);
        assert!(crate::places::PLACES.iter().all(|p| !filled(p.advice, Known::default()).contains(['{', '}'])));
    }
}
