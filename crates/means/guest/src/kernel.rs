//! A kernel's image and modules.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::GuestError;

/// A kernel that a guest can boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub image: PathBuf,
    /// Release of the kernel, as `uname -r` says.
    pub release: String,
    /// The folder that has `lib/modules/RELEASE`.
    base: PathBuf,
    /// Modules that each module needs; both by their files.
    depends: BTreeMap<String, Vec<String>>,
    builtin: Vec<String>,
}

impl Kernel {
    /// The kernel at `image`, named `vmlinuz-RELEASE` in a folder `boot` beside `lib/modules`; without `image` that of this machine.
    pub fn open(image: Option<&Path>) -> Result<Self, GuestError> {
        let here = || {
            let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            PathBuf::from(format!("/boot/vmlinuz-{}", release.trim()))
        };
        let image = image.map_or_else(here, Path::to_owned);
        if !image.is_file() {
            return Err(GuestError::NoKernel(image));
        }
        let image = image.canonicalize().map_err(GuestError::file("find", &image))?;
        if !is_kernel(&image) {
            return Err(GuestError::NotKernel(image));
        }
        let name = image.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let release = name.split_once('-').map_or("", |(_, release)| release).to_owned();
        let base = image.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
        let folder = base.join("lib/modules").join(&release);
        if release.is_empty() || !folder.is_dir() {
            return Err(GuestError::NoModules { kernel: image, folder });
        }
        let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let builtin = builtin.lines().map(name_of).collect();
        let depends = depends(&dependencies(&folder, &release)?);
        Ok(Self { image, release, base, depends, builtin })
    }

    /// True if a module is there, or built in.
    pub fn has(&self, module: &str) -> bool {
        self.builtin.iter().any(|one| one == module) || self.file(module).is_some()
    }

    fn file(&self, module: &str) -> Option<&str> {
        self.depends.keys().find(|file| name_of(file) == module).map(String::as_str)
    }

    /// The files of these modules and of what they need, each once and after what it needs.
    pub(crate) fn in_order(&self, modules: &[&str]) -> Result<Vec<PathBuf>, GuestError> {
        let mut order: Vec<String> = Vec::new();
        for module in modules {
            if self.builtin.iter().any(|one| one == module) {
                continue;
            }
            let file = self.file(module).ok_or_else(|| self.lacks(module))?;
            // modules.dep names what is needed last to be loaded first.
            let needed = self.depends.get(file).into_iter().flatten().rev().map(String::as_str).chain([file]);
            for one in needed {
                if !order.iter().any(|there| there == one) {
                    order.push(one.to_owned());
                }
            }
        }
        let folder = self.base.join("lib/modules").join(&self.release);
        Ok(order.iter().map(|file| folder.join(file)).collect())
    }

    fn lacks(&self, module: &str) -> GuestError {
        let cloud = self.release.contains("cloud");
        let why =
            if cloud { ": a cloud kernel lacks most drivers; name a generic one with --guest-kernel" } else { "" };
        GuestError::NoModule { kernel: self.release.clone(), module: module.to_owned(), why }
    }
}

/// True for a whole image that a boot loader takes: it has its mark behind the first sector, and names its length (Documentation/arch/x86/boot.rst).
fn is_kernel(image: &Path) -> bool {
    let mut head = [0; 0x206];
    let read = fs::File::open(image).and_then(|mut file| {
        io::Read::read_exact(&mut file, &mut head)?;
        file.metadata()
    });
    let Ok(found) = read else { return false };
    let [a, b, c, d] = [0x1f4, 0x1f5, 0x1f6, 0x1f7].map(|at: usize| head[at]);
    let sectors = if head[0x1f1] == 0 { 4 } else { u64::from(head[0x1f1]) };
    let len = (sectors + 1) * 512 + u64::from(u32::from_le_bytes([a, b, c, d])) * 16;
    head.ends_with(b"HdrS") && found.len() >= len
}

/// The text of modules.dep, which depmod makes where a package was only unpacked.
fn dependencies(folder: &Path, release: &str) -> Result<String, GuestError> {
    let there = folder.join("modules.dep");
    if there.is_file() {
        return fs::read_to_string(&there).map_err(GuestError::file("read", &there));
    }
    // depmod writes beside the modules, which are somebody's: it gets a folder of its own that leads to them.
    let out = host::owner::temporary_folder("guest", "modules");
    let out = out.map_err(GuestError::file("make a folder in", std::env::temp_dir()))?;
    let own = out.path().join("lib/modules").join(release);
    fs::create_dir_all(&own).map_err(GuestError::file("make", &own))?;
    for name in ["kernel", "modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        std::os::unix::fs::symlink(folder.join(name), own.join(name))
            .map_err(GuestError::file("make", own.join(name)))?;
    }
    let done = sys::program::command("depmod").arg("-b").arg(out.path()).arg(release).output();
    let done = done.map_err(|_| GuestError::Missing("depmod", "kmod"))?;
    let made = own.join("modules.dep");
    match fs::read_to_string(&made) {
        // A full disk leaves a part of it.
        Ok(text) if done.status.success() && !text.is_empty() => Ok(text),
        _ => Err(GuestError::Program {
            program: "depmod",
            message: String::from_utf8_lossy(&done.stderr).trim().to_owned(),
        }),
    }
}

/// `a/b.ko: a/c.ko a/d.ko` by lines.
fn depends(text: &str) -> BTreeMap<String, Vec<String>> {
    let line = |line: &str| {
        let (file, needs) = line.split_once(':')?;
        Some((file.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
    };
    text.lines().filter_map(line).collect()
}

/// A module's name by its file: `kernel/a/b-c.ko.xz` is `b_c`.
fn name_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            image: "/b/boot/vmlinuz-6.1".into(),
            release: "6.1".into(),
            base: "/b".into(),
            depends: depends(
                "k/virtio_net.ko: k/net_failover.ko k/failover.ko\nk/failover.ko:\nk/net_failover.ko: k/failover.ko\nk/e1000.ko.xz:\n",
            ),
            builtin: vec!["virtio_pci".into()],
        }
    }

    #[test]
    fn what_a_module_needs_comes_before_it_and_once() {
        let order = kernel().in_order(&["virtio_pci", "net_failover", "virtio_net"]).unwrap();
        let names: Vec<_> = order.iter().map(|file| name_of(file.to_str().unwrap())).collect();
        assert_eq!(names, ["failover", "net_failover", "virtio_net"]);
        assert_eq!(order[0], Path::new("/b/lib/modules/6.1/k/failover.ko"));
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        assert!(kernel().has("e1000") && kernel().has("virtio_pci") && !kernel().has("vmxnet3"));
        let message = kernel().in_order(&["vmxnet3"]).unwrap_err().to_string();
        assert!(message.contains("vmxnet3") && message.contains("6.1"), "{message}");
    }
}
