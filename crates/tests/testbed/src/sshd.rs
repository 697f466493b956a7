//! A real sshd in a namespace, and keys for it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{Running, Space, installed, log, privileged, wait_reporting};

const SSHD: &str = "/usr/sbin/sshd";

/// An sshd that listens. It does not outlive the value.
#[derive(Debug)]
pub struct Sshd {
    log: PathBuf,
    _running: Running,
}

impl Sshd {
    /// None, and a word why, if none can be started here.
    pub fn can_run() -> Option<()> {
        privileged()?;
        installed(&[SSHD, "/usr/bin/ssh", "/usr/bin/ssh-keygen"]).then_some(())
    }

    /// Makes the keys of hosts and users in a folder: `host`, `user`.
    pub fn keys(folder: &Path) {
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "ek", "-f"]).arg(folder.join(key));
            assert!(keygen.status().expect("ssh-keygen starts").success());
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized")).expect("a file");
        fs::set_permissions(folder.join("authorized"), fs::Permissions::from_mode(0o600)).expect("its mode");
    }

    /// Starts one at an address and a port with the keys of a folder, which gets its files; `name` tells those of several apart.
    #[track_caller]
    pub fn start(space: &Space, name: &str, address: &str, port: u16, folder: &Path) -> Self {
        // Without PAM sshd refuses an account whose password is locked.
        let locked = log(Path::new("/etc/shadow")).lines().any(|line| line.starts_with("root:!"));
        let config = format!(
            "Port {port}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM {}\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\n",
            folder.join("host").display(),
            folder.join("authorized").display(),
            if locked { "yes" } else { "no" },
        );
        let file = folder.join(format!("{name}.config"));
        fs::write(&file, config).expect("a file");
        // sshd wants a folder in /run that is its own: in a /run that only this one sees.
        let script = format!("mount -t tmpfs none /run && mkdir /run/sshd && exec {SSHD} -D -e -f \"$0\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(&file).stdin(Stdio::null());
        let path = folder.join(format!("{name}.log"));
        let running = space.run(|| Running::logged(&mut command, &path));
        wait_reporting("sshd listens", || log(&path).contains("Server listening"), || log(&path));
        Self { log: path, _running: running }
    }

    /// Arguments of a verb of evenkeel: its ssh finds the daemons by them, with the user's key.
    pub fn options(folder: &Path, port: u16) -> Vec<String> {
        let [key, known] = ["user", "known"].map(|name| folder.join(name).display().to_string());
        let options = [
            format!("Port={port}"),
            format!("IdentityFile={key}"),
            format!("UserKnownHostsFile={known}"),
            "StrictHostKeyChecking=accept-new".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
        ];
        options.into_iter().flat_map(|option| ["--ssh-option".to_owned(), option]).collect()
    }

    /// ssh, with these options and the user's key, from `space` to root at a host, where it runs `line`.
    pub fn client(space: &Space, folder: &Path, options: &[&str], host: &str, line: &str) -> Command {
        let mut ssh = space.command("ssh");
        ssh.args(["-F", "none", "-T"]).args(options).arg("-i").arg(folder.join("user"));
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", folder.join("known").display()));
        for option in ["StrictHostKeyChecking=accept-new", "IdentitiesOnly=yes", "BatchMode=yes"] {
            ssh.args(["-o", option]);
        }
        ssh.arg(format!("root@{host}")).arg(line);
        ssh
    }

    /// Output of the server so far.
    pub fn log(&self) -> String {
        log(&self.log)
    }
}
