//! The kernel's settings of each NAPI instance: deferral and suspension of interrupts.

use super::Missing;
use crate::{
    netdev::{NapiEntry, Netdev},
    read::Answers,
    root::Root,
};

/// The NAPI instances of an interface; none where the kernel does not list them (before 6.8), or a copy lacks them.
pub fn read(root: &Root, nic: &str, ifindex: u32) -> Result<Option<Vec<NapiEntry>>, Missing> {
    if root.is_live() {
        let failed = |e: std::io::Error| Missing(e.to_string());
        let all = Netdev::open().map_err(failed)?.and_then(|mut netdev| netdev.napis());
        return Ok(all.map(|all| all.into_iter().filter(|napi| napi.ifindex == ifindex).collect()));
    }
    let Some(saved) = root.read_opt(&format!("ethtool/{nic}.json"))? else { return Ok(None) };
    let answers: Answers = serde_json::from_str(&saved)
        .map_err(|e| Missing(format!("ethtool/{nic}.json in the saved copy is garbled: {e}")))?;
    Ok(answers.napis)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn a_copy_shows_what_was_saved_of_each_instance() {
        let saved = r#"{"napis": [{"ifindex": 2, "id": 8193, "irq": 36, "pid": null, "rx_queue": 0,
            "defer_hard_irqs": 2, "gro_flush_timeout_ns": 20000, "irq_suspend_timeout_ns": 20000000}]}"#;
        let napis = read(&machine(&[("ethtool/eth0.json", saved)]), "eth0", 2).unwrap().unwrap();
        assert_eq!((napis[0].defer_hard_irqs, napis[0].irq_suspend_timeout_ns), (Some(2), Some(20_000_000)));
        // A copy of an earlier version lacks them.
        let earlier = r#"{"napis": [{"ifindex": 2, "id": 8193, "irq": 36, "pid": null, "rx_queue": 0}]}"#;
        let napis = read(&machine(&[("ethtool/eth0.json", earlier)]), "eth0", 2).unwrap().unwrap();
        assert_eq!(napis[0].gro_flush_timeout_ns, None);
        assert_eq!(read(&machine(&[]), "eth0", 2), Ok(None));
        assert!(read(&machine(&[("ethtool/eth0.json", "x")]), "eth0", 2).is_err());
    }
}
