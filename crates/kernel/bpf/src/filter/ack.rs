//! The program at tc that makes connections of right SYN cookies (`src/filter/shield_ack.bpf.c`).

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    sync::OnceLock,
};

use libbpf_rs::{MapHandle, libbpf_sys};

use crate::{
    counters::per_cpu,
    link::{XdpError, attach_at_tcx},
    pin,
    program::{Program, ProgramError, kernel_has},
    skel::shield_ack::{ShieldAckSkelBuilder, types::shield_ack_count},
};

const PROGRAM: Program = Program("shield_ack");
/// The function by which the kernel makes connections.
const ASSIGN: &str = "bpf_sk_assign_tcp_reqsk";

per_cpu! {
    /// The ends of ACKs whose cookie XDP had found right.
    pub struct AckCounts of shield_ack_count {
        /// Given to a listener, which makes a connection of it unless its queue is full.
        given,
        /// Without a listener, or with a connection already.
        unlistened,
        /// Refused by the kernel: net.ipv4.tcp_syncookies is 0, or an option was switched off since.
        refused,
    }
}

/// The program, loaded and nowhere yet.
#[derive(Debug)]
pub struct AckProgram {
    program: OwnedFd,
    counts: MapHandle,
}

impl AckProgram {
    /// Loads it.
    ///
    /// # Errors
    /// As for [`ShieldAck::needs`]; [`crate::ProgramError::Load`].
    pub fn load() -> Result<Self, XdpError> {
        ShieldAck::needs()?;
        let mut object = MaybeUninit::uninit();
        let skel = PROGRAM.load(PROGRAM.open::<ShieldAckSkelBuilder>(&mut object)?)?;
        let program = PROGRAM.descriptor(skel.progs.shield_ack.as_fd())?;
        Ok(Self { program, counts: PROGRAM.map(&skel.maps.ack_counts)? })
    }
}

/// The program at the ingress of an interface. Dropping it takes it off, unless it is pinned.
#[derive(Debug)]
pub struct ShieldAck {
    link: OwnedFd,
    counts: MapHandle,
}

impl ShieldAck {
    /// True if the running kernel can do it at all.
    ///
    /// # Errors
    /// [`crate::ProgramError::Kernel`] below 6.9, which has no bpf_sk_assign_tcp_reqsk.
    pub fn needs() -> Result<(), XdpError> {
        // All type information of the kernel is read for this, and it is asked again and again.
        static HAS: OnceLock<bool> = OnceLock::new();
        if *HAS.get_or_init(|| kernel_has(ASSIGN)) {
            return Ok(());
        }
        Err(ProgramError::Kernel {
            feature: "a rule that challenges for this machine itself (SYN cookies)",
            function: ASSIGN,
            since: "6.9",
            instead: "use `limit` rules with `per-source` beside net.ipv4.tcp_syncookies=2, or challenge on a machine in front of this one \
                      (`--between`, which works from 6.1 on)",
        }.into())
    }

    /// Puts it behind all other programs at tc ingress (tcx) of `interface`.
    ///
    /// # Errors
    /// [`XdpError::System`] for what the kernel refuses.
    pub fn attach(AckProgram { program, counts }: AckProgram, interface: &str) -> Result<Self, XdpError> {
        let operation = "attach the program that ends handshakes at tc ingress";
        let link = attach_at_tcx(program.as_fd(), interface, (libbpf_sys::BPF_TCX_INGRESS, 0), operation)?;
        Ok(Self { link, counts })
    }

    /// Puts it in the place of the one that another process pinned as `path`. Its counts begin anew.
    ///
    /// # Errors
    /// [`XdpError::Pin`] if there is none.
    pub fn take_over(AckProgram { program, counts }: AckProgram, path: &Path) -> Result<Self, XdpError> {
        let link = pin::open(path)?;
        // SAFETY: both descriptors are borrowed for the call; no options are given.
        let code = unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) };
        if code < 0 {
            return Err(XdpError::pin("replace the program of", path, io::Error::from_raw_os_error(-code)));
        }
        Ok(Self { link, counts })
    }

    /// Keeps it on the interface under the name `path` of a BPF file system, beyond the end of this process.
    pub fn pin(&self, path: &Path) -> Result<(), XdpError> {
        pin::keep(self.link.as_fd(), path)
    }

    /// Counts of the program, over all CPUs.
    pub fn counts(&self) -> Result<AckCounts, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map ack_counts")?)
    }
}
