//! The hypervisor whose guest the machine is, if it is one.

use super::{Missing, text};
use crate::root::Root;

const CPUINFO: &str = "proc/cpuinfo";
const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
const PRODUCT: &str = "sys/class/dmi/id/product_name";
const HYPERVISOR: &str = "sys/hypervisor/type";

/// The hardware of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Platform {
    /// Hardware of its own.
    Metal,
    /// A guest; the hypervisor's name where the firmware gives it.
    Guest(Option<String>),
}

/// Vendors whose name in the firmware's table tells of a hypervisor, and what to call it.
const HYPERVISORS: [(&str, &str); 9] = [
    ("QEMU", "QEMU/KVM"),
    ("KVM", "KVM"),
    ("VMware", "VMware"),
    ("innotek", "VirtualBox"),
    ("Xen", "Xen"),
    ("Virtual Machine", "Hyper-V"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google", "Google Compute Engine"),
    ("Bochs", "Bochs"),
];

/// Tells by the CPU's own flag and the firmware's names.
pub fn read(root: &Root) -> Result<Platform, Missing> {
    let flags = first_block(root)?;
    let soft = |rel| text(root, rel).ok().flatten().unwrap_or_default();
    let firmware = format!("{} {}", soft(VENDOR), soft(PRODUCT));
    let named = HYPERVISORS.iter().find(|(word, _)| firmware.contains(word)).map(|(_, name)| (*name).to_owned());
    let named = named.or_else(|| Some(soft(HYPERVISOR)).filter(|kind| !kind.is_empty()));
    let flagged = flags.is_some_and(|text| is_flagged(&text));
    // Clouds rent bare machines under the same vendor name: there only the flag counts.
    let cloud = named.as_deref().is_some_and(|name| name.contains("Amazon") || name.contains("Google"));
    Ok(if flagged || (named.is_some() && !cloud) { Platform::Guest(named) } else { Platform::Metal })
}

/// The first CPU's lines; a recording keeps no more, for they repeat for every CPU.
fn first_block(root: &Root) -> Result<Option<String>, Missing> {
    let quiet = if root.is_live() { Root::live() } else { root.clone() };
    let Some(all) = text(&quiet, CPUINFO)? else { return Ok(None) };
    let first = all.split("\n\n").next().unwrap_or_default().to_owned() + "\n";
    root.note(CPUINFO, &first);
    Ok(Some(first))
}

fn is_flagged(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

pub(super) fn record(root: &Root) {
    let _ = read(root);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn flag_and_firmware() {
        let flags = "processor : 0\nflags\t\t: fpu vme hypervisor lahf_lm\n";
        assert_eq!(read(&machine(&[(CPUINFO, flags)])), Ok(Platform::Guest(None)));
        let qemu = machine(&[(CPUINFO, flags), (VENDOR, "QEMU\n"), (PRODUCT, "Standard PC (i440FX + PIIX, 1996)\n")]);
        assert_eq!(read(&qemu), Ok(Platform::Guest(Some("QEMU/KVM".into()))));
        let metal = machine(&[(CPUINFO, "flags : fpu\n"), (VENDOR, "Amazon EC2\n"), (PRODUCT, "c5.metal\n")]);
        assert_eq!(read(&metal), Ok(Platform::Metal));
        assert_eq!(read(&machine(&[(CPUINFO, "Features : fp asimd\n"), (VENDOR, "Dell Inc.\n")])), Ok(Platform::Metal));
        assert!(read(&Root::from_files([("proc/stat".to_owned(), String::new())].into())).is_err());
    }
}
