//! Reading and setting an interface of a network namespace, from a thread that entered it.

use host::{Host, Root, netdev::Netdev};
use nix::sched::{CloneFlags, unshare};
use sys::ethtool::{Channels, Ethtool, EthtoolError};
use testbed::{in_namespace_with_sys, run};

#[test]
fn a_thread_in_a_namespace_sees_its_own() {
    in_namespace_with_sys(|| {
        run(
            "ip link add ekhost0 numrxqueues 4 numtxqueues 4 mtu 1400 type veth peer name ekhost1 numrxqueues 4 numtxqueues 4",
        );
        let root = Root::live();
        let host = Host::read(&root).unwrap();
        let names: Vec<&str> = host.nics.iter().map(|nic| nic.name.as_str()).filter(|n| n.starts_with("ek")).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(host.nics.iter().all(|nic| nic.bus.is_none()), "the machine's own interfaces are elsewhere");
        let nic = host.nic("ekhost0").unwrap();
        assert_eq!((nic.driver.as_deref(), nic.mtu, nic.rx_queues.len()), (Some("veth"), 1400, 4));
        assert!(nic.irqs.is_empty() && nic.rings.is_none());
        assert!(root.read("proc/net/dev").unwrap().contains("ekhost0"));
        assert!(!root.list("sys/class/net").unwrap().contains(&"eth0".to_owned()));
    });
}

#[test]
fn what_is_set_is_read_again() {
    in_namespace_with_sys(|| {
        run("ip link add ekhost0 numrxqueues 4 numtxqueues 4 type veth peer name ekhost1 numrxqueues 4 numtxqueues 4");
        let mut ethtool = Ethtool::open().unwrap();
        ethtool.set_channels("ekhost0", Channels { rx: 2, tx: 3, ..Channels::default() }).unwrap();
        let channels = ethtool.channels("ekhost0").unwrap().unwrap();
        assert_eq!((channels.rx, channels.tx, channels.rx_max), (2, 3, 4));
        let host = Host::read(&Root::live()).unwrap();
        let nic = host.nic("ekhost0").unwrap();
        assert_eq!((nic.rx_queues.len(), nic.tx_queues.len()), (2, 3));
        let too_many = Channels { rx: 9, tx: 3, ..Channels::default() };
        let error = ethtool.set_channels("ekhost0", too_many).unwrap_err();
        assert!(error.to_string().contains("beyond what the driver takes"), "{error}");

        let gro = |ethtool: &mut Ethtool| {
            ethtool.features("ekhost0").unwrap().unwrap().into_iter().find(|f| f.name == "rx-gro").unwrap().on
        };
        let before = gro(&mut ethtool);
        ethtool.set_feature("ekhost0", "rx-gro", !before).unwrap();
        assert_eq!(gro(&mut ethtool), !before);
        ethtool.set_feature("ekhost0", "rx-gro", before).unwrap();
        let error = ethtool.set_feature("ekhost0", "netns-local", true).or(ethtool.set_feature(
            "ekhost0",
            "tx-lockless",
            false,
        ));
        assert!(matches!(error, Err(EthtoolError::Fixed { .. } | EthtoolError::NoFeature { .. })), "{error:?}");

        let names = ethtool.stat_names("ekhost0").unwrap().unwrap();
        let mut values = Vec::new();
        assert!(ethtool.stat_values("ekhost0", &mut values).unwrap());
        assert_eq!(names.len(), values.len());
        assert!(names.iter().any(|name| name == "rx_queue_0_xdp_packets"), "{names:?}");
    });
}

#[test]
fn napi_instances_and_their_threads_are_listed() {
    in_namespace_with_sys(|| {
        if Netdev::open().unwrap().and_then(|mut netdev| netdev.napis()).is_none() {
            return eprintln!("skipped: this kernel lists no NAPI instances (Linux 6.8 does)");
        }
        run("ip link add ekhost0 numrxqueues 2 numtxqueues 2 type veth peer name ekhost1 numrxqueues 2 numtxqueues 2");
        Ethtool::open().unwrap().set_feature("ekhost0", "rx-gro", true).unwrap();
        run("ip link set ekhost0 up");
        run("ip link set ekhost1 up");
        std::fs::write("/sys/class/net/ekhost0/threaded", "1").unwrap();
        let host = Host::read(&Root::live()).unwrap();
        let nic = host.nic("ekhost0").unwrap();
        assert_eq!(nic.threaded, Some(true));
        assert_eq!(nic.napis.len(), 2, "one for each queue: {:?}", nic.napis);
        assert!(nic.napis.iter().all(|napi| napi.pid.is_some() && napi.cpus.as_ref().is_some_and(|c| !c.is_empty())));
        assert_eq!(nic.napis.iter().map(|napi| napi.rx_queue).collect::<Vec<_>>(), [Some(0), Some(1)]);
        let id = nic.napis[0].id;
        // Without the kernel's list, the names of the threads tell.
        let thread = format!("napi/ekhost0-{id}");
        assert!(Root::live().processes(|_, comm| comm == thread).len() == 1);
    });
}

/// A thread that enters a namespace without a /sys of its own, as `nsenter --net` does.
#[test]
fn a_foreign_sys_is_noticed() {
    in_namespace_with_sys(|| {
        run("ip link add ekhost0 type veth peer name ekhost1");
        assert_eq!(host::namespace::check(), Ok(()));
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert_eq!(host::namespace::check(), Err(host::namespace::OtherNamespace { name: None }));
    });
}
