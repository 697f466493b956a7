//! Advice with what the trace knows filled in: `{target}`, `{source}`, `{destination}`, `{protocol}`, `{iface}`, `{process}`.

use model::stations::Cause;

/// Fills in what the largest cause knows; the rest keeps general words.
pub(crate) fn filled(advice: &str, causes: &[Cause]) -> String {
    if !advice.contains('{') {
        return advice.to_owned();
    }
    let cause = causes.first();
    let flow = cause.and_then(|c| c.example.as_ref());
    let of = |known: Option<String>, general: &str| known.unwrap_or_else(|| general.to_owned());
    let alone = |name: &Option<String>| name.as_ref().map(|n| n.split(" queue ").next().unwrap_or(n).to_owned());
    [
        ("{target}", of(flow.map(model::stations::Flow::target), "that port")),
        ("{source}", of(flow.map(|f| f.source.to_string()), "the sender")),
        ("{destination}", of(flow.map(|f| f.destination.to_string()), "the destination")),
        ("{protocol}", of(flow.map(|f| f.protocol.clone()), "an IP protocol")),
        ("{iface}", of(cause.and_then(|c| alone(&c.interface)), "IFACE")),
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
        let text = "{process} on {target} from {source} by {iface}";
        assert_eq!(filled(text, &[cause]), "The program on UDP 192.0.2.2:53 from 192.0.2.1 by eth0");
        assert_eq!(filled(text, &[]), "The program on that port from the sender by IFACE");
        let known = Cause { reason: "VXLAN_VNI_NOT_FOUND".into(), ..Cause::default() };
        assert!(of_reason(&[known]).is_some_and(|a| a.contains("ip -d link show type vxlan")));
        assert_eq!(of_reason(&[Cause { reason: "NOT_SPECIFIED".into(), ..Cause::default() }]), None);
        assert!(crate::places::PLACES.iter().all(|p| !filled(p.advice, &[]).contains(['{', '}'])));
    }
}
