//! The names of the kernel's drop reasons, from the running kernel itself, since their numbers change between kernels.
//!
//! The meaning of a reason and the way out are in [`explain`], by name.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CStr, CString},
    fs,
    ptr::NonNull,
};

use libbpf_rs::libbpf_sys;

use crate::program::quiet_libbpf;

mod hints;

pub use hints::{Explanation, explain};

/// `SKB_DROP_REASON_SUBSYS_SHIFT`: reasons of subsystems have the subsystem's number in the bits above.
const SUBSYSTEM_SHIFT: u32 = 16;
const PREFIX: &str = "SKB_DROP_REASON_";

/// The reasons of subsystems: the module, the enumeration in its types, the beginning of its names.
const SUBSYSTEMS: [(&str, &str, &str); 2] =
    [("openvswitch", "ovs_drop_reason", "__"), ("mac80211", "___mac80211_drop_reason", "___")];

/// The files with the format of the tracepoint, when tracefs is mounted.
const FORMATS: [&str; 2] =
    ["/sys/kernel/tracing/events/skb/kfree_skb/format", "/sys/kernel/debug/tracing/events/skb/kfree_skb/format"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasonSource {
    /// The kernel's type information.
    Btf,
    /// The format of the tracepoint skb:kfree_skb in tracefs; names of subsystems are not in it.
    Tracefs,
    /// From nowhere, for this reason: numbers are shown.
    Nowhere(String),
}

/// The names of drop reasons by number.
#[derive(Debug, Clone)]
pub struct DropReasons {
    names: BTreeMap<u32, String>,
    subsystems: BTreeMap<u32, String>,
    source: ReasonSource,
}

impl DropReasons {
    /// Reads the names from the running kernel: its BTF, else tracefs. When neither is there, [`DropReasons::source`] says why and
    /// [`DropReasons::name`] gives numbers.
    pub fn load() -> Self {
        quiet_libbpf();
        match Types::of_kernel() {
            Ok(kernel) => Self::from_btf(&kernel),
            Err(btf) => FORMATS.iter().find_map(|path| Self::from_format(&fs::read_to_string(path).ok()?)).unwrap_or_else(|| {
                let why = format!(
                    "the kernel has no type information (/sys/kernel/btf/vmlinux: {btf}), and no tracefs is mounted that \
                     names the reasons (mount -t tracefs tracefs /sys/kernel/tracing)"
                );
                Self { names: BTreeMap::new(), subsystems: BTreeMap::new(), source: ReasonSource::Nowhere(why) }
            }),
        }
    }

    fn from_btf(kernel: &Types) -> Self {
        let own = kernel.enumeration("skb_drop_reason");
        let mut names: BTreeMap<u32, String> = own
            .into_iter()
            .filter(|(name, _)| !matches!(name.strip_prefix(PREFIX), Some("MAX" | "SUBSYS_MASK")))
            .map(|(name, number)| (number, name.trim_start_matches(PREFIX).to_owned()))
            .collect();
        for (module, enumeration, prefix) in SUBSYSTEMS {
            let mut found = kernel.enumeration(enumeration);
            if found.is_empty()
                && let Some(types) = kernel.of_module(module)
            {
                found = types.enumeration(enumeration);
            }
            let own = found.into_iter().filter(|&(_, number)| number >> SUBSYSTEM_SHIFT != 0);
            names.extend(own.map(|(name, number)| (number, name.trim_start_matches(prefix).to_owned())));
        }
        let subsystems = kernel.enumeration("skb_drop_reason_subsys").into_iter();
        let subsystems = subsystems.map(|(name, n)| (n, name.replace("SKB_DROP_REASON_SUBSYS_", ""))).collect();
        Self { names, subsystems, source: ReasonSource::Btf }
    }

    /// Reads the `print fmt` line of the tracepoint: `__print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, …)`.
    fn from_format(format: &str) -> Option<Self> {
        let (_, table) = format.split_once("__print_symbolic(REC->reason,")?;
        let pairs = table.split('{').skip(1).filter_map(|pair| {
            let (number, rest) = pair.split_once(',')?;
            let name = rest.split('"').nth(1)?;
            Some((number.trim().parse().ok()?, name.trim_start_matches(PREFIX).to_owned()))
        });
        let names: BTreeMap<u32, String> = pairs.collect();
        (!names.is_empty()).then_some(Self { names, subsystems: BTreeMap::new(), source: ReasonSource::Tracefs })
    }

    /// The kernel's name of a reason without `SKB_DROP_REASON_`; a number when the name is not known.
    pub fn name(&self, reason: u32) -> Cow<'_, str> {
        if let Some(name) = self.names.get(&reason) {
            return Cow::Borrowed(name);
        }
        let (subsystem, number) = (reason >> SUBSYSTEM_SHIFT, reason & 0xffff);
        match self.subsystems.get(&subsystem) {
            Some(name) if subsystem != 0 => Cow::Owned(format!("{name} reason {number}")),
            None if subsystem != 0 => Cow::Owned(format!("subsystem {subsystem} reason {number}")),
            _ => Cow::Owned(format!("reason {reason}")),
        }
    }

    /// The number of a reason in the running kernel, by its name without `SKB_DROP_REASON_`; none if it has no such reason.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(_, n)| *n == name).map(|(&number, _)| number)
    }

    pub fn source(&self) -> &ReasonSource {
        &self.source
    }
}

