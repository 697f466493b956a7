//! Interrupts, from proc/interrupts and proc/irq.

use std::collections::BTreeMap;

use super::{HostError, soft_list};
use crate::{picture::Irq, root::Root};

/// The interrupts, and how many lines of them could not be read.
pub(super) fn read(root: &Root) -> Result<(Vec<Irq>, u32), HostError> {
    const FILE: &str = "proc/interrupts";
    let text = root.read(FILE)?;
    let mut irqs = parse_interrupts(&text);
    let garbled = |text: &str| HostError::Garbled {
        path: FILE.to_owned(),
        text: text.trim().chars().take(40).collect(),
        expected: "a table of interrupts with a column per CPU",
    };
    let head = text.lines().next().unwrap_or_default();
    if cpu_columns(head).is_empty() {
        return Err(garbled(head));
    }
    let numbered = |line: &&str| line.split_once(':').is_some_and(|(number, _)| number.trim().parse::<u32>().is_ok());
    let lines = text.lines().skip(1).filter(numbered).count();
    if irqs.is_empty() && lines > 0 {
        return Err(garbled(text.lines().find(numbered).unwrap_or_default()));
    }
    for irq in &mut irqs {
        let folder = format!("proc/irq/{}", irq.number);
        irq.affinity = soft_list(root, &format!("{folder}/smp_affinity_list")).unwrap_or_default();
        irq.managed = is_fixed(root, &folder);
        irq.effective = soft_list(root, &format!("{folder}/effective_affinity_list")).filter(|set| !set.is_empty());
    }
    let unread = lines.saturating_sub(irqs.len());
    Ok((irqs, u32::try_from(unread).unwrap_or(u32::MAX)))
}

fn cpu_columns(head: &str) -> Vec<u32> {
    head.split_whitespace().filter_map(|name| name.strip_prefix("CPU")?.parse().ok()).collect()
}

/// Newer kernels take the write permission from the file of an interrupt that nobody can direct. A saved machine has that
/// as a file of its own, `fixed`, since a copy says nothing about permissions.
fn is_fixed(root: &Root, folder: &str) -> bool {
    let (file, answer) = (format!("{folder}/smp_affinity"), format!("{folder}/fixed"));
    let Some(path) = root.path_of(&file) else { return root.exists(&answer) };
    let fixed = path.metadata().is_ok_and(|m| m.permissions().readonly());
    if fixed {
        root.note(&answer, "1\n");
    }
    fixed
}

/// The numbered lines of /proc/interrupts, ascending; affinities are left empty. A line that does not fit is passed over.
pub fn parse_interrupts(text: &str) -> Vec<Irq> {
    let mut lines = text.lines();
    let cpus = cpu_columns(lines.next().unwrap_or_default());
    let mut irqs: Vec<Irq> = lines.filter_map(|line| parse_line(line, &cpus)).collect();
    irqs.sort_by_key(|irq| irq.number);
    irqs.dedup_by_key(|irq| irq.number);
    irqs
}

fn parse_line(line: &str, cpus: &[u32]) -> Option<Irq> {
    let (number, mut rest) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let mut counts = BTreeMap::new();
    for &cpu in cpus {
        let (field, after) = next_field(rest)?;
        let count: u64 = field.parse().ok()?;
        if count > 0 {
            counts.insert(cpu, count);
        }
        rest = after;
    }
    let (chip, actions) = split_chip(rest);
    Some(Irq {
        number,
        chip,
        actions: actions.split(", ").map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect(),
        affinity: model::CpuSet::new(),
        effective: None,
        managed: false,
        counts,
    })
}

