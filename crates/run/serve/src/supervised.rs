//! Services of systemd, which starts their processes again.

use std::{fs, path::Path};

/// The systemd service whose main process is `pid`; none also if this user may not read it.
pub(crate) fn unit(pid: u32) -> Option<String> {
    let process = Path::new("/proc").join(pid.to_string());
    if !is_main(pid, &fs::read(process.join("environ")).ok()?) {
        return None;
    }
    service(&fs::read_to_string(process.join("cgroup")).ok()?).map(str::to_owned)
}

/// True if systemd started the process itself (SYSTEMD_EXEC_PID in systemd.exec(5)). In its children the variable has another number.
fn is_main(pid: u32, environment: &[u8]) -> bool {
    let variable = format!("SYSTEMD_EXEC_PID={pid}");
    environment.split(|&byte| byte == 0).any(|found| found == variable.as_bytes())
}

/// The service in the text of /proc/PID/cgroup (cgroups(7)).
fn service(groups: &str) -> Option<&str> {
    let mut lines = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
    let path = lines.find_map(|line| matches!(line[..], [_, "" | "name=systemd", _]).then(|| line[2]))?;
    path.rsplit('/').find(|part| part.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_control_group_names_the_service() {
        assert_eq!(service("0::/system.slice/evenkeel-shield@eth0.service\n"), Some("evenkeel-shield@eth0.service"));
        let both = "4:memory:/x.service\n1:name=systemd:/system.slice/b.service/main\n0::/\n";
        assert_eq!(service(both), Some("b.service"));
        assert_eq!(service("0::/user.slice/user-0.slice/session-3.scope\n"), None);
        assert_eq!(service(""), None);
    }

    #[test]
    fn only_the_process_that_systemd_started_is_its_main_one() {
        let mut main = Command::new("sh").args(["-c", "SYSTEMD_EXEC_PID=$$ exec sleep 60"]).spawn().unwrap();
        let mut other = Command::new("sleep").arg("60").env("SYSTEMD_EXEC_PID", "1").spawn().unwrap();
        let read = |pid: u32| is_main(pid, &fs::read(format!("/proc/{pid}/environ")).unwrap());
        testbed::wait("it has begun", || read(main.id()));
        assert!(!read(other.id()));
        for child in [&mut main, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
