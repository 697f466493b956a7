//! A bridge between the two interfaces of the box, with static entries for both ends.

use crate::{LabError, VethEnd, link};

use super::{Inside, NOBODY, NOBODY_BACK, Sink, TestBox};

/// Makes the bridge, called as the entry with `b` for its letter, and sets it up.
pub(super) fn furnish(of: &TestBox) -> Result<(), LabError> {
    let (Some(Inside { namespace, entry, exit: Some(exit) }), Some(receiver)) = (&of.inside, &of.receiver) else {
        return Ok(());
    };
    let bridge = name(entry);
    let sender = of.sender.end.mac;
    namespace.run(|| -> Result<(), LabError> {
        link::create_bridge(&bridge)?;
        link::silence(&bridge)?;
        for port in [entry, exit] {
            link::set_controller(&port.name, &bridge)?;
        }
        link::set_up(&bridge)?;
        // Without them the first frames would be flooded. There is a nobody on either side.
        link::add_bridge_entry(&entry.name, sender)?;
        link::add_bridge_entry(&exit.name, receiver.end.mac)?;
        if of.spec.sink == Sink::Discard {
            link::add_bridge_entry(&exit.name, NOBODY)?;
            link::add_bridge_entry(&entry.name, NOBODY_BACK)?;
        }
        Ok(())
    })??;
    of.address_ends()
}

fn name(entry: &VethEnd) -> String {
    format!("{}b", entry.name)
}

/// Sets the bridge up or down: while it is down it forwards nothing.
pub(super) fn set_up(inside: &Inside, up: bool) -> Result<(), LabError> {
    let bridge = name(&inside.entry);
    inside.namespace.run(|| crate::set_link(&bridge, up))?
}
