//! Classes recorded stacks, to extend the rule table: `perf script -F comm,pid,cpu,ip,sym | cargo run -p profile --example classify`.
//!
//! Prints each class with its share of the samples and its dearest functions, then the functions that no rule names.

use std::{collections::BTreeMap, io::Read};

use model::{profile::Profile, run::Machine};
use profile::{Tally, perf_script};

fn main() -> std::io::Result<()> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let mut tally = Tally::new();
    for seen in perf_script::samples(&text) {
        tally.add(&seen);
    }
    let profile = tally.profile(1.0, &BTreeMap::new(), None, Profile::new(String::new(), Machine::default(), 0));
    let names = |list: &[model::profile::Named]| {
        list.iter().take(8).map(|n| format!("{} {}", n.samples, n.name)).collect::<Vec<_>>().join(", ")
    };
    for class in &profile.classes {
        println!("{:<18} {:5.1} %  {}", class.class, class.percent, names(&class.top));
    }
    let callers: Vec<String> = profile
        .locks
        .iter()
        .take(8)
        .map(|l| format!("{}/{} {} ({})", l.waiting, l.samples, l.caller, l.class))
        .collect();
    println!("locks: {}", callers.join(", "));
    println!("named by no rule, charged to the caller: {} of {}", profile.attributed_to_caller, profile.samples);
    println!("{}", names(&profile.unclassified_functions));
    Ok(())
}
