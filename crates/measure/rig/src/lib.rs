//! Parts that every measurement needs, whatever it measures.
//!
//! [`experiment`] drives a measurement in steps. [`cores`] chooses the CPUs and says who has which; [`receive`] opens the sources of a backend; [`readers`] counts the frames of any source on
//! cores of their own; [`window`] is the stretch of time in between: waited for, its core loads read, made again when a hypervisor took part of it.
//! [`others`] names the programs that took its CPUs; [`repeat`] makes one result of several measurements; [`progress`] shows how far a run is.

pub mod cores;
mod error;
pub mod experiment;
pub mod others;
pub mod progress;
pub mod readers;
pub mod receive;
pub mod repeat;
pub mod window;

pub use error::MeasureError;