/// The types of the kernel, or of one of its modules.
struct Types(NonNull<libbpf_sys::btf>);

impl Types {
    fn of_kernel() -> Result<Self, std::io::Error> {
        crate::program::quiet_libbpf();
        // SAFETY: the call takes nothing; it answers null with errno, or an object that is ours.
        let btf = unsafe { libbpf_sys::btf__load_vmlinux_btf() };
        NonNull::new(btf).map(Self).ok_or_else(std::io::Error::last_os_error)
    }

    /// Types of a loaded module, which continue the kernel's and must not outlive them.
    fn of_module(&self, module: &str) -> Option<ModuleTypes<'_>> {
        let name = CString::new(module).ok()?;
        // SAFETY: the name is a C string that outlives the call; the kernel's types are alive as long as the answer, by its lifetime.
        let btf = unsafe { libbpf_sys::btf__load_module_btf(name.as_ptr(), self.0.as_ptr()) };
        Some(ModuleTypes { types: Self(NonNull::new(btf)?), _kernel: self })
    }

    /// The names and values of an enumeration; empty if there is none of this name.
    fn enumeration(&self, name: &str) -> Vec<(String, u32)> {
        let Ok(name) = CString::new(name) else { return Vec::new() };
        // SAFETY: the object is alive and the name a C string.
        let id =
            unsafe { libbpf_sys::btf__find_by_name_kind(self.0.as_ptr(), name.as_ptr(), libbpf_sys::BTF_KIND_ENUM) };
        let Ok(id) = u32::try_from(id) else { return Vec::new() };
        // SAFETY: the id is one of this object.
        let Some(kind) = NonNull::new(unsafe { libbpf_sys::btf__type_by_id(self.0.as_ptr(), id) }.cast_mut()) else {
            return Vec::new();
        };
        // SAFETY: a type that libbpf checked when it loaded the object; an enumeration's members follow it, as many as the low 16
        // bits of `info` say (linux/btf.h), and live as long as the object.
        let members = unsafe {
            let count = (kind.as_ref().info & 0xffff) as usize;
            std::slice::from_raw_parts(kind.add(1).cast::<libbpf_sys::btf_enum>().as_ptr(), count)
        };
        members.iter().filter_map(|m| Some((self.string(m.name_off)?, m.val.cast_unsigned()))).collect()
    }

    fn string(&self, offset: u32) -> Option<String> {
        // SAFETY: the object is alive; libbpf answers null for an offset that is not in it.
        let text = unsafe { libbpf_sys::btf__name_by_offset(self.0.as_ptr(), offset) };
        if text.is_null() {
            return None;
        }
        // SAFETY: not null: a C string in the object's string section, alive as long as the object.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        // SAFETY: ours, and used by nobody after this.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) };
    }
}

/// The types of a module, with those of the kernel that they continue.
struct ModuleTypes<'a> {
    types: Types,
    _kernel: &'a Types,
}

impl ModuleTypes<'_> {
    fn enumeration(&self, name: &str) -> Vec<(String, u32)> {
        self.types.enumeration(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Debian's kernel 6.1 (shortened).
    const FORMAT: &str = "name: kfree_skb\nID: 1583\nformat:\n\tfield:void * skbaddr;\n\nprint fmt: \"skbaddr=%p protocol=%u \
        location=%p reason: %s\", REC->skbaddr, REC->protocol, REC->location, __print_symbolic(REC->reason, { 1, \
        \"NOT_SPECIFIED\" }, { 2, \"NO_SOCKET\" }, { 3, \"PKT_TOO_SMALL\" }, { 68, \"MAX\" })\n";

    #[test]
    fn names_come_from_the_format_of_the_tracepoint() {
        let reasons = DropReasons::from_format(FORMAT).expect("a table");
        assert_eq!(reasons.name(2), "NO_SOCKET");
        assert_eq!(reasons.number("PKT_TOO_SMALL"), Some(3));
        assert_eq!(reasons.source(), &ReasonSource::Tracefs);
    }

    #[test]
    fn a_reason_without_a_name_is_a_number() {
        let mut reasons = DropReasons::from_format(FORMAT).expect("a table");
        assert_eq!(reasons.name(17), "reason 17");
        assert_eq!(reasons.name((2 << 16) + 5), "subsystem 2 reason 5");
        reasons.subsystems.insert(2, "OPENVSWITCH".to_owned());
        assert_eq!(reasons.name((2 << 16) + 5), "OPENVSWITCH reason 5");
    }

    #[test]
    fn another_format_gives_no_table() {
        assert!(DropReasons::from_format("print fmt: \"skbaddr=%p\", REC->skbaddr").is_none());
        assert!(DropReasons::from_format("").is_none());
    }

    #[test]
    fn the_running_kernels_names_are_read() {
        let reasons = DropReasons::load();
        if let ReasonSource::Nowhere(why) = reasons.source() {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("skipped: {why}");
            return;
        }
        let number = reasons.number("NO_SOCKET").expect("all kernels have it");
        assert_eq!(reasons.name(number), "NO_SOCKET");
        let unexplained: Vec<&str> =
            reasons.names.values().map(String::as_str).filter(|name| explain(name).is_none()).collect();
        eprintln!("{} reasons from {:?}; without an explanation: {unexplained:?}", reasons.names.len(), reasons.source);
        assert!(unexplained.len() * 3 < reasons.names.len(), "{unexplained:?}");
    }
}
