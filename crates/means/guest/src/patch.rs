//! QEMU without a guest: what its own way between two tap devices carries.

use std::{
    path::Path,
    process::{Child, Stdio},
    thread::sleep,
    time::Duration,
};

use crate::{GuestError, machine::qemu};

/// Time in which it fails, if it does.
const START_TIME: Duration = Duration::from_millis(300);

/// QEMU that carries frames from one tap device to the other. It ends when it is dropped.
#[derive(Debug)]
pub struct Patch(Child);

impl Patch {
    /// Starts it by the words `within`, in the network namespace of the tap devices. It dies with the thread that calls.
    pub fn start(taps: [&str; 2], namespace: &Path, within: &[String]) -> Result<Self, GuestError> {
        let mut command = qemu(within, Some(namespace))?;
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "none"]);
        for (at, tap) in taps.into_iter().enumerate() {
            command.args(["-netdev", &format!("tap,id=n{at},ifname={tap},script=no,downscript=no")]);
            command.args(["-netdev", &format!("hubport,id=h{at},hubid=0,netdev=n{at}")]);
        }
        let child = command.stderr(Stdio::piped()).spawn().map_err(|_| GuestError::Missing("setpriv", "util-linux"))?;
        let mut patch = Self(child);
        sleep(START_TIME);
        if matches!(patch.0.try_wait(), Ok(None)) {
            return Ok(patch);
        }
        let mut message = String::new();
        if let Some(mut errors) = patch.0.stderr.take() {
            // Without its words the error is the same.
            let _ = std::io::Read::read_to_string(&mut errors, &mut message);
        }
        Err(GuestError::Program { program: "qemu-system-x86_64", message })
    }
}

impl Drop for Patch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
