//! Filters of traffic control at an interface.

use std::io;

use super::{DUMP, Netlink, attributes, text};

/// RTM_NEWTFILTER and RTM_GETTFILTER (linux/rtnetlink.h).
const NEW_FILTER: u16 = 44;
const GET_FILTER: u16 = 46;
/// `struct tcmsg`: family, three of padding, interface, handle, parent, priority and protocol.
const TCMSG_BYTES: usize = 20;
const TCA_KIND: u16 = 1;
/// Hooks of filters before and behind the stack: clsact's two (the first one is that of the qdisc `ingress` too).
const HOOKS: [(u32, &str); 2] = [(0xffff_fff2, "ingress"), (0xffff_fff3, "egress")];

/// The filters at tc ingress and egress of an interface: the hook and the kind (`bpf`, `flower`, `u32` …), each kind of a hook once.
pub fn filters(route: &mut Netlink, ifindex: u32) -> io::Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for (parent, hook) in HOOKS {
        let mut body = [0; TCMSG_BYTES];
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        route.ask(GET_FILTER, DUMP, &body, |kind, message| {
            if kind != NEW_FILTER || message.len() < TCMSG_BYTES {
                return;
            }
            let named = attributes(&message[TCMSG_BYTES..]).find(|attribute| attribute.kind() == TCA_KIND);
            let filter = (hook, named.map(|attribute| text(attribute.value())).unwrap_or_default());
            if !found.contains(&filter) {
                found.push(filter);
            }
        })?;
    }
    Ok(found)
}
