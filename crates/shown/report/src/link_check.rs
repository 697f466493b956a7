//! Problems of a cluster, as text.

use model::link_check::LinkCheck;

use crate::table::Look;

/// The nodes with the longest frame to each, then what is wrong, each with what to do.
pub fn link_check_text(check: &LinkCheck, look: Look) -> String {
    let rows = check.nodes.iter().map(|node| {
        let path_mtu = node.path_mtu.map_or("no answer".to_owned(), |bytes| format!("{bytes} bytes"));
        vec![node.name.clone(), node.address.clone(), path_mtu]
    });
    let mut text = String::new();
    if !check.nodes.is_empty() {
        text += &look.table(&["NODE", "ADDRESS", ">LONGEST FRAME"], rows);
        text += "\n";
    }
    if check.problems.is_empty() {
        let count = check.nodes.len();
        let nodes =
            if count == 1 { "The other node answers".to_owned() } else { format!("All {count} other nodes answer") };
        text += &look.paragraph(&format!(
            "{nodes}, frames of {} bytes (the MTU of {}) pass, and each has a name of its own.",
            check.mtu, check.interface
        ));
    }
    for problem in &check.problems {
        text += &look.paragraph(&format!("{}: {}.", problem.node, problem.problem));
        text += &look.paragraph(&format!("  fix  {}", problem.fix));
    }
    text
}
