//! Output of `spread status`.

mod common;

use common::{add_nic, cpus, host};
use host::{counters::interrupts, journal::Journal};
use model::CpuSet;
use spread::status::status;

/// A journal whose only session wrote interrupt 31 to CPU 1.
fn journal(folder: &std::path::Path) -> Journal {
    let journal = Journal::at(Some(folder));
    std::fs::create_dir_all(journal.folder()).unwrap();
    let lines = r#"{"record":"begin","session":"1-1","started_unix_ns":1,"boot_id":"b","pid":1,"command":"test"}
{"record":"pending","step":0,"change":{"knob":{"kind":"irq_affinity","irq":31},"old":"f","new":"2","reason":"r"}}
{"record":"ended","step":0,"outcome":"done","read_back":"2"}
"#;
    std::fs::write(journal.folder().join("1-1.jsonl"), lines).unwrap();
    journal
}

#[test]
fn wanted_written_effective_and_the_culprit() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = journal(folder.path()).sessions().unwrap();
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    let (first, second) = (31, 32);
    let set = |h: &mut host::Host, irq: u32, affinity: u32, effective: u32| {
        let line = h.irqs.iter_mut().find(|i| i.number == irq).unwrap();
        (line.affinity, line.effective) = (CpuSet::single(affinity), Some(CpuSet::single(effective)));
    };
    set(&mut h, first, 1, 1);
    set(&mut h, second, 2, 3);
    let table = |a: u32, b: u32| interrupts(&format!("  CPU0 CPU1 CPU2 CPU3\n 31: 0 {a} 0 0 x\n 32: 0 0 0 {b} x\n"));
    let (earlier, later) = (table(10, 5), table(30, 5));
    let rows = status(&h, &sessions, &[], &earlier, &later, 2.0);
    assert_eq!(rows.len(), 2, "the control interrupt is no queue");
    assert_eq!(rows[0].planned, Some(CpuSet::single(1)));
    assert_eq!(rows[0].finding, None);
    assert_eq!(rows[0].interrupts_per_second, [(1, 10.0)].into());
    assert_eq!(rows[1].planned, None);
    assert!(rows[1].finding.as_ref().unwrap().contains("CPU 2, still handled on CPU 3"), "{:?}", rows[1].finding);

    set(&mut h, first, 0, 0);
    h.irqbalance_pid = Some(77);
    let rows = status(&h, &sessions, &["eth0".into()], &earlier, &later, 2.0);
    let finding = rows[0].finding.as_ref().unwrap();
    assert!(finding.contains("irqbalance (process 77)") && finding.contains("set CPU 1, now it is CPU 0"), "{finding}");
}
