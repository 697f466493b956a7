//! Composes the machines described in `crates/machine/host/fixtures/*.toml` as the tars in `fixtures/`.
//!
//! `cargo run -p host --example compose` writes them; the tests of `host` fail when they are out of date.

mod machine;

use std::{error::Error, fs, path::Path};

use host::snapshot::Snapshot;
use machine::Machine;

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = here.join("../../../fixtures");
    fs::create_dir_all(&out)?;
    for entry in fs::read_dir(here.join("fixtures"))? {
        let description = entry?.path();
        let machine: Machine = toml::from_str(&fs::read_to_string(&description)?)?;
        let file = out.join(description.file_stem().ok_or("a description without a name")?).with_extension("tar");
        Snapshot::of(machine.compose()).save(&file)?;
        println!("{}", file.display());
    }
    Ok(())
}
