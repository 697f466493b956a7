//! Removal of names and addresses of the machine and its users from a report.

use model::selftest::SelfTest;

/// The report with other words in place of `names` (of the host and its users), interfaces, addresses and paths of homes.
pub fn anonymous(mut test: SelfTest, interfaces: &[(String, String)], names: &[String]) -> SelfTest {
    let clean = |text: &str| cleaned(text, interfaces, names);
    test.interface = test.interface.as_deref().map(clean);
    for row in &mut test.rows {
        row.reason = clean(&row.reason);
        row.fix = row.fix.as_deref().map(clean);
    }
    test
}

fn cleaned(text: &str, interfaces: &[(String, String)], names: &[String]) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@' | '~');
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars().chain(std::iter::once('\n')) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        out += &of_word(&word, interfaces, names);
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

/// The word, or its replacement with the same full stop or colon at the end.
fn of_word(word: &str, interfaces: &[(String, String)], names: &[String]) -> String {
    let bare = word.trim_end_matches(['.', ':']);
    let end = &word[bare.len()..];
    // `eth0.7` is a VLAN of eth0, `host.example` the host in its domain.
    let holds =
        |name: &String| !name.is_empty() && (bare == name || bare.split(['/', '@', ':', '.']).any(|part| part == name));
    if let Some((_, as_driver)) = interfaces.iter().find(|(name, _)| holds(name)) {
        return format!("{as_driver}{end}");
    }
    // Addresses also stand after `user@` and at the ends of a range.
    if bare.split(['@', '-']).any(is_address) {
        return format!("ADDRESS{end}");
    }
    if bare.starts_with("/home/") || bare.starts_with("/root/") || bare.starts_with('~') {
        return format!("PATH{end}");
    }
    if names.iter().any(holds) {
        return format!("NAME{end}");
    }
    word.to_owned()
}

/// True for a MAC address and for an IP address, which may have a prefix length or a port.
fn is_address(word: &str) -> bool {
    let address = word.split_once('/').map_or(word, |(address, _)| address);
    let is_ip = address.parse::<std::net::IpAddr>().is_ok() || address.parse::<std::net::SocketAddr>().is_ok();
    let is_octet = |part: &str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok();
    let is_mac = word.split(':').count() == 6 && word.split(':').all(is_octet);
    // `::` alone is punctuation.
    (is_ip && address != "::") || is_mac
}

#[cfg(test)]
mod tests {
    use model::selftest::{Group, Outcome, Row};

    use super::*;

    #[test]
    fn what_names_the_machine_is_not_in_it() {
        let reason = "secrethost: enp3s0: alice@10.1.2.3:22, fe80::1%enp3s0/64 and 02:00:5e:10:00:01 (/home/alice/key) on `enp3s0`; \
             secrethost.example.org, [2001:db8::7]:885, enp3s0.7@enp3s0, 198.51.100.0/24, bob@203.0.113.5, 203.0.113.7-203.0.113.9.";
        let row = Row {
            group: Group::Needs,
            name: "ssh".into(),
            verbs: vec!["doctor".into()],
            outcome: Outcome::Fails,
            reason: reason.into(),
            fix: Some("ip link set enp3s0 up; see 192.0.2.7 and /root/x".into()),
            duration_s: 0.0,
        };
        let test = SelfTest {
            timestamp: String::new(),
            version: "0".into(),
            kernel: "6.1".into(),
            architecture: "x86_64".into(),
            distribution: None,
            cpus: 2,
            is_root: true,
            user_namespace: false,
            interface: Some("enp3s0".into()),
            duration_s: 1.0,
            rows: vec![row],
        };
        let interfaces = [("enp3s0".to_owned(), "virtio_net 0".to_owned())];
        let names = ["secrethost".to_owned(), "alice".to_owned()];
        let text = serde_json::to_string(&anonymous(test, &interfaces, &names)).unwrap();
        for secret in [
            "secrethost",
            "example.org",
            "alice",
            "enp3s0",
            "10.1.2.3",
            "fe80",
            "2001:db8",
            "198.51",
            "203.0",
            "02:00",
            "192.0.2.7",
            "/home",
            "/root/x",
        ] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("virtio_net 0") && text.contains("6.1"), "{text}");
    }
}
