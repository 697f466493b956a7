//! Connections that are older than conntrack's time: one that said something lives, by the fast path alone; one that said nothing does not.

mod beside;
mod settings;
mod totals;

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use beside::beside;
use model::route::RouteMode;
use settings::settings;
use testbed::{HostsBed, Space, wait_for};
use totals::totals;

/// conntrack's time for an established connection, and for one that waits for an answer: shorter, as by default.
const TIMES: [(&str, &str); 2] = [("tcp_timeout_established", "6"), ("tcp_timeout_unacknowledged", "2")];
/// Packets restart the timeout, soon after it began and late; all of it takes longer than twice the timeout.
const PAUSES_MS: [u64; 4] = [2000, 4500, 2000, 4500];
/// Connections that conntrack has dropped are not forwarded by the kernel.
const RULES: &str = "
table inet filter {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    ct state new tcp flags & (syn | ack) == syn accept
  }
}
table inet marks {
  chain forward {
    type filter hook forward priority filter + 10; policy accept;
    ct state established ct mark set ct mark | 0x10000000
  }
}
";

/// A connection of `a` with `b`.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    port: u16,
}

impl Pair {
    fn new(world: &HostsBed, port: u16) -> Self {
        let to = SocketAddr::new("198.18.2.2".parse().unwrap(), port);
        let listener = world.b.run(|| TcpListener::bind(to).unwrap());
        let client = world.a.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap());
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        }
        Self { client, server, port }
    }

    /// A byte there and one back.
    fn talk(&mut self) {
        let mut byte = [0];
        self.client.write_all(b"?").unwrap();
        self.server.read_exact(&mut byte).unwrap();
        self.server.write_all(b"!").unwrap();
        self.client.read_exact(&mut byte).unwrap();
    }

    /// Its number in conntrack; none: it is not there.
    fn id(&self, router: &Space) -> Option<u32> {
        let all = router.output(&format!("conntrack -L -o id -p tcp --orig-port-dst {}", self.port));
        all.split_whitespace().find_map(|word| word.strip_prefix("id=")?.parse().ok())
    }
}

#[test]
fn a_connection_outlives_conntracks_time_if_it_says_something() {
    let Some(world) = HostsBed::with_ipv6("rtidl") else { return };
    let router = world.ra.space();
    router.nft(RULES);
    // What goes on in its middle is no new connection.
    for (name, value) in [("tcp_be_liberal", "1"), ("tcp_loose", "0")].into_iter().chain(TIMES) {
        router.set(&format!("net.netfilter.nf_conntrack_{name}"), value);
    }
    beside(router, settings(&world.ports()), None, RouteMode::Stateful, |control| {
        let (mut talks, mut silent) = (Pair::new(&world, 7001), Pair::new(&world, 7002));
        talks.talk();
        silent.talk();
        let [id, other] = [&talks, &silent].map(|pair| pair.id(router).expect("conntrack has it"));
        assert_ne!(id, other);
        for pause in PAUSES_MS {
            thread::sleep(Duration::from_millis(pause));
            let before = control.ask(totals);
            talks.talk();
            let now = control.ask(totals);
            let by = [now.forwarded - before.forwarded, now.no_connection - before.no_connection];
            assert!(by[0] >= 2 && by[1] == 0, "not by the fast path: {by:?}");
        }
        assert_eq!(talks.id(router), Some(id), "it is the connection of the beginning");
        assert_eq!(silent.id(router), None, "conntrack still has what said nothing");
        // What it says now goes up, where no rule lets it on.
        let before = control.ask(totals);
        silent.client.write_all(b"?").unwrap();
        let up = wait_for("it goes up", || {
            let now = control.ask(totals);
            (now.no_connection > before.no_connection).then_some(now)
        });
        assert_eq!(up.forwarded, before.forwarded);
        let nothing = silent.server.read(&mut [0]).map_err(|e| e.kind());
        assert!(matches!(nothing, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{nothing:?}");
        assert_eq!(silent.id(router), None);
        talks.talk();
    });
}
