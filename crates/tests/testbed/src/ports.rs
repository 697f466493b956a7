//! A tester's namespace with two ports into a box that can route, as a user finds them who has cabled a box to two interfaces.

use crate::{Bed, End, Space};

/// The bed, which has no addresses.
#[derive(Debug)]
pub struct PortsBed {
    pub tester: Space,
    pub inside: Space,
    /// The tester's two interfaces.
    pub ports: [End; 2],
    /// The box's two interfaces.
    pub entries: [End; 2],
    _bed: Bed,
}

impl PortsBed {
    /// Builds it; none, and a word why, without the privilege.
    pub fn new(tag: &str) -> Option<Self> {
        let bed = Bed::new(tag, &["tester", "box"])?;
        let pair = || {
            let [port, entry] = bed.join(["tester", "box"], 1);
            entry.feature("rx-gro", true);
            (port, entry)
        };
        let ((a, entry_a), (b, entry_b)) = (pair(), pair());
        let (tester, inside) = (bed.space("tester"), bed.space("box"));
        Some(Self { tester, inside, ports: [a, b], entries: [entry_a, entry_b], _bed: bed })
    }

    /// The tester's two interfaces.
    pub fn names(&self) -> [&str; 2] {
        [self.ports[0].interface(), self.ports[1].interface()]
    }

    /// Sets the box up by the commands that a user is told, in which its interfaces are called IN and OUT.
    #[track_caller]
    pub fn send(&self, commands: &[String]) {
        if commands.iter().any(|command| command.contains(" -6 ")) {
            // A lab's interfaces have IPv6 off.
            for end in self.ports.iter().chain(&self.entries) {
                end.set(&format!("net.ipv6.conf.{}.disable_ipv6", end.interface()), "0");
            }
        }
        for command in commands {
            let command = command.replace(" IN", &format!(" {}", self.entries[0].interface()));
            let command = command.replace(" OUT", &format!(" {}", self.entries[1].interface()));
            // An address of IPv6 is to be there at once.
            let command = if command.contains("-6 addr") { command.replace("dev", "nodad dev") } else { command };
            self.inside.output(&command);
        }
    }

    /// The addresses of the tester's ports.
    pub fn addresses(&self) -> String {
        self.tester.output("ip -o addr show scope global")
    }
}
