//! Real packets through a router in a namespace: what is forwarded, what goes up, and how it looks when it leaves.

mod world;

use std::{net::UdpSocket, time::Duration};

use model::route::{RouteMode, RouteTotals};
use route::Router;
use testbed::wait;
use world::{World, settings};

fn sum(router: &Router, of: impl Fn(&RouteTotals) -> u64) -> u64 {
    router.counts().unwrap().iter().map(|(_, counts)| of(counts)).sum()
}

#[test]
fn packets_of_both_versions_are_forwarded_as_the_kernel_does() {
    let Some(world) = World::new("rtfwd") else { return };
    let World { bed: _bed, a, ra, rb, b } = &world;
    let names = [ra.interface(), rb.interface()];
    let server = b.space().run(|| {
        let socket = UdpSocket::bind("[::]:4000").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket
    });
    ra.space().run(|| {
        let mut router = Router::start(settings(&names)).unwrap();
        assert_eq!(router.obstacles(), []);
        let ping = |more: &str| {
            a.space().output(&format!("ping -c 3 -i 0.05 -W 1 {more}"));
        };
        for far in ["198.18.2.2", "2001:2:0:2::2"] {
            let mut command = a.space().command("ping");
            command.args(["-c", "1", "-W", "1", far]);
            wait("the far end answers", || command.output().unwrap().status.success());
        }
        for mode in [RouteMode::Shadow, RouteMode::Routed] {
            router.set_mode(mode).unwrap();
            ping("198.18.2.2");
            ping("2001:2:0:2::2");
            ping("-s 4000 198.18.2.2");
            let text = a.space().run(|| {
                let client = UdpSocket::bind("198.18.1.2:0").unwrap();
                client.send_to(b"hello", "198.18.2.2:4000").unwrap();
                let mut buffer = [0; 64];
                let (read, _) = server.recv_from(&mut buffer).unwrap();
                buffer[..read].to_vec()
            });
            assert_eq!(text, b"hello");
            std::thread::sleep(Duration::from_millis(400));
            let result = router.compare().unwrap();
            assert_eq!((result.wrong(), result.not_sent), (0, 0), "{result:?}");
            assert!(result.same >= 12, "{result:?}");
            assert_eq!(router.turn(Duration::from_millis(10)).unwrap(), []);
            if mode == RouteMode::Shadow {
                assert_eq!(sum(&router, |counts| counts.forwarded), 0, "the kernel did");
                assert!(sum(&router, |counts| counts.shadowed) >= 12);
            }
        }
        wait("frames are forwarded", || sum(&router, |counts| counts.forwarded) >= 6);
    });
}
