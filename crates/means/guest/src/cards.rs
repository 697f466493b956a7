//! The card models.

use std::{fmt, str::FromStr};

use crate::GuestError;

/// A model of a network card.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Nic {
    /// Paravirtual, its frames moved by QEMU.
    Virtio,
    /// Paravirtual, its frames moved by the host's kernel (vhost-net).
    VirtioVhost,
    /// Paravirtual with two queues.
    VirtioMq,
    /// Intel 82540EM, of 2002.
    E1000,
    /// Intel 82574L.
    E1000e,
    Vmxnet3,
    /// A card of the host, by its address on the PCI bus.
    Passthrough(String),
}

impl Nic {
    /// Models that need nothing of the host but QEMU.
    pub const MODELS: [Self; 4] = [Self::Virtio, Self::E1000, Self::E1000e, Self::Vmxnet3];

    /// Name of the model on the command line.
    pub fn key(&self) -> String {
        match self {
            Self::Virtio => "virtio".into(),
            Self::VirtioVhost => "virtio-vhost".into(),
            Self::VirtioMq => "virtio-mq".into(),
            Self::E1000 => "e1000".into(),
            Self::E1000e => "e1000e".into(),
            Self::Vmxnet3 => "vmxnet3".into(),
            Self::Passthrough(pci) => format!("passthrough={pci}"),
        }
    }

    /// The driver in the guest, by the name of its module.
    pub fn module(&self) -> &'static str {
        match self {
            Self::Virtio | Self::VirtioVhost | Self::VirtioMq => "virtio_net",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Passthrough(_) => "",
        }
    }

    /// The modules that it needs.
    pub(crate) fn modules(&self) -> Vec<&'static str> {
        match self {
            Self::Virtio | Self::VirtioVhost | Self::VirtioMq => vec!["virtio_pci", "virtio_net"],
            other => vec![other.module()],
        }
    }

    /// Queues of its tap device.
    pub(crate) fn queues(&self) -> u32 {
        if *self == Self::VirtioMq { 2 } else { 1 }
    }

    /// The value of QEMU's `-device`.
    pub(crate) fn device(&self, netdev: &str, mac: &str) -> String {
        let model = match self {
            Self::Virtio | Self::VirtioVhost => "virtio-net-pci",
            Self::VirtioMq => "virtio-net-pci,mq=on,vectors=6",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Passthrough(pci) => return format!("vfio-pci,host={pci}"),
        };
        format!("{model},netdev={netdev},mac={mac}")
    }

    /// The element of such a card in a domain of libvirt, on a tap device that is there already.
    pub fn libvirt(&self, tap: &str, mac: &str) -> String {
        let (model, driver) = match self {
            Self::Virtio => ("virtio", "<driver name='qemu'/>"),
            Self::VirtioVhost => ("virtio", "<driver name='vhost'/>"),
            Self::VirtioMq => ("virtio", "<driver name='qemu' queues='2'/>"),
            Self::E1000 => ("e1000", ""),
            Self::E1000e => ("e1000e", ""),
            Self::Vmxnet3 => ("vmxnet3", ""),
            Self::Passthrough(pci) => {
                return format!(
                    "<interface type='hostdev' managed='yes'><source><address type='pci' {}/></source></interface>",
                    pci_attributes(pci)
                );
            }
        };
        format!(
            "<interface type='ethernet'><target dev='{tap}' managed='no'/><mac address='{mac}'/><model type='{model}'/>{driver}</interface>"
        )
    }

    /// True for what the regions of memory of this model are called in QEMU's traces.
    pub fn owns(&self, region: &str) -> bool {
        match self {
            Self::Virtio | Self::VirtioVhost | Self::VirtioMq => {
                region.starts_with("virtio-pci") || region.starts_with("virtio-net")
            }
            Self::E1000 => region.starts_with("e1000-"),
            Self::E1000e => region.starts_with("e1000e-"),
            Self::Vmxnet3 => region.starts_with("vmxnet3-"),
            Self::Passthrough(_) => false,
        }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

impl FromStr for Nic {
    type Err = GuestError;

    fn from_str(text: &str) -> Result<Self, GuestError> {
        let wrong = || GuestError::Card(text.to_owned());
        Ok(match text {
            "virtio" => Self::Virtio,
            "virtio-vhost" => Self::VirtioVhost,
            "virtio-mq" => Self::VirtioMq,
            "e1000" => Self::E1000,
            "e1000e" => Self::E1000e,
            "vmxnet3" => Self::Vmxnet3,
            other => {
                let pci = other.strip_prefix("passthrough=").filter(|pci| is_pci(pci)).ok_or_else(wrong)?;
                Self::Passthrough(pci.to_owned())
            }
        })
    }
}

/// An address on the PCI bus as libvirt writes it.
fn pci_attributes(pci: &str) -> String {
    let (address, function) = pci.rsplit_once('.').unwrap_or((pci, "0"));
    let mut parts = address.rsplit(':');
    let [slot, bus, domain] = [(); 3].map(|()| parts.next().unwrap_or("0000"));
    format!("domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'")
}

/// `0000:01:00.0`, or without the domain.
fn is_pci(text: &str) -> bool {
    let Some((bus, function)) = text.rsplit_once('.') else { return false };
    let hex = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
    matches!(bus.split(':').count(), 2 | 3) && bus.split(':').all(hex) && function.len() == 1 && hex(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_a_word() {
        for text in ["virtio", "virtio-vhost", "virtio-mq", "e1000", "e1000e", "vmxnet3", "passthrough=0000:01:00.0"] {
            assert_eq!(text.parse::<Nic>().unwrap().key(), text);
        }
        for wrong in ["rtl8139", "passthrough=", "passthrough=x", "passthrough=1.0,evil"] {
            assert!(wrong.parse::<Nic>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn libvirt_gets_model_driver_and_address() {
        let element = Nic::VirtioMq.libvirt("tap0", "52:54:00:ec:00:01");
        assert!(element.contains("<model type='virtio'/>") && element.contains("queues='2'"), "{element}");
        for pci in ["0000:01:02.3", "01:02.3"] {
            let element = Nic::Passthrough(pci.into()).libvirt("tap0", "");
            let address = "domain='0x0000' bus='0x01' slot='0x02' function='0x3'";
            assert!(element.contains(address), "{element}");
        }
    }

    #[test]
    fn regions_of_one_model_are_not_anothers() {
        assert!(Nic::E1000.owns("e1000-mmio") && !Nic::E1000.owns("e1000e-mmio"));
        assert!(Nic::E1000e.owns("e1000e-mmio") && !Nic::E1000e.owns("e1000-mmio"));
        assert!(Nic::Virtio.owns("virtio-pci-notify-virtio-net") && !Nic::Virtio.owns("serial"));
    }
}
