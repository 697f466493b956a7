//! A node of `evenkeel link`: an end of a wire, and its broker.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{Bed, End, Running, json, log, wait, wait_reporting};

/// The node. Its broker ends with it.
#[derive(Debug)]
pub struct LinkNode {
    program: &'static str,
    end: End,
    /// The broker, if it runs.
    pub broker: Option<Running>,
    log: PathBuf,
}

impl LinkNode {
    /// Its broker serves when this comes back; `program` is evenkeel, `more` arguments of the broker.
    #[track_caller]
    pub fn start(program: &'static str, bed: &Bed, end: &End, name: &str, more: &[&str]) -> Self {
        let mut node = Self { program, end: end.clone(), broker: None, log: bed.path(&format!("{name}.log")) };
        node.serve(name, more);
        node
    }

    /// `alpha`, and `beta` whose broker is told more; they see each other.
    #[track_caller]
    pub fn pair(program: &'static str, bed: &Bed, ends: &[End; 2], more: &[&str]) -> [Self; 2] {
        let a = Self::start(program, bed, &ends[0], "alpha", &[]);
        let b = Self::start(program, bed, &ends[1], "beta", more);
        a.meets("beta");
        b.meets("alpha");
        [a, b]
    }

    /// Starts its broker again.
    #[track_caller]
    pub fn serve(&mut self, name: &str, more: &[&str]) {
        let mut command = Command::new(self.program);
        command.args(["link", "serve", self.end.interface(), "--name", name]).args(more);
        self.broker = Some(self.end.run(|| Running::logged(&mut command, &self.log)));
        wait_reporting(&format!("{name} serves"), || self.ask(&["status"]).status.success(), || self.log());
    }

    /// `evenkeel link` with these arguments, there.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.program);
        self.end.run(|| command.arg("link").args(arguments).output().expect("the program starts"))
    }

    /// The answer of `status`.
    #[track_caller]
    pub fn status(&self) -> Value {
        json(&self.ask(&["status", "--json"]))
    }

    /// Waits until it sees one other node, of that name.
    #[track_caller]
    pub fn meets(&self, name: &str) {
        let nodes = || self.status()["nodes"].as_array().cloned().unwrap_or_default();
        wait(&format!("{name} is seen"), || nodes().iter().map(|node| &node["name"]).eq([name]));
    }

    /// Output of its broker.
    pub fn log(&self) -> String {
        log(&self.log)
    }
}
