//! The root that a guest boots: made on the spot, an archive of the kind that the kernel unpacks into memory.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
};

use cpio::newc::{Builder, ModeFileType, trailer};
use tempfile::NamedTempFile;

use crate::{GuestError, Kernel, Nic};

/// Programs of this machine that a guest has besides evenkeel, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 3] = [("ip", "iproute2"), ("ethtool", "ethtool"), ("nft", "nftables")];
/// Folder in which the guest's first process finds the modules, and the order in which it loads them.
pub(crate) const MODULES: &str = "/modules";
pub(crate) const ORDER: &str = "/modules/order";
/// Path of evenkeel in it.
pub(crate) const EVENKEEL: &str = "/bin/evenkeel";
/// Modules that are loaded where the kernel has them: what evenkeel's verbs work on. The first is asked for by others while they are loaded.
const USEFUL: [&str; 9] =
    ["crc32c_generic", "veth", "tun", "sch_ingress", "cls_bpf", "nf_tables", "nft_ct", "8021q", "tcp_diag"];
const FOLDERS: [&str; 15] = [
    "mnt", "bin", "sbin", "dev", "proc", "sys", "tmp", "run", "root", "etc", "lib64", "lib", "modules", "usr",
    "var/lib",
];

/// A root on disk, gone when it is dropped.
#[derive(Debug)]
pub struct Root(NamedTempFile);

impl Root {
    /// Makes one for a kernel and a card model, with the program `evenkeel`.
    ///
    /// # Errors
    /// A program or module is missing, or the disk is full.
    pub fn make(kernel: &Kernel, nic: &Nic, evenkeel: &Path) -> Result<Self, GuestError> {
        Self::with(kernel, nic, evenkeel, (&[], &[]))
    }

    /// The same with more programs, which lie in /bin under their own names, and more modules.
    pub fn with(
        kernel: &Kernel,
        nic: &Nic,
        evenkeel: &Path,
        (programs, more): (&[PathBuf], &[&'static str]),
    ) -> Result<Self, GuestError> {
        let mut modules = nic.modules();
        modules.extend(more);
        modules.extend(USEFUL.into_iter().filter(|module| kernel.has(module)));
        let modules = kernel.in_order(&modules)?;
        let file = tempfile::Builder::new().prefix(&format!("{}-", host::owner::name("guest", "root"))).tempfile();
        let file = file.map_err(GuestError::file("make a file in", std::env::temp_dir()))?;
        let path = file.path().to_owned();
        let failed = |source| GuestError::File { what: "write", path: path.clone(), source };
        let out = BufWriter::new(file.reopen().map_err(failed)?);
        let mut archive = Archive { out, path: path.clone(), folders: BTreeSet::new() };
        for folder in FOLDERS {
            archive.folder(Path::new(folder)).map_err(failed)?;
        }
        archive.program(evenkeel, EVENKEEL)?;
        archive.opened("libpcap.so.0.8")?;
        for (name, package) in PROGRAMS {
            let found = sys::program::find(name.as_ref()).ok_or(GuestError::Missing(name, package))?;
            archive.program(&found, &format!("/bin/{name}"))?;
        }
        for program in programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            archive.program(program, &format!("/bin/{name}"))?;
        }
        let mut order = String::new();
        for module in &modules {
            let bytes = unpacked(module)?;
            let name = module
                .file_stem()
                .map(|stem| stem.to_string_lossy().trim_end_matches(".ko").to_owned())
                .unwrap_or_default();
            let at = format!("{MODULES}/{name}.ko");
            archive.file(&at, 0o644, &bytes).map_err(failed)?;
            order += &format!("{at}\n");
        }
        archive.file(ORDER, 0o644, order.as_bytes()).map_err(failed)?;
        trailer(&mut archive.out).and_then(Write::flush).map_err(failed)?;
        Ok(Self(file))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The archive as it is written.
struct Archive {
    out: BufWriter<File>,
    path: PathBuf,
    folders: BTreeSet<PathBuf>,
}

impl Archive {
    fn entry(&mut self, path: &Path, kind: ModeFileType, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let name = path.strip_prefix("/").unwrap_or(path).display().to_string();
        let builder = Builder::new(&name).mode(mode).set_mode_file_type(kind).nlink(1);
        let mut writer = builder.write(&mut self.out, bytes.len() as u32);
        writer.write_all(bytes)?;
        writer.finish().map(drop)
    }

    /// A folder with those that it lies in.
    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let path = path.strip_prefix("/").unwrap_or(path);
        if path.as_os_str().is_empty() || !self.folders.insert(path.to_owned()) {
            return Ok(());
        }
        path.parent().map_or(Ok(()), |parent| self.folder(parent))?;
        self.entry(path, ModeFileType::Directory, 0o755, &[])
    }

    fn file(&mut self, at: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        Path::new(at).parent().map_or(Ok(()), |parent| self.folder(parent))?;
        self.entry(Path::new(at), ModeFileType::Regular, mode, bytes)
    }

    /// Adds a library that a program loads by this name, with the libraries that it needs; nothing if this machine lacks it.
    fn opened(&mut self, name: &str) -> Result<(), GuestError> {
        let known = sys::program::command("ldconfig").arg("-p").output();
        let known = known.map_err(|_| GuestError::Missing("ldconfig", "libc-bin"))?;
        let known = String::from_utf8_lossy(&known.stdout);
        let of_name = known.lines().find(|line| line.split_whitespace().next() == Some(name));
        match of_name.and_then(|line| line.split(" => ").nth(1)) {
            Some(path) => self.program(Path::new(path), path),
            None => Ok(()),
        }
    }

    /// A program with the libraries that the loader finds for it.
    fn program(&mut self, from: &Path, at: &str) -> Result<(), GuestError> {
        let bytes = fs::read(from).map_err(GuestError::file("read", from))?;
        let path = self.path.clone();
        let failed = |source| GuestError::File { what: "write", path: path.clone(), source };
        self.file(at, 0o755, &bytes).map_err(failed)?;
        let listed = sys::program::command("ldd").process_group(0).arg(from).output();
        let listed = listed.map_err(|_| GuestError::Missing("ldd", "libc-bin"))?;
        // It fails for a program without libraries, too.
        if listed.status.code().is_none() {
            return Err(GuestError::Program { program: "ldd", message: listed.status.to_string() });
        }
        for library in libraries(&String::from_utf8_lossy(&listed.stdout)) {
            if self.folders.insert(PathBuf::from(format!("file:{library}"))) {
                let bytes = fs::read(&library).map_err(GuestError::file("read", &library))?;
                self.file(&library, 0o755, &bytes).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The files in the words of ldd.
fn libraries(output: &str) -> Vec<String> {
    let word = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    output.lines().filter_map(word).collect()
}

/// A module as the kernel takes it.
fn unpacked(module: &Path) -> Result<Vec<u8>, GuestError> {
    let by = match module.extension().and_then(|end| end.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return fs::read(module).map_err(GuestError::file("read", module)),
    };
    let done = sys::program::command(by.0)
        .process_group(0)
        .arg("-dc")
        .arg(module)
        .output()
        .map_err(|_| GuestError::Missing(by.0, by.1))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => {
            Err(GuestError::Program { program: by.0, message: String::from_utf8_lossy(&done.stderr).into_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_file() {
        let output = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(libraries(output), ["/lib/x86_64-linux-gnu/libelf.so.1", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
