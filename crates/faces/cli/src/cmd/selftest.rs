//! `evenkeel selftest`: a trial of evenkeel's needs and verbs on this machine.

use std::{env, fs, path::PathBuf, sync::atomic::Ordering, time::Duration};

use anyhow::{Context, anyhow};
use clap::Args;
use model::selftest::SelfTest;
use report::{Look, selftest_text};

use crate::{
    args::interface,
    bar::{begin_step, steps_bar},
    failure::{Failure, Outcome, json, note, print, print_verdict},
    results::OutFile,
    signals::{Second, stop_flag},
    time::time,
};

/// Try evenkeel's needs and verbs on this machine.
///
/// Example: sudo evenkeel selftest --share report.json
///
/// The trials take a minute at most, in network namespaces that are removed afterwards. Of INTERFACE, properties of the driver are read and
/// nothing is changed. Each row has an outcome, a reason and a remedy. Exit code 0: all rows work, if need be by a substitute; 1: a row does
/// not work or could not be tried; 3: nothing could be tried.
#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// Read the driver's properties of this interface, too.
    #[arg(value_parser = interface)]
    interface: Option<String>,
    /// Print JSON (schema evenkeel.selftest/1).
    #[arg(long)]
    json: bool,
    /// Write the JSON to FILE without names, addresses and paths, to attach to a bug report.
    #[arg(long, value_name = "FILE")]
    share: Option<PathBuf>,
    /// Limit all trials together to this time. An emulated machine needs more.
    #[arg(long, value_name = "TIME", default_value = "55s", value_parser = time)]
    timeout: Duration,
}

pub(crate) fn run(args: &SelftestArgs) -> Result<Outcome, Failure> {
    if let Some(name) = &args.interface {
        sys::interface::index(name).map_err(Failure::lacking)?;
    }
    let share = OutFile::open(args.share.as_deref(), "report")?;
    let evenkeel = env::current_exe().context("cannot find this program").map_err(Failure::lacking)?;
    let stop = stop_flag(Second::IsIgnored)?;
    let settings = selftest::Settings {
        evenkeel: &evenkeel,
        interface: args.interface.as_deref(),
        timeout: args.timeout,
        stop: &stop,
    };
    let bar = steps_bar();
    let test = selftest::run(&settings, |step| begin_step(&bar, step.number, step.of, step.name.to_owned()));
    bar.finish_and_clear();
    if stop.load(Ordering::Relaxed) {
        note("evenkeel: interrupted. The namespaces and processes of the selftest are removed");
        return Ok(Outcome::Interrupted);
    }
    if let Some(file) = share {
        file.save(json(model::selftest::SCHEMA, shared(test.clone()))? + "\n")?;
    }
    let text = match args.json {
        true => json(model::selftest::SCHEMA, &test)? + "\n",
        false => selftest_text(&test, Look::of_stdout()),
    };
    if test.nothing_tried() {
        print(&text)?;
        return Err(Failure::lacking(anyhow!("nothing could be tried")));
    }
    print_verdict(&text, if test.all_works() { Outcome::Fine } else { Outcome::No })
}

/// The report without the names of this machine, its users and its interfaces.
fn shared(test: SelfTest) -> SelfTest {
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Users of LDAP and other directories are missing in passwd.
    let variables = ["SUDO_USER", "USER", "LOGNAME"].map(|name| env::var(name).unwrap_or_default());
    let users = people(&passwd).chain(variables.iter().map(String::as_str).filter(|user| *user != "root"));
    let interfaces = sys::interface::names().into_iter().enumerate().map(|(number, name)| {
        let driver = fs::read_link(format!("/sys/class/net/{name}/device/driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let stands = format!("{}-{number}", driver.unwrap_or_else(|| "virtual".to_owned()));
        (name, stands)
    });
    let identity = selftest::Identity {
        interfaces: interfaces.collect(),
        names: labels(hostname.trim()).chain(users).map(str::to_owned).collect(),
        folders: [env::current_dir().ok(), Some(env::temp_dir())]
            .into_iter()
            .flatten()
            .filter_map(|folder| folder.to_str().filter(|path| path.len() > 1).map(str::to_owned))
            .collect(),
    };
    selftest::anonymous(test, &identity)
}

/// A hostname, its first label, and its domain.
fn labels(hostname: &str) -> impl Iterator<Item = &str> {
    let (label, domain) = hostname.split_once('.').unzip();
    [Some(hostname), label, domain].into_iter().flatten()
}

/// Users of passwd(5) with numbers of people. Names of system users, such as `sys` and `mail`, are words of many messages.
fn people(passwd: &str) -> impl Iterator<Item = &str> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
        (1000..65534).contains(&id).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_have_numbers_from_1000_on() {
        let passwd = "root:x:0:0::/root:/bin/sh\nsys:x:3:3::/dev:/bin/false\nalice:x:1000:1000::/home/alice:/bin/sh\nnobody:x:65534:65534::/:\n\n";
        assert_eq!(people(passwd).collect::<Vec<_>>(), ["alice"]);
    }

    #[test]
    fn a_hostname_with_a_domain_has_three_names() {
        assert_eq!(labels("gate.example.org").collect::<Vec<_>>(), ["gate.example.org", "gate", "example.org"]);
        assert_eq!(labels("gate").collect::<Vec<_>>(), ["gate"]);
    }
}
