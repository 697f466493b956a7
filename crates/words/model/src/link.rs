//! Messages between nodes: what there is to say of a node and its connections.

use serde::{Deserialize, Serialize};

/// A node that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkNode {
    /// Its name.
    pub name: String,
    /// Where frames for it go: a MAC address, or an address and a port of UDP.
    pub address: String,
    /// Drawn by it when it started.
    pub epoch: u32,
}

/// The nodes that answered on an interface (schema `evenkeel.link.nodes/1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkNodes {
    /// The interface.
    pub interface: String,
    /// The nodes, by name.
    pub nodes: Vec<LinkNode>,
}
