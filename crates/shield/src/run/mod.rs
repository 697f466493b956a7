//! The shield in front of an interface: started, reloaded, looked at, stopped.

pub mod session;
