//! The flood's way to a gateway of packet rings. Such a gateway bears no GRO, and a veth without it has no NAPI: no frame can be put into its
//! queue by XDP. So the flood goes to a link of its own, whose other end makes socket buffers of the frames and sends them through `near`,
//! all on the flood's core. At the gateway they and the clients' packets then wait in the backlog of the receiving core.

use lab::{Lab, Namespace, VethEnd};

use super::{cores::FloodCores, kernel::load};
use crate::BenchError;

pub(super) struct Relay {
    pub(super) entry: VethEnd,
}

impl Relay {
    pub(super) fn new(lab: &Lab, net: &Namespace, near: &VethEnd, cores: &FloodCores) -> Result<Self, BenchError> {
        let (entry, exit) = lab.veth((net, &lab.interface("fx")), (net, &lab.interface("fy")), 1)?;
        net.set_feature(&exit.name, "rx-gro", true)?;
        net.thread_napi(&exit.name, &[cores.generator])?;
        net.prefer_napi(&exit.name)?;
        let rules = format!(
            "table netdev ek_relay {{\n\
             \x20 chain on {{\n\
             \x20   type filter hook ingress device \"{}\" priority filter;\n\
             \x20   fwd to \"{}\"\n\
             \x20 }}\n\
             }}\n",
            exit.name, near.name
        );
        load(net, &rules)?;
        Ok(Self { entry })
    }
}
