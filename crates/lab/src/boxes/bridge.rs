//! A bridge between the two interfaces of the box, with static entries for both ends.

use crate::{LabError, link};

use super::{Inside, NOBODY, Sink, TestBox};

/// Makes the bridge, called as the entry with `b` for its letter, and sets it up.
pub(super) fn furnish(of: &TestBox) -> Result<(), LabError> {
    let (Some(Inside { namespace, entry, exit: Some(exit) }), Some(receiver)) = (&of.inside, &of.receiver) else {
        return Ok(());
    };
    let bridge = format!("{}b", entry.name);
    let sender = of.sender.end.mac;
    namespace.run(|| -> Result<(), LabError> {
        link::create_bridge(&bridge)?;
        link::silence(&bridge)?;
        for port in [entry, exit] {
            link::set_controller(&port.name, &bridge)?;
        }
        link::set_up(&bridge)?;
        // Without them the first frames would be flooded. Nobody's frames go from left to right.
        link::add_bridge_entry(&entry.name, sender)?;
        link::add_bridge_entry(&exit.name, receiver.end.mac)?;
        if of.spec.sink == Sink::Discard {
            link::add_bridge_entry(&exit.name, NOBODY)?;
        }
        Ok(())
    })??;
    of.address_ends()
}
