//! Removal of names and addresses of the machine and its users from a report.

use std::net::{IpAddr, SocketAddr};

use model::selftest::SelfTest;

/// Folders that every machine has: paths below them are kept.
const SYSTEM_FOLDERS: [&str; 12] = [
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/run/netns",
    "/run/evenkeel",
    "/var/lib/evenkeel",
];

/// Words by which a report could name the machine and its users.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Names of interfaces, each with its replacement.
    pub interfaces: Vec<(String, String)>,
    /// Names of the host and of users.
    pub names: Vec<String>,
    /// Folders that messages may name, as the end of a path with spaces cannot be told.
    pub folders: Vec<String>,
}

/// The report with other words in place of the names of `identity`, of addresses, and of paths outside of [`SYSTEM_FOLDERS`].
pub fn anonymous(mut test: SelfTest, identity: &Identity) -> SelfTest {
    let Identity { mut interfaces, names, folders } = identity.clone();
    // `eth0.7` comes before `eth0`, which is a part of it.
    interfaces.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let clean = |text: &str| {
        let text = folders.iter().fold(text.to_owned(), |text, folder| text.replace(folder, "PATH"));
        let text = interfaces.iter().fold(text, |text, (name, as_driver)| replaced(&text, name, as_driver));
        cleaned(&text, &names)
    };
    test.interface = test.interface.as_deref().map(clean);
    for row in &mut test.rows {
        row.reason = clean(&row.reason);
        row.fix = row.fix.as_deref().map(clean);
    }
    test
}

/// Places of a name in a text outside of longer words.
fn places<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let found = text.match_indices(name).filter(|_| !name.is_empty());
    let whole = move |&at: &usize| ends(text[..at].chars().next_back()) && ends(text[at + name.len()..].chars().next());
    found.map(|(at, _)| at).filter(whole)
}

fn replaced(text: &str, name: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for at in places(text, name) {
        out += &text[end..at];
        out += by;
        end = at + name.len();
    }
    out + &text[end..]
}

fn cleaned(text: &str, names: &[String]) -> String {
    let is_part = |c: char| !c.is_whitespace() && !"\"'`()[]{}<>,;|".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars().chain(std::iter::once('\n')) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        out += &of_word(&word, names);
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

/// The word, or its replacement with the same full stop or colon at the end.
fn of_word(word: &str, names: &[String]) -> String {
    let bare = word.trim_end_matches(['.', ':']);
    let end = &word[bare.len()..];
    // Addresses also stand after `user@`, before a zone and at the ends of a range.
    if bare.split(['@', '-', '=', '%', '/']).any(is_address) {
        return format!("ADDRESS{end}");
    }
    let is_of_system = |path: &str| SYSTEM_FOLDERS.iter().any(|folder| path == *folder || is_below(path, folder));
    // Paths also stand after `host:` and `key=`.
    let path = bare.find(['/', '~']).filter(|&at| at == 0 || bare[..at].ends_with([':', '='])).map(|at| &bare[at..]);
    if path.is_some_and(|path| path != "/" && !is_of_system(path)) {
        return format!("PATH{end}");
    }
    if names.iter().any(|name| places(bare, name).next().is_some()) {
        return format!("NAME{end}");
    }
    word.to_owned()
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// True for a MAC address and for an IP address, which may have a port, and a protocol before it.
fn is_address(word: &str) -> bool {
    let is_octet = |part: &str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok();
    let is_mac = word.split(':').count() == 6 && word.split(':').all(is_octet);
    // `::` alone is punctuation.
    let is_ip = |text: &str| text != "::" && (text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok());
    is_mac || is_ip(word) || word.match_indices(':').any(|(at, _)| is_ip(&word[at + 1..]))
}

#[cfg(test)]
mod tests {
    use model::selftest::{Group, Outcome, Row};

    use super::*;

    #[test]
    fn what_names_the_machine_is_not_in_it() {
        let reason = "secrethost: enp3s0: alice@10.1.2.3:22, fe80::1%enp3s0/64 and 02:00:5e:10:00:01 (/home/alice/key) on `enp3s0`; \
             secrethost.example.org, [2001:db8::7]:885, enp3s0.7@enp3s0, 198.51.100.0/24, bob@203.0.113.5, 203.0.113.7-203.0.113.9. br-acme, wg+dmz: tcp:203.0.113.7:80 http://203.0.113.8/x via=203.0.113.9 gate:/srv/customer/y \
             /opt/customer/x \"/srv/big customer/ek-1\" secrethost-2 /sys/class/net/enp3s0/queues /proc/sys/net bpf::probe";
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
        let identity = Identity {
            interfaces: [
                ("enp3s0", "virtio_net 0"),
                ("br-acme", "bridge-1"),
                ("wg+dmz", "wireguard-2"),
                ("br", "bridge-3"),
            ]
            .map(|(name, stands)| (name.to_owned(), stands.to_owned()))
            .to_vec(),
            names: ["secrethost", "alice"].map(str::to_owned).to_vec(),
            folders: vec!["/srv/big customer".to_owned()],
        };
        let text = serde_json::to_string(&anonymous(test, &identity)).unwrap();
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
            "acme",
            "dmz",
            "customer",
            "/home",
            "/root/x",
        ] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        for kept in ["virtio_net 0", "6.1", "/sys/class/net/virtio_net 0/queues", "/proc/sys/net", "bpf::probe"] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }
}
