//! Trials of single functions of BPF: type information, maps, pins.

use std::{fs, io, os::fd::AsFd, path::Path};

use libbpf_rs::{MapHandle, MapType, btf::Btf};

use crate::{
    link::XdpError,
    pin,
    program::{opts, to_io},
};

/// Bytes of a value of the maps.
const VALUE_BYTES: u32 = 4096;

/// Reads the kernel's type information (BTF).
pub fn types() -> io::Result<()> {
    Btf::from_vmlinux().map(drop).map_err(|e| to_io(&e))
}

/// Makes an array of at least `bytes` and closes it.
pub fn map(bytes: u32) -> io::Result<()> {
    array(bytes).map(drop)
}

/// Makes a map, pins it at `path` and removes the pin.
pub fn pin(path: &Path) -> Result<(), XdpError> {
    let map = array(VALUE_BYTES).map_err(|e| XdpError::pin("make a map for", path, e))?;
    pin::keep(map.as_fd(), path)?;
    fs::remove_file(path).map_err(|e| XdpError::pin("remove", path, e))
}

fn array(bytes: u32) -> io::Result<MapHandle> {
    crate::program::quiet_libbpf();
    let opts = opts!(bpf_map_create_opts {});
    let entries = bytes.div_ceil(VALUE_BYTES);
    MapHandle::create(MapType::Array, Some("ek_selftest"), 4, VALUE_BYTES, entries, &opts).map_err(|e| to_io(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_made_pinned_and_gone() {
        let Some(()) = testbed::privileged() else { return };
        types().expect("type information");
        map(8 << 20).expect("a map of 8 MiB");
        let path = Path::new("/sys/fs/bpf").join(format!("ek-probe-{}", std::process::id()));
        pin(&path).expect("a pin");
        assert!(!path.exists());
        assert!(pin(Path::new("/tmp/ek-no-bpffs")).is_err(), "no BPF file system");
    }
}