fn next_field(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Splits `IR-PCI-MSI 1572865-edge  eth0-TxRx-0` behind the line's number and trigger. The chip's name may have several
/// words (`Hyper-V PCIe MSI 4194304-edge`), and other architectures write the trigger apart (`ITS-MSI 524288 Edge`).
fn split_chip(text: &str) -> (String, &str) {
    let mut chip: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((field, after)) = next_field(rest) {
        let first = chip.is_empty();
        chip.push(field);
        rest = after;
        if first {
            // Kernels before 4.x wrote one word: `PCI-MSI-edge`, `IO-APIC-fasteoi`, `xen-pirq-msi-x`, `xen-dyn-event`.
            if is_old_chip(field) {
                break;
            }
            continue;
        }
        if is_line_and_trigger(field) {
            break;
        }
        if field.bytes().all(|b| b.is_ascii_digit()) {
            if let Some((trigger @ ("Level" | "Edge"), after)) = next_field(rest) {
                chip.push(trigger);
                rest = after;
            }
            break;
        }
        if chip.len() == 5 {
            // No trigger in sight: one word of chip and one of line, as `xen-dyn -event` would be.
            let (_, after) = next_field(text).unwrap_or(("", ""));
            let (_, after) = next_field(after).unwrap_or(("", ""));
            chip.truncate(2);
            rest = after;
            break;
        }
    }
    (chip.join(" "), rest.trim())
}

/// The chip and the trigger in one word, without a line's number.
fn is_old_chip(field: &str) -> bool {
    let xen = field.strip_prefix("xen-").is_some_and(|rest| rest.contains('-'));
    xen || ["-edge", "-level", "-fasteoi"].iter().any(|trigger| {
        let chip = field.strip_suffix(trigger).unwrap_or_default();
        chip.contains(|c: char| c.is_ascii_uppercase())
    })
}

/// `1-edge`, `16-fasteoi`, `-msi`.
fn is_line_and_trigger(field: &str) -> bool {
    let trigger = field.trim_start_matches(|c: char| c.is_ascii_digit());
    trigger.strip_prefix('-').is_some_and(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_kernels() {
        let text = "\
           CPU0       CPU2
  1:          9          0   IO-APIC   1-edge      i8042
 16:          5          7   IO-APIC  16-fasteoi   uhci_hcd:usb3, eth0, snd hda
 38:          0       6165 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 64:          1          2  IR-PCI-MSI 1572865-edge      eth0-TxRx-0
 70:          3          0  Hyper-V PCIe MSI 4194304-edge      mlx5_async0@pci:0001:00:02.0
 80:          0          0   ITS-MSI 524288 Edge      nvme0q0
 81:          0          0  xen-dyn    -event     eth0
 82:          0          0  PCI-MSI 99-edge
 85:          7          0   PCI-MSI-edge      eth0-TxRx-0
 86:          7          0   IO-APIC-fasteoi   uhci_hcd:usb3, eth0
 87:          7          0   xen-dyn-event     eth0-q0-tx
 88:          7          0   xen-pirq-msi-x     eth0-rx-1
 89:          7          0   GICv2 189 Level     eth0
 83:          x          0  PCI-MSI 99-edge  broken
 84:          1
NMI:          0          0   Non-maskable interrupts
ERR:          0
";
        let irqs = parse_interrupts(text);
        let found: Vec<_> = irqs.iter().map(|i| (i.number, i.chip.as_str(), i.actions.join("|"))).collect();
        let expected = [
            (1, "IO-APIC 1-edge", "i8042"),
            (16, "IO-APIC 16-fasteoi", "uhci_hcd:usb3|eth0|snd hda"),
            (38, "PCI-MSIX-0000:00:03.0 1-edge", "virtio2-input.0"),
            (64, "IR-PCI-MSI 1572865-edge", "eth0-TxRx-0"),
            (70, "Hyper-V PCIe MSI 4194304-edge", "mlx5_async0@pci:0001:00:02.0"),
            (80, "ITS-MSI 524288 Edge", "nvme0q0"),
            (81, "xen-dyn -event", "eth0"),
            (82, "PCI-MSI 99-edge", ""),
            (85, "PCI-MSI-edge", "eth0-TxRx-0"),
            (86, "IO-APIC-fasteoi", "uhci_hcd:usb3|eth0"),
            (87, "xen-dyn-event", "eth0-q0-tx"),
            (88, "xen-pirq-msi-x", "eth0-rx-1"),
            (89, "GICv2 189 Level", "eth0"),
        ];
        assert_eq!(found, expected.map(|(n, chip, actions)| (n, chip, actions.to_owned())));
        assert_eq!(irqs[1].counts, BTreeMap::from([(0, 5), (2, 7)]));
        assert_eq!(irqs[2].counts, BTreeMap::from([(2, 6165)]));
    }
}
