//! Errors of a guest.

use std::{io, path::PathBuf};

/// A guest that could not be had, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("{0} is missing, which a guest needs: apt install {1}")]
    Missing(&'static str, &'static str),
    #[error(
        "there is no kernel for a guest at {0}: name one with --guest-kernel, such as that of a Debian package (apt-cache depends linux-image-amd64 names it; apt-get download NAME; dpkg -x NAME_VERSION_amd64.deb FOLDER; --guest-kernel FOLDER/boot/vmlinuz-VERSION)"
    )]
    NoKernel(PathBuf),
    #[error(
        "{0} is no whole kernel image for this machine: name a bzImage, such as boot/vmlinuz-VERSION of a Debian package"
    )]
    NotKernel(PathBuf),
    #[error(
        "the modules of {kernel} are not at {folder}: the image is named vmlinuz-VERSION, and lies in a folder boot beside lib/modules/VERSION"
    )]
    NoModules { kernel: PathBuf, folder: PathBuf },
    #[error("the guest's kernel {kernel} has no module `{module}`{why}")]
    NoModule { kernel: String, module: String, why: &'static str },
    #[error("cannot {what} {path}: {source}{}", hint(source))]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot run {program}: {message}")]
    Program { program: &'static str, message: String },
    #[error(
        "the guest ended before it was told to{why}; run it again, or name another kernel with --guest-kernel; its console's last lines:\n{console}"
    )]
    Ended { why: String, console: String },
    #[error(
        "the guest does not answer within {seconds} s; run it again, or name another kernel with --guest-kernel; its console's last lines:\n{console}"
    )]
    Hangs { seconds: u64, console: String },
    #[error("the guest refuses: {0}")]
    Refused(String),
    #[error(
        "there is no card model `{0}`; there are virtio, virtio-vhost, virtio-mq, e1000, e1000e, vmxnet3, passthrough=PCI"
    )]
    Card(String),
    #[error("{0}")]
    Lacks(String),
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; a guest's files take some 50 MB there: make room, or name another folder by TMPDIR"
        }
        _ => "",
    }
}

impl GuestError {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

model::classified!(GuestError: Lacking, Usage: Card, Internal: Refused);
