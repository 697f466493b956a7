//! What stands between a port's driver and the routes, beside netfilter and disciplines: programs and filters at tc, and what a card does to frames
//! before XDP sees them.

use bpf::{XdpError, link::tcx_programs};
use host::{
    interface::Peer,
    netlink::{Netlink, tc},
};
use model::route::Obstacle;
use port::offloads::{self, LRO, Tags};

use crate::RouteError;

/// What the names of evenkeel's own programs begin with.
const OWN: &str = "ek_";

/// The obstacles at one port that is there. They are read anew each time: no message tells of most of them.
///
/// # Errors
/// What the kernel refuses to tell.
pub(crate) fn obstacles(route: &mut Netlink, ifindex: u32, port: &str) -> Result<Vec<Obstacle>, RouteError> {
    let mut found = Vec::new();
    let mut add =
        |code: &str, what: String, remedy: String| found.push(Obstacle { code: code.to_owned(), what, remedy });
    let filters = tc::filters(route, ifindex).map_err(RouteError::system("read the filters at tc"))?;
    for (hook, kind) in filters {
        let what = format!("{port} has filters at tc {hook} ({kind})");
        add("tc", what, format!("tc filter del dev {port} {hook}"));
    }
    let programs = match tcx_programs(port) {
        // It goes just now, and that is told of by itself.
        Err(XdpError::NoInterface { .. }) => Vec::new(),
        other => other?,
    };
    for (id, name) in programs.into_iter().filter(|(_, name)| !name.starts_with(OWN)) {
        let what = format!("{port} runs the program `{name}` (id {id}) at tc");
        add("tc", what, format!("end the tool that it belongs to; `bpftool net show dev {port}` shows it"));
    }
    // Who cannot be asked has no such features.
    if offloads::on(port, &[LRO]).is_ok_and(|on| !on.is_empty()) {
        let what = format!("{port} merges packets that it receives (LRO), which must not be sent on");
        add("lro", what, offloads::off(port, &[LRO.1]));
    }
    match offloads::tags(port) {
        Ok(Tags::Beside { who, switch }) if tags_come(port) => {
            let what =
                format!("{who} puts VLAN tags beside the frames: tagged ones would be forwarded as if they had none");
            add("tags", what, switch);
        }
        _ => {}
    }
    Ok(found)
}

/// Whether tags can come at all: to a veth whose other end is here they come from VLAN devices there alone.
fn tags_come(port: &str) -> bool {
    match offloads::peer(port) {
        Ok(Some(Peer::Here(peer))) => offloads::vlans(&peer).is_ok_and(|vlans| !vlans.is_empty()),
        _ => true,
    }
}
