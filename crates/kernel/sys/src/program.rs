//! Programs of the system, found where root's programs are and nowhere else.

use std::{
    env,
    ffi::OsStr,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::geteuid;

use crate::owner::{self, Distrust};

/// Folders that root's programs are in, in the order in which they are looked through.
pub const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The folders in which a program is looked for: for root the fixed ones, as whoever sets PATH would choose what root runs; for others
/// their own PATH.
fn search_path() -> std::ffi::OsString {
    if geteuid().is_root() { ROOT_PATH.into() } else { env::var_os("PATH").unwrap_or_else(|| ROOT_PATH.into()) }
}

/// The file of a program, by its path or by its name alone.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    let runs = |path: &Path| path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    if Path::new(program).components().count() > 1 {
        return Some(PathBuf::from(program)).filter(|path| runs(path));
    }
    env::split_paths(&search_path()).map(|folder| folder.join(program)).find(|path| runs(path))
}

/// Refuses a program that root would run and somebody else can change. For other users, and for one that is not there, there is nothing to
/// refuse.
///
/// # Errors
/// Whose it is, or who can write to it.
pub fn refuse_foreign(program: &OsStr) -> Result<(), Distrust> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Some(path) = find(program) else { return Ok(()) };
    match owner::trusted_program(&path) {
        Err(error) => match error.downcast::<Distrust>() {
            Ok(distrust) => Err(distrust),
            // It is looked at again when it is started.
            Err(_) => Ok(()),
        },
        Ok(_) => Ok(()),
    }
}

/// The command that starts `program`, which nobody but root can change or have replaced meanwhile, without any environment but PATH.
///
/// # Errors
/// [`Distrust`] within an [`io::Error`]; it is not there.
pub fn trusted_command(program: &OsStr) -> io::Result<Command> {
    let mut command = if geteuid().is_root() {
        Command::new(owner::trusted_program(&find(program).ok_or(io::ErrorKind::NotFound)?)?)
    } else {
        Command::new(program)
    };
    command.env_clear().env("PATH", search_path());
    Ok(command)
}

/// The command that starts `program`. Root's looks through fixed folders, and so do the programs that it starts itself. One that is
/// nowhere fails with "not found" when it is started.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let program = program.as_ref();
    let found = find(program);
    if !geteuid().is_root() {
        return Command::new(program);
    }
    // A name with a slash is not looked for in PATH.
    let missing = || PathBuf::from("/usr/sbin").join(program);
    let mut command = Command::new(found.unwrap_or_else(missing));
    command.env("PATH", ROOT_PATH);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANTED: &str = "ek-planted";

    #[test]
    fn root_finds_programs_in_fixed_folders_only() {
        if !geteuid().is_root() {
            eprintln!("skipped: for root only");
            return;
        }
        // In a process of its own: PATH belongs to all of this one.
        if env::var_os("EK_PROGRAM_TEST").is_some() {
            let echoed = command("sh").args(["-c", "echo $PATH"]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&echoed.stdout).trim(), ROOT_PATH);
            let error = command(PLANTED).output().unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            return;
        }
        let folder = env::temp_dir().join(format!("ek-program-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        for name in ["sh", PLANTED] {
            std::fs::write(folder.join(name), "#!/bin/sh\necho planted\n").unwrap();
            std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", "program::tests::root_finds_programs_in_fixed_folders_only"]);
        let output = again.env("EK_PROGRAM_TEST", "1").env("PATH", &folder).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
