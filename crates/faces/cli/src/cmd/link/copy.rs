//! `link copy`: a file to another node.

use std::{fs::File, path::PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use link::{LinkError, copy};
use model::units;

use super::{address_of, broker_status};
use crate::failure::{Failure, Outcome, print, print_json};

/// Copy a file to another node, and check its SHA-256 there.
///
///     evenkeel link copy image.raw db1:images/image.raw
///
/// The other node has to run `evenkeel link serve` with --receive.
#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    /// File to copy.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Node, and the path below its folder for files; a path that ends with / gets the file's name.
    #[arg(value_name = "NODE:PATH")]
    to: String,
    /// Print JSON (schema evenkeel.link.copy/1).
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CopyArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    let Some((node, path)) = target(args) else {
        return Ok(Err(Failure::usage(anyhow!(
            "name a node and a path there, such as db1:backup.tar, not {}",
            args.to
        ))));
    };
    let shown = args.file.display();
    let file = match File::open(&args.file).with_context(|| format!("cannot read {shown}")) {
        Ok(file) => file,
        Err(error) => return Ok(Err(Failure::usage(error))),
    };
    let bytes = match file.metadata() {
        Ok(meta) if meta.is_file() => meta.len(),
        _ => return Ok(Err(Failure::usage(anyhow!("{shown} is no plain file")))),
    };
    let Ok(address) = address_of(&broker_status()?, node)?.parse() else {
        return Err(LinkError::NoNode { name: node.to_owned() });
    };
    let style = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let bar = ProgressBar::new(bytes)
        .with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let copied = copy::send(address, file, bytes, &path, |sent| bar.set_position(sent));
    bar.finish_and_clear();
    let copied = copied?;
    let seconds = copied.ns as f64 / 1e9;
    let done = match args.json {
        true => print_json("link.copy", &copied),
        false => print(&format!(
            "{} in {seconds:.2} s ({}), SHA-256 equal on both nodes: {}\n",
            units::bytes(copied.bytes),
            units::bits_per_second(copied.bytes as f64 * 8.0 / seconds),
            copied.sha256
        )),
    };
    Ok(done.map(|()| Outcome::Fine))
}

/// The node and the path there.
fn target(args: &CopyArgs) -> Option<(&str, String)> {
    // An address has colons, too.
    let at = args.to.rfind(':')?;
    let (node, path) = (&args.to[..at], &args.to[at + 1..]);
    let name = args.file.file_name()?.to_str()?;
    let path = if path.is_empty() || path.ends_with('/') { format!("{path}{name}") } else { path.to_owned() };
    (!node.is_empty()).then_some((node, path))
}
