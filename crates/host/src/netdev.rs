//! The kernel's list of NAPI instances (generic netlink family `netdev`, Linux 6.8 and later).

use neli::{
    consts::{nl::NlmF, socket::NlFamily},
    genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, NlattrBuilder, NoUserHeader},
    nl::{NlPayload, Nlmsghdr},
    router::synchronous::NlRouter,
    types::GenlBuffer,
    utils::Groups,
};
use serde::{Deserialize, Serialize};

/// Commands and attributes of include/uapi/linux/netdev.h.
const CMD_QUEUE_GET: u8 = 10;
const CMD_NAPI_GET: u8 = 11;
const CMD_NAPI_SET: u8 = 14;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;
const NAPI_DEFER_HARD_IRQS: u16 = 5;
const NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NAPI_THREADED: u16 = 8;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
const QUEUE_TYPE_RX: u32 = 0;

/// What can go wrong with the `netdev` family.
#[derive(Debug, thiserror::Error)]
pub enum NetdevError {
    /// No netlink socket.
    #[error("cannot open a netlink socket: {0}")]
    Open(String),
    /// The kernel answered with an error.
    #[error("cannot {operation} over netlink: {why}")]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// Why not.
        why: String,
    },
}

impl model::Classified for NetdevError {
    fn class(&self) -> model::ErrorClass {
        model::ErrorClass::Lacking
    }
}

/// A NAPI instance as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NapiEntry {
    /// The interface's index.
    pub ifindex: u32,
    /// The NAPI id.
    pub id: u32,
    /// The interrupt that schedules it, when the driver tells.
    pub irq: Option<u32>,
    /// The process id of its kernel thread, when threaded.
    pub pid: Option<u32>,
    /// The receive queue it serves, when the driver tells.
    pub rx_queue: Option<u32>,
}

/// What can be set on one NAPI instance; none stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NapiSettings {
    /// How many empty polls before the interrupt is enabled again.
    pub defer_hard_irqs: Option<u32>,
    /// How long to wait with the interrupt off, in nanoseconds.
    pub gro_flush_timeout_ns: Option<u32>,
    /// Poll in a kernel thread of its own (Linux 6.17 and later).
    pub threaded: Option<bool>,
}

type Attributes = Genlmsghdr<u8, u16>;

/// A connection to the `netdev` family of this thread's network namespace.
pub struct Netdev {
    router: NlRouter,
    family: u16,
}

impl Netdev {
    /// Connects; none when the kernel has no such family (before 6.3).
    ///
    /// # Errors
    /// When no netlink socket can be opened.
    pub fn open() -> Result<Option<Self>, NetdevError> {
        let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty())
            .map_err(|e| NetdevError::Open(e.to_string()))?;
        Ok(router.resolve_genl_family("netdev").ok().map(|family| Self { router, family }))
    }

    /// Every NAPI instance of the namespace, by interface and id; none when the kernel does not list them (before 6.8).
    pub fn napis(&self) -> Option<Vec<NapiEntry>> {
        let mut napis: Vec<NapiEntry> = self.dump(CMD_NAPI_GET)?.iter().filter_map(napi).collect();
        for message in self.dump(CMD_QUEUE_GET).unwrap_or_default() {
            let get = |attribute| attribute_u32(&message, attribute);
            let (Some(queue), Some(ifindex), Some(id)) = (get(QUEUE_ID), get(QUEUE_IFINDEX), get(QUEUE_NAPI_ID)) else {
                continue;
            };
            let of_queue = |napi: &&mut NapiEntry| napi.id == id && napi.ifindex == ifindex;
            if get(QUEUE_TYPE) == Some(QUEUE_TYPE_RX)
                && let Some(napi) = napis.iter_mut().find(of_queue)
            {
                napi.rx_queue = Some(queue);
            }
        }
        napis.sort_by_key(|napi| (napi.ifindex, napi.id));
        Some(napis)
    }

    /// Sets one NAPI instance (Linux 6.13 and later).
    ///
    /// # Errors
    /// When the kernel lacks the command or refuses it.
    pub fn set_napi(&self, id: u32, settings: NapiSettings) -> Result<(), NetdevError> {
        let mut attributes = vec![(NAPI_ID, id)];
        attributes.extend(settings.defer_hard_irqs.map(|n| (NAPI_DEFER_HARD_IRQS, n)));
        attributes.extend(settings.gro_flush_timeout_ns.map(|n| (NAPI_GRO_FLUSH_TIMEOUT, n)));
        attributes.extend(settings.threaded.map(|on| (NAPI_THREADED, u32::from(on))));
        self.request(CMD_NAPI_SET, &attributes, NlmF::ACK, "set a NAPI instance").map(drop)
    }

    fn dump(&self, command: u8) -> Option<Vec<Attributes>> {
        self.request(command, &[], NlmF::DUMP, "list NAPI instances").ok()
    }

    fn request(
        &self,
        command: u8,
        attributes: &[(u16, u32)],
        flags: NlmF,
        operation: &'static str,
    ) -> Result<Vec<Attributes>, NetdevError> {
        let refused = |why: String| NetdevError::Refused { operation, why };
        let attributes = attributes
            .iter()
            .map(|&(kind, value)| {
                let kind = AttrTypeBuilder::default().nla_type(kind).build().map_err(|e| refused(e.to_string()))?;
                NlattrBuilder::default().nla_type(kind).nla_payload(value).build().map_err(|e| refused(e.to_string()))
            })
            .collect::<Result<GenlBuffer<u16, neli::types::Buffer>, _>>()?;
        let header = GenlmsghdrBuilder::<u8, u16, NoUserHeader>::default()
            .cmd(command)
            .version(1)
            .attrs(attributes)
            .build()
            .map_err(|e| refused(e.to_string()))?;
        let answers = self
            .router
            .send::<_, _, u16, Attributes>(self.family, flags, NlPayload::Payload(header))
            .map_err(|e| refused(e.to_string()))?;
        let mut messages = Vec::new();
        for answer in answers {
            let answer: Nlmsghdr<u16, Attributes> = answer.map_err(|e| refused(e.to_string()))?;
            if let NlPayload::Payload(message) = answer.nl_payload() {
                messages.push(message.clone());
            }
        }
        Ok(messages)
    }
}

fn attribute_u32(message: &Attributes, attribute: u16) -> Option<u32> {
    message.attrs().get_attr_handle().get_attr_payload_as::<u32>(attribute).ok()
}

fn napi(message: &Attributes) -> Option<NapiEntry> {
    Some(NapiEntry {
        ifindex: attribute_u32(message, NAPI_IFINDEX)?,
        id: attribute_u32(message, NAPI_ID)?,
        irq: attribute_u32(message, NAPI_IRQ).filter(|&irq| irq != 0),
        pid: attribute_u32(message, NAPI_PID).filter(|&pid| pid != 0),
        rx_queue: None,
    })
}
