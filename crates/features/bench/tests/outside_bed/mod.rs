//! A tester's namespace with two ports into a box that can route, as a user finds them who has cabled a box to two interfaces.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::process::Command;

use bench::outside::Addressing;
use lab::{Lab, LabError, Namespace, VethEnd, boxes::Family};

/// The bed. Everything goes away when it is dropped.
pub struct Bed {
    _lab: Lab,
    /// The tester's side.
    pub tester: Namespace,
    /// The box.
    pub inside: Namespace,
    /// The tester's two interfaces.
    pub ports: [VethEnd; 2],
    /// The box's two interfaces.
    pub entries: [VethEnd; 2],
}

/// A bed without addresses; none, and a word why, without the privilege. Beds whose tags begin alike cannot stand at the same time.
pub fn bed(tag: &str) -> Option<Bed> {
    match build(tag) {
        Ok(bed) => Some(bed),
        Err(e) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn build(tag: &str) -> Result<Bed, LabError> {
    let lab = Lab::new(tag)?;
    let (tester, inside) = (lab.namespace("tester")?, lab.namespace("box")?);
    let pair = |port: &str, entry: &str| {
        let (port, entry) = (format!("{port}{}", &tag[..1]), format!("{entry}{}", &tag[..1]));
        let pair = lab.veth((&tester, &lab.interface(&port)), (&inside, &lab.interface(&entry)), 1)?;
        inside.set_feature(&pair.1.name, "rx-gro", true)?;
        Ok::<_, LabError>(pair)
    };
    let ((a, ia), (b, ib)) = (pair("oa", "ia")?, pair("ob", "ib")?);
    Ok(Bed { _lab: lab, tester, inside, ports: [a, b], entries: [ia, ib] })
}

impl Bed {
    /// The tester's two interfaces.
    pub fn names(&self) -> [&str; 2] {
        [&self.ports[0].name, &self.ports[1].name]
    }

    /// Sets the box up as a user is told to.
    pub fn tell(&self, addressing: &Addressing) {
        if addressing.family == Family::V6 {
            self.allow_ipv6();
        }
        for command in addressing.set_up() {
            let command = command.replace(" IN", &format!(" {}", self.entries[0].name));
            let command = command.replace(" OUT", &format!(" {}", self.entries[1].name));
            // An address of IPv6 is to be there at once.
            let command = if command.contains("-6 addr") { command.replace("dev", "nodad dev") } else { command };
            output(&self.inside, &command);
        }
    }

    /// A lab's interfaces have IPv6 off.
    fn allow_ipv6(&self) {
        for (namespace, ends) in [(&self.tester, &self.ports), (&self.inside, &self.entries)] {
            for end in ends {
                namespace.set_sysctl(&format!("net.ipv6.conf.{}.disable_ipv6", end.name), "0").expect("IPv6");
            }
        }
    }

    /// The addresses of the tester's ports.
    pub fn addresses(&self) -> String {
        output(&self.tester, "ip -o addr show scope global")
    }
}

/// What a command prints that is run inside of `namespace`.
pub fn output(namespace: &Namespace, command: &str) -> String {
    let mut words = command.split(' ');
    let program = words.next().expect("a program").to_owned();
    let arguments: Vec<&str> = words.collect();
    let out = namespace.run(|| Command::new(program).args(arguments).output()).expect("a namespace").expect("to run");
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
