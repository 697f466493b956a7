//! The demo: a flood, and the ways to receive it, stage by stage.

mod bed;
mod flood;
mod machine;
mod measure;
mod plan;
mod readers;
mod run;
mod sampling;
mod words;

pub(crate) use machine::describe as describe_machine;
pub(crate) use run::{DemoConfig, Watch, run};
