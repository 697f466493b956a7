//! Problems of a cluster whose nodes exchange messages.

use serde::{Deserialize, Serialize};

use crate::doctor_nodes::Nodes;

/// The cluster as a node sees it (schema `evenkeel.link.check/1`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCheck {
    /// The node that looked.
    pub node: String,
    /// The node's interface to the others.
    pub interface: String,
    /// Bytes of the longest frame there, without the Ethernet header: its MTU.
    pub mtu: u32,
    pub nodes: Vec<LinkChecked>,
    pub problems: Vec<LinkProblem>,
    /// The answers of the machines that were asked over ssh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<Nodes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkChecked {
    pub name: String,
    pub address: String,
    /// Bytes of the longest frame that went there and back, without the Ethernet header; none: no probe came back.
    pub path_mtu: Option<u32>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProblem {
    /// The node, or the machine, that it is about.
    pub node: String,
    pub problem: String,
    pub fix: String,
}
