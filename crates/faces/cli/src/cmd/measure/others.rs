//! Other machines that a measurement needs, and how ssh reaches them.

use clap::Args;
use messages::{MessagesError, remote::Reach};

/// Options for other machines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Other machines")]
pub(super) struct OthersArgs {
    /// Their interface [default: of the same name as here].
    #[arg(long, hide_short_help = true, value_name = "NAME", requires = "with")]
    peer_interface: Option<String>,
    /// An option of ssh, as behind its -o: --ssh-option Port=2222.
    #[arg(long, hide_short_help = true, value_name = "OPTION", requires = "with")]
    ssh_option: Vec<String>,
    /// The program on those machines, by name or path.
    #[arg(long, hide_short_help = true, value_name = "PATH", default_value = "evenkeel", requires = "with")]
    program: String,
}

impl OthersArgs {
    /// The command that starts the verb `words` of evenkeel on the machine `node`, for its interface there or the one that is named as `interface` is
    /// here.
    pub(super) fn reach(&self, node: &str, words: &[&str], interface: &str) -> Result<Reach, MessagesError> {
        let there = self.peer_interface.as_deref().unwrap_or(interface);
        Reach::by_ssh(node, &self.ssh_option, &self.program, &[words, &["--", there]].concat())
    }
}
