//! Other machines by OpenSSH: how they are named, and the command that starts something there.

use std::{process::Command, time::Duration};

/// Marks that a shell reads.
const SHELL: &str = "'\"`$;&|<>()\\";
/// The most characters of a program's last words.
const WORDS_MAX: usize = 300;

/// True if `name` can be given to ssh: a host, `user@host`, or `ssh://user@host:port`, and neither an option nor shell.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('-') && !name.chars().any(|c| c.is_control() || SHELL.contains(c))
}

/// The ssh that runs `command` on the machine `name`. `options` are those of the user as behind `-o`; nobody is asked for a password.
pub fn command(name: &str, options: &[String], timeout: Duration, command: &str) -> Command {
    let mut ssh = sys::program::command("ssh");
    // The user's own come first: ssh takes the first value of each option.
    for option in options {
        ssh.arg("-o").arg(option);
    }
    let wait = timeout.as_secs().clamp(1, 30);
    ssh.args(["-o", "BatchMode=yes", "-o", &format!("ConnectTimeout={wait}"), "-T", "--", name, command]);
    ssh
}

/// The command that runs `script` in sh, whatever the login shell is.
pub fn script(script: &str) -> String {
    format!("exec sh -c {}", quoted(script))
}

/// The text as one word of a shell command.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:@%+=,/-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The last lines of what was said, as one line of a sensible length.
pub fn last_words(text: &str) -> String {
    // What ssh says of a key that it has just learned is no reason for anything.
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with("Warning: Permanently added");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_said).collect();
    let last = lines[lines.len().saturating_sub(2)..].join("; ");
    match last.as_str() {
        "" => "it said nothing".to_owned(),
        result => result.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_neither_an_option_nor_shell() {
        assert!(["n1", "root@n1", "ssh://root@[fd00::1]:22"].iter().all(|name| is_name(name)));
        assert!(["", "-oProxyCommand=x", "a;b", "a$(b)", "a\nb"].iter().all(|name| !is_name(name)));
    }

    #[test]
    fn the_users_options_come_before_ours() {
        let ssh = command("n1", &["ConnectTimeout=3".to_owned()], Duration::from_secs(90), "true");
        let words: Vec<_> = ssh.get_args().map(|word| word.to_str().unwrap()).collect();
        let own = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-T", "--", "n1", "true"];
        assert_eq!(words, [&["-o", "ConnectTimeout=3"][..], &own].concat());
    }

    #[test]
    fn a_word_stays_one_in_a_shell() {
        let script = script(&format!("printf %s {}", quoted("a 'b' $c")));
        let result = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&result.stdout), "a 'b' $c");
    }
}
