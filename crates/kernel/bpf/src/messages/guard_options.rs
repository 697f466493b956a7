//! Guard over socket options of packet sockets that belong to programs of other users.

use std::mem::MaybeUninit;

use libbpf_rs::Link;

use crate::{
    program::{Program, ProgramError},
    skel::guard_options::GuardOptionsSkelBuilder,
};

const PROGRAM: Program = Program("guard_options");

/// Keeps everybody but root from setting options of AF_PACKET (SOL_PACKET) on the sockets of a network namespace, until it is dropped.
#[derive(Debug)]
pub struct LinkOptionsGuard {
    _link: Link,
}

impl LinkOptionsGuard {
    /// `namespace` is the number of that namespace (SO_NETNS_COOKIE).
    ///
    /// # Errors
    /// CAP_BPF or CAP_PERFMON lacks; the kernel loads no program of its kind (fmod_ret), as under lockdown, or was built without
    /// CONFIG_SECURITY_NETWORK.
    pub fn attach(namespace: u64) -> Result<Self, ProgramError> {
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<GuardOptionsSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.namespace_cookie = namespace;
        }
        let skel = PROGRAM.load(open)?;
        let link = skel.progs.guard_options.attach_trace().map_err(|e| PROGRAM.refused(e))?;
        Ok(Self { _link: link })
    }
}
