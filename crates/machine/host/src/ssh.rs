//! Other machines by OpenSSH: how they are named, and the command that starts something there.

use std::{process::Command, time::Duration};

use model::visible::visible_plain;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    let is_message = |line: &&str| !line.is_empty() && !line.starts_with("Warning: Permanently added");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_message).collect();
    let last = lines[lines.len().saturating_sub(2)..].join("; ");
    match last.as_str() {
        "" => "it said nothing".to_owned(),
        result => result.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect(),
    }
}

/// Reads the JSON of another machine: each text in it is a piece of one line from now on, and none has colours.
pub fn json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    fn each_text(value: Value) -> Value {
        let shown = |text: String| visible_plain(&text).replace('\n', "\\n");
        match value {
            Value::String(text) => Value::String(shown(text)),
            Value::Array(all) => all.into_iter().map(each_text).collect(),
            Value::Object(all) => all.into_iter().map(|(name, value)| (shown(name), each_text(value))).collect(),
            other => other,
        }
    }
    serde_json::from_value(each_text(serde_json::from_slice(text)?))
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
    fn texts_of_another_machine_are_one_line_each() {
        let text = br#"{"a":"1\n2\u001b[31m\t\u202e","b\n":["x\ny",{"c":"\u0007"}],"d":1.5,"e":18446744073709551615}"#;
        let read: Value = json(text).unwrap();
        let shown =
            r#"{"a":"1\\n2\\x1b[31m\t\\u202e","b\\n":["x\\ny",{"c":"\\x07"}],"d":1.5,"e":18446744073709551615}"#;
        assert_eq!(read, serde_json::from_str::<Value>(shown).unwrap());
        let wrong = json::<Vec<bool>>(br#"["a\nb"]"#).unwrap_err().to_string();
        assert!(!wrong.contains('\n'), "{wrong}");
    }

    #[test]
    fn a_word_stays_one_in_a_shell() {
        let script = script(&format!("printf %s {}", quoted("a 'b' $c")));
        let result = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&result.stdout), "a 'b' $c");
    }
}
