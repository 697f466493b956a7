//! The knobs that are set through ethtool.

use sys::ethtool::{Ethtool, EthtoolError};

use super::{CoalesceField, Direction, Knob, KnobError};

pub(super) fn read(knob: &Knob) -> Result<String, KnobError> {
    let (nic, mut tool) = open(knob)?;
    let failed = |error| from_ethtool(knob, error);
    let value = match knob {
        Knob::Ring { direction, .. } => tool.rings(&nic).map_err(failed)?.map(|r| match direction {
            Direction::Rx => r.rx.to_string(),
            Direction::Tx => r.tx.to_string(),
        }),
        Knob::Channels { .. } => tool.channels(&nic).map_err(failed)?.map(|c| c.combined.to_string()),
        Knob::Coalesce { field, .. } => tool.coalesce(&nic).map_err(failed)?.map(|c| match field {
            CoalesceField::AdaptiveRx => on_off(c.adaptive_rx),
            CoalesceField::AdaptiveTx => on_off(c.adaptive_tx),
            CoalesceField::RxUsecs => c.rx_usecs.to_string(),
            CoalesceField::RxFrames => c.rx_frames.to_string(),
            CoalesceField::TxUsecs => c.tx_usecs.to_string(),
            CoalesceField::TxFrames => c.tx_frames.to_string(),
        }),
        Knob::Feature { name, .. } => {
            let features = tool.features(&nic).map_err(failed)?.unwrap_or_default();
            features.iter().find(|f| f.name == *name).map(|f| on_off(f.on))
        }
        Knob::RssIndirection { .. } => tool.rss(&nic).map_err(failed)?.filter(|r| !r.indirection.is_empty()).map(|r| {
            let queues: Vec<String> = r.indirection.iter().map(ToString::to_string).collect();
            queues.join(" ")
        }),
        _ => None,
    };
    value.ok_or_else(|| unsupported(knob))
}

pub(super) fn write(knob: &Knob, value: &str) -> Result<(), KnobError> {
    let (nic, mut tool) = open(knob)?;
    let failed = |error| from_ethtool(knob, error);
    match knob {
        Knob::Ring { direction, .. } => {
            let mut rings = tool.rings(&nic).map_err(failed)?.ok_or_else(|| unsupported(knob))?;
            match direction {
                Direction::Rx => rings.rx = number(knob, value)?,
                Direction::Tx => rings.tx = number(knob, value)?,
            }
            tool.set_rings(&nic, rings).map_err(failed)
        }
        Knob::Channels { .. } => {
            let mut channels = tool.channels(&nic).map_err(failed)?.ok_or_else(|| unsupported(knob))?;
            channels.combined = number(knob, value)?;
            tool.set_channels(&nic, channels).map_err(failed)
        }
        Knob::Coalesce { field, .. } => {
            let mut c = tool.coalesce(&nic).map_err(failed)?.ok_or_else(|| unsupported(knob))?;
            match field {
                CoalesceField::AdaptiveRx => c.adaptive_rx = switch(knob, value)?,
                CoalesceField::AdaptiveTx => c.adaptive_tx = switch(knob, value)?,
                CoalesceField::RxUsecs => c.rx_usecs = number(knob, value)?,
                CoalesceField::RxFrames => c.rx_frames = number(knob, value)?,
                CoalesceField::TxUsecs => c.tx_usecs = number(knob, value)?,
                CoalesceField::TxFrames => c.tx_frames = number(knob, value)?,
            }
            tool.set_coalesce(&nic, c).map_err(failed)
        }
        Knob::Feature { name, .. } => tool.set_feature(&nic, name, switch(knob, value)?).map_err(failed),
        Knob::RssIndirection { .. } => {
            let queues: Result<Vec<u32>, KnobError> = value.split_whitespace().map(|q| number(knob, q)).collect();
            tool.set_rss_indir(&nic, &queues?).map_err(failed)
        }
        _ => Err(unsupported(knob)),
    }
}

fn open(knob: &Knob) -> Result<(String, Ethtool), KnobError> {
    let nic = match knob {
        Knob::Ring { nic, .. }
        | Knob::Channels { nic }
        | Knob::Coalesce { nic, .. }
        | Knob::Feature { nic, .. }
        | Knob::RssIndirection { nic } => nic.clone(),
        _ => return Err(unsupported(knob)),
    };
    Ok((nic, Ethtool::open().map_err(|e| from_ethtool(knob, e))?))
}

fn from_ethtool(knob: &Knob, source: EthtoolError) -> KnobError {
    match source {
        EthtoolError::NoInterface(nic) => {
            KnobError::Gone { knob: knob.clone(), object: format!("interface {}", nic.name) }
        }
        source => KnobError::Ethtool { knob: knob.clone(), source },
    }
}

fn unsupported(knob: &Knob) -> KnobError {
    KnobError::Unsupported { knob: knob.clone() }
}

fn number(knob: &Knob, value: &str) -> Result<u32, KnobError> {
    let bad = |_| KnobError::Value { knob: knob.clone(), value: value.to_owned(), expected: "a number" };
    value.trim().parse().map_err(bad)
}

fn switch(knob: &Knob, value: &str) -> Result<bool, KnobError> {
    match value.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(KnobError::Value { knob: knob.clone(), value: value.to_owned(), expected: "on or off" }),
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
