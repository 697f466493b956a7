//! Users of a chain that join and leave at the same moment.

use std::{any::Any, process::Command, sync::Barrier, thread, time::Duration};

use bpf::{
    TapPlace, XdpError, XdpMode,
    chain::{self, Place},
    filter::{ShieldLink, ShieldShared},
    link::attached,
};
use testbed::{filter::in_pair, wait};

use crate::{Filter, PASSED, program, read, send, tap, turns};

/// Begins in threads of this namespace, all at the same moment.
fn at_once<T: Send>(starts: &[&(dyn Fn() -> T + Sync)]) -> Vec<T> {
    let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let (namespace, together) = (&namespace, &Barrier::new(starts.len()));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for &start in starts {
            threads.push(scope.spawn(move || {
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                together.wait();
                start()
            }));
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn those_who_come_at_the_same_moment_share_the_interface() {
    in_pair(|| {
        let joins = |place| {
            move || {
                chain::retry_if_raced(XdpError::is_raced, || tap(place)).map(|tap| Box::new(tap) as Box<dyn Any + Send>)
            }
        };
        let filter = || {
            let start = || {
                let (mut link, shared) = (ShieldLink::take("ekB", XdpMode::Native)?, ShieldShared::create().unwrap());
                link.put(&program(&link, &shared))?;
                Ok::<_, XdpError>(Box::new((link, shared)) as Box<dyn Any + Send>)
            };
            chain::retry_if_raced(XdpError::is_raced, start)
        };
        let (before, behind) = (joins(TapPlace::Before), joins(TapPlace::Behind));
        for round in 0..turns(10) {
            let held = at_once(&[&filter, &before, &behind]);
            for it in &held {
                assert!(it.is_ok(), "round {round}: {:?}", it.as_ref().err());
            }
            let users = chain::users(attached("ekB").unwrap().unwrap().id);
            let places: Vec<Place> = users.iter().map(|(place, _)| *place).collect();
            assert_eq!(places, [Place::Before, Place::Filter, Place::Behind, Place::Crossing], "round {round}");
            drop(held);
            wait("the chain is gone", || attached("ekB").unwrap().is_none());
        }
    });
}

#[test]
fn of_two_who_want_the_same_place_one_gets_it_and_the_other_is_refused() {
    in_pair(|| {
        let start = || chain::retry_if_raced(XdpError::is_raced, || tap(TapPlace::Before));
        for round in 0..turns(10) {
            // Beside a chain that runs already, and without one.
            let filter = (round % 2 == 0).then(Filter::new);
            let (mut held, refused): (Vec<_>, Vec<_>) = at_once(&[&start, &start]).into_iter().partition(Result::is_ok);
            assert_eq!((held.len(), refused.len()), (1, 1), "round {round}");
            match refused.into_iter().next().unwrap() {
                Err(XdpError::Taken { place, .. }) => assert!(place.contains("capture"), "{place}"),
                other => panic!("round {round}: {:?}", other.err()),
            }
            let (tap, mut readers) = held.remove(0).unwrap();
            send(PASSED, 0..5);
            let mut seen = Vec::new();
            wait("the one that has it sees the frames", || {
                seen.extend(read(&mut readers));
                seen.len() == 5
            });
            if filter.is_some() {
                assert!(seen.iter().all(|(_, verdict)| verdict.is_some_and(|verdict| verdict.counter() == Some(1))));
            }
            drop((tap, filter));
            wait("the chain is gone", || attached("ekB").unwrap().is_none());
        }
    });
}

#[test]
fn who_comes_while_the_owner_leaves_gets_the_place() {
    in_pair(|| {
        let _filter = Filter::new();
        for turn in 0..turns(5) {
            let first = std::sync::Mutex::new(Some(tap(TapPlace::Before).unwrap()));
            let leave = || {
                thread::sleep(Duration::from_millis(100));
                first.lock().unwrap().take();
                None
            };
            let got = at_once::<Option<XdpError>>(&[&|| tap(TapPlace::Before).err(), &leave]);
            assert!(got[0].is_none(), "turn {turn}: {:?}", got[0]);
        }
    });
}

#[test]
fn a_lock_that_another_user_holds_keeps_nobody_from_the_chain() {
    in_pair(|| {
        const NAMESPACE: &str = "/proc/thread-self/ns/net";
        let mut holder = Command::new("setpriv");
        holder.args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock", "--no-fork", "/proc/self/ns/net"]);
        let mut holder = holder.args(["sleep", "60"]).spawn().unwrap();
        let is_held = || {
            let file = std::fs::File::open(NAMESPACE).unwrap();
            nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).is_err()
        };
        wait("the lock is held", is_held);
        let filter = Filter::new();
        let (tap, _readers) = tap(TapPlace::Behind).unwrap();
        assert!(is_held(), "they came while it was held");
        drop((tap, filter));
        assert!(is_held(), "they left while it was held");
        holder.kill().unwrap();
        holder.wait().unwrap();
    });
}
