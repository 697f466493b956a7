//! Messages between nodes as text.

use model::link::LinkNodes;

use crate::table::Look;

/// The nodes that answered.
pub fn link_nodes_text(nodes: &LinkNodes, look: Look) -> String {
    if nodes.nodes.is_empty() {
        return look.paragraph(&format!(
            "No node answered on {}. Start one there: `evenkeel link serve INTERFACE`.",
            nodes.interface
        ));
    }
    look.table(&["NODE", "ADDRESS"], nodes.nodes.iter().map(|n| vec![n.name.clone(), n.address.clone()]))
}
