//! Load offered to a box for as long as a measurement takes.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use lab::TestBox;
use traffic::{
    Allowance, Backend, FlowSpace, GenConfig, Interface, Origin, Pacing, Plan, Ports, Prefix, Rate, StreamConfig,
};
use wire::{FrameSize, Kind};

use super::SweepError;

/// The least frame of Ethernet: 46 bytes of IP, 60 in memory, 64 on the wire.
pub(super) const FRAME: FrameSize = FrameSize::MIN;
/// Flows that follow each other.
pub(super) const FLOW_COUNT: usize = 256;
/// A sender ends by itself after this time, whatever happens: a sending run has a bound (RFC 6815).
const SEND_TIMEOUT: Duration = Duration::from_secs(300);
/// The time that the sender may take to load.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Offers `pps` packets per second (none: as many as go) to the box from `cpu` while `meanwhile` runs in the calling thread, from the
/// moment at which the sender is ready.
pub(super) fn offer<T>(
    to: &TestBox,
    cpu: u32,
    pps: Option<f64>,
    meanwhile: impl FnOnce() -> T,
) -> Result<T, SweepError> {
    let config = config(to, cpu, pps)?;
    let sender = &to.sender().namespace;
    let halt = AtomicBool::new(false);
    thread::scope(|scope| {
        let (loaded, is_loaded) = mpsc::channel();
        let halt = &halt;
        let thread = scope.spawn(move || -> Result<(), SweepError> {
            sender.run(move || {
                let plan = Plan::new(config, Interface::look(&to.sender().end.name)?)?;
                let ready = traffic::prepare(&plan)?;
                // The measurement begins now, or has given up.
                let _ = loaded.send(());
                ready.run(halt, |_| ())?;
                Ok(())
            })?
        });
        // A sender that fails hangs up, and says why when it is joined.
        let value = is_loaded.recv_timeout(LOAD_TIMEOUT).ok().map(|()| meanwhile());
        halt.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| SweepError::Panicked("generator"))??;
        value.ok_or(SweepError::Panicked("generator"))
    })
}

fn config(to: &TestBox, cpu: u32, pps: Option<f64>) -> Result<GenConfig, SweepError> {
    let target = to.target();
    let prefix = |network: lab::boxes::Network| network.to_string().parse::<Prefix>();
    let ports = |text: &str| text.parse::<Ports>();
    let space = FlowSpace {
        sources: prefix(target.sources)?,
        destinations: prefix(target.destinations)?,
        source_ports: ports("1024-65535")?,
        destination_ports: ports("9")?,
    };
    Ok(GenConfig {
        interface: to.sender().end.name.clone(),
        origin: Origin::Stream(StreamConfig {
            kind: Kind::Udp,
            space,
            flows: FLOW_COUNT,
            random_sources: false,
            sizes: vec![FRAME],
            destination: target.mac,
            source: Some(target.source_mac),
            tags: [None; 2],
        }),
        rate: pps.map_or(Rate::Max, Rate::Packets),
        duration: SEND_TIMEOUT,
        count: None,
        pacing: pps.map(|_| Pacing::Even),
        backend: Some(Backend::XdpLive),
        cpus: Some([cpu].into_iter().collect()),
        seed: 1,
        allowance: Allowance::default(),
        qdisc: false,
    })
}
