//! What the shield's program costs per frame, by BPF_PROG_TEST_RUN, as root: `shield_cost FILE [DESTINATION]`. Loads the rules of the file
//! as `shield run` does, says how long that took, and runs a SYN to port 80 of the destination through it over and over.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use bpf::filter::{Heartbeat, Shield, ShieldConfig, ShieldShared, Watch};
use rules::{
    compile::{self, Counters, Now},
    file,
};
use wire::{FlowKey, FrameSize, Kind, Mac, Template};

const REPEAT: u32 = 2_000_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: shield_cost FILE [DESTINATION]");
        return ExitCode::from(2);
    };
    let destination: IpAddr = arguments.next().map_or("198.19.0.1".into(), |a| a).parse().unwrap();
    match measure(Path::new(&path), destination) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("shield_cost: {why}");
            ExitCode::from(3)
        }
    }
}

fn measure(path: &Path, destination: IpAddr) -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let step = |what: &str, begun: &mut Instant| {
        println!("{what:<20}{:8.1} ms", begun.elapsed().as_secs_f64() * 1e3);
        *begun = Instant::now();
    };
    let mut since = begun;
    let rules = file::read(path)?.rules;
    step("read", &mut since);
    let tables = compile::tables(&rules, &mut Counters::new(), Now::read())?;
    step("compile", &mut since);
    let shared = ShieldShared::create()?;
    let watch = Watch::create(rules.protected.len().max(1))?;
    let config = ShieldConfig {
        heartbeat: Some(Heartbeat { timeout: Duration::from_secs(3600), closed: false }),
        watch: (!rules.protected.is_empty()).then(|| watch.config().clone()),
        ..Default::default()
    };
    shared.beat();
    since = Instant::now();
    let shield = Shield::load(&tables, &config, &shared)?;
    step("load", &mut since);
    let template = Template { destination: Mac([2; 6]), source: Mac([4; 6]), tags: [None; 2], kind: Kind::TcpSyn };
    let source = match destination {
        IpAddr::V4(_) => Ipv4Addr::new(198, 18, 7, 7).into(),
        IpAddr::V6(_) => "2001:2:0:1::7".parse()?,
    };
    let flow = FlowKey { source, destination, source_port: 4321, destination_port: 80 };
    let frame = template.build(&flow, template.min_size(destination.is_ipv6()).max(FrameSize::MIN), 0)?;
    let best = (0..9).map(|_| shield.time(&frame, REPEAT)).collect::<Result<Vec<_>, _>>()?;
    let (least, most) = (best.iter().min().unwrap(), best.iter().max().unwrap());
    println!("{:<20}{:8} ns at least, {} ns at most", "a frame", least.as_nanos(), most.as_nanos());
    Ok(())
}
