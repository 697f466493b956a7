//! Named network namespaces, as `ip netns` keeps them: a file under /run/netns with the namespace mounted on it.

use std::{
    fs::{self, File},
    io,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use crate::LabError;

/// The folder of named namespaces (ip-netns(8)).
pub(crate) const FOLDER: &str = "/run/netns";

/// A network namespace that is removed when the value is dropped, with every interface in it.
#[derive(Debug)]
pub struct Namespace(NamespaceHandle);

/// A way into a network namespace for somebody who does not own it. The kernel keeps the namespace while there is one, but its name is
/// gone with its owner.
#[derive(Debug, Clone)]
pub struct NamespaceHandle {
    name: String,
    file: Arc<File>,
}

fn failed(what: &'static str, name: &str) -> impl Fn(Errno) -> LabError {
    move |e| LabError::Namespace { what, name: name.to_owned(), source: e.into() }
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

impl Namespace {
    /// Makes the namespace `name` and mounts it under /run/netns, so that `ip netns exec` finds it too.
    pub(crate) fn create(name: &str) -> Result<Self, LabError> {
        let io_failed = |source| LabError::Namespace { what: "create", name: name.to_owned(), source };
        share_folder().map_err(io_failed)?;
        let path = path_of(name);
        File::create_new(&path).map_err(io_failed)?;
        let made = thread::scope(|s| {
            s.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET)?;
                mount(Some("/proc/thread-self/ns/net"), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            })
            .join()
        });
        let opened = match made {
            Ok(Ok(())) => File::open(&path).map_err(io_failed),
            Ok(Err(errno)) => Err(failed("create", name)(errno)),
            Err(_) => Err(LabError::Panicked(name.to_owned())),
        };
        match opened {
            Ok(file) => Ok(Self(NamespaceHandle { name: name.to_owned(), file: Arc::new(file) })),
            Err(e) => {
                let _ = remove(name);
                // In a user namespace mounting fails, and so does unmounting in remove().
                let _ = fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// A way in for others.
    pub fn handle(&self) -> NamespaceHandle {
        self.0.clone()
    }
}

impl Deref for Namespace {
    type Target = NamespaceHandle;

    fn deref(&self) -> &NamespaceHandle {
        &self.0
    }
}

impl NamespaceHandle {
    /// The name, as `ip netns list` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file, by which programs enter it (nsenter(1)).
    pub fn path(&self) -> PathBuf {
        path_of(self.name())
    }

    /// The open namespace, for a request that names it by descriptor.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Runs `work` in a thread of its own inside the namespace and gives its result.
    ///
    /// The thread sees the namespace's own /sys. Sockets that it opens and processes that it starts stay in the
    /// namespace after the thread has ended.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        thread::scope(|s| s.spawn(|| self.enter().map(|()| work())).join())
            .unwrap_or_else(|_| Err(LabError::Panicked(self.name.clone())))
    }

    /// Runs `work` in a thread of this namespace that keeps the process's /sys, with mounts such as the BPF file system.
    pub fn run_keeping_sys<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let entered = || setns(&*self.file, CloneFlags::CLONE_NEWNET).map_err(failed("enter", &self.name));
        thread::scope(|s| s.spawn(|| entered().map(|()| work())).join())
            .unwrap_or_else(|_| Err(LabError::Panicked(self.name.clone())))
    }

    /// The calling thread's own; `name` is for messages.
    pub fn own(name: &str) -> Result<Self, LabError> {
        let failed = |source| LabError::Namespace { what: "open", name: name.to_owned(), source };
        Ok(Self { name: name.to_owned(), file: Arc::new(File::open("/proc/thread-self/ns/net").map_err(failed)?) })
    }

    /// A new one without a name, which goes with its last handle, process and socket; `name` is for messages.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN lacks.
    pub fn nameless(name: &str) -> Result<Self, LabError> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(failed("create", name))?;
            Self::own(name)
        };
        thread::scope(|s| s.spawn(make).join()).unwrap_or_else(|_| Err(LabError::Panicked(name.to_owned())))
    }

    /// Moves the calling thread into the namespace for the rest of its life, with the namespace's own /sys.
    ///
    /// Only for a thread that does nothing else afterwards.
    pub fn enter(&self) -> Result<(), LabError> {
        let failed = failed("enter", &self.name);
        setns(&*self.file, CloneFlags::CLONE_NEWNET).map_err(&failed)?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(&failed)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).map_err(&failed)?;
        match mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none) {
            // The namespace's own is there already.
            Err(Errno::EBUSY) => Ok(()),
            done => done.map_err(&failed),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nothing to be done about a failure here; the next lab clears what is left.
        let _ = remove(&self.0.name);
    }
}

/// Takes the namespace's name away; the kernel removes it once no process and no socket is left inside.
pub(crate) fn remove(name: &str) -> Result<(), LabError> {
    let path = path_of(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: nothing is mounted there (its maker died between the two steps).
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(e) => return Err(failed("unmount", name)(e)),
    }
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(LabError::Namespace { what: "remove", name: name.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Makes /run/netns a shared mount, as ip-netns does, so that a name removed here vanishes in every mount namespace.
fn share_folder() -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    let none = None::<&str>;
    let share = || mount(none, FOLDER, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    if share() == Err(Errno::EINVAL) {
        mount(Some(FOLDER), FOLDER, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
        share()?;
    }
    Ok(())
}
