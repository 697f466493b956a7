//! libpcap, loaded by dlopen(3), so that a program starts without it: capture files, and filters in tcpdump's syntax.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::{self, NonNull},
    slice,
    sync::OnceLock,
};

use crate::packet::Instruction;

/// Names of the library: of Debian and Ubuntu, then of Fedora, RHEL and Arch.
const NAMES: [&CStr; 2] = [c"libpcap.so.0.8", c"libpcap.so.1"];
/// PCAP_ERRBUF_SIZE of pcap/pcap.h, in bytes.
const ERROR_LEN: usize = 256;
/// PCAP_TSTAMP_PRECISION_NANO of pcap/pcap.h.
const NANOSECONDS: c_int = 1;
/// PCAP_ERROR_BREAK of pcap/pcap.h, the result of pcap_next_ex at the end of a file.
const END_OF_FILE: c_int = -2;
/// Bytes of the kernel's buffer for a handle that reads no packets.
const BUFFER_LEN: c_int = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    #[error(
        "libpcap is not installed ({0}); install the package libpcap0.8 (libpcap0.8t64 on Debian 13 and Ubuntu 24.04, libpcap on Fedora, RHEL and Arch)"
    )]
    Missing(String),
    /// The library's own message.
    #[error("{0}")]
    Libpcap(String),
}

model::classified!(PcapError: Usage, Lacking: Missing);

/// pcap_t.
#[repr(C)]
struct Raw(c_void);

/// struct bpf_program of pcap/bpf.h. An instruction is the kernel's struct sock_filter.
#[repr(C)]
struct RawProgram {
    len: u32,
    instructions: *mut libc::sock_filter,
}

/// struct pcap_pkthdr of pcap/pcap.h.
#[repr(C)]
struct RawHeader {
    time: libc::timeval,
    kept: u32,
    len: u32,
}

macro_rules! library {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of libpcap with the signatures of pcap/pcap.h.
        struct Library { $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Library {
            fn load() -> Result<Self, String> {
                // SAFETY: the name ends with NUL, and libpcap has no constructors that dlopen would run.
                let handle = NAMES.iter().map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) }).find(|h| !h.is_null());
                let handle = handle.ok_or_else(dl_error)?;
                Ok(Self { $($field: {
                    // SAFETY: the handle is of dlopen(3) and never closed, and the name ends with NUL.
                    let address = unsafe { libc::dlsym(handle, $symbol.as_ptr()) };
                    if address.is_null() {
                        return Err(dl_error());
                    }
                    // SAFETY: the function of that name has this signature since libpcap 1.5 (pcap/pcap.h).
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address) }
                },)* })
            }
        }
    };
}

library! {
    create = c"pcap_create": fn(*const c_char, *mut c_char) -> *mut Raw;
    set_snaplen = c"pcap_set_snaplen": fn(*mut Raw, c_int) -> c_int;
    set_buffer_len = c"pcap_set_buffer_size": fn(*mut Raw, c_int) -> c_int;
    activate = c"pcap_activate": fn(*mut Raw) -> c_int;
    open_dead = c"pcap_open_dead": fn(c_int, c_int) -> *mut Raw;
    open_file = c"pcap_open_offline_with_tstamp_precision": fn(*const c_char, u32, *mut c_char) -> *mut Raw;
    link_type = c"pcap_datalink": fn(*mut Raw) -> c_int;
    link_name = c"pcap_datalink_val_to_name": fn(c_int) -> *const c_char;
    compile = c"pcap_compile": fn(*mut Raw, *mut RawProgram, *const c_char, c_int, u32) -> c_int;
    free_program = c"pcap_freecode": fn(*mut RawProgram);
    next = c"pcap_next_ex": fn(*mut Raw, *mut *mut RawHeader, *mut *const c_uchar) -> c_int;
    error = c"pcap_geterr": fn(*mut Raw) -> *mut c_char;
    status = c"pcap_statustostr": fn(c_int) -> *const c_char;
    close = c"pcap_close": fn(*mut Raw);
}

fn dl_error() -> String {
    // SAFETY: dlerror(3) returns the message of this thread's last failure, or null.
    unsafe { text(libc::dlerror()) }
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `text` is null or ends with NUL.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by this function's own condition.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn library() -> Result<&'static Library, PcapError> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).as_ref().map_err(|reason| PcapError::Missing(reason.clone()))
}

/// Loads the library. After a process gives up its rights to files it is too late.
///
/// # Errors
/// [`PcapError::Missing`] if the library is not installed.
pub fn load() -> Result<(), PcapError> {
    library().map(|_| ())
}

/// The name of a link type (`EN10MB`), or its number.
pub fn link_name(link_type: i32) -> String {
    let name = library().map(|library| {
        // SAFETY: the function takes any number, and returns a constant string or null.
        unsafe { text((library.link_name)(link_type)) }
    });
    name.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| link_type.to_string())
}

/// A handle of libpcap: of a file, of an interface, or of a link type alone.
pub struct Pcap {
    library: &'static Library,
    raw: NonNull<Raw>,
}

/// A packet of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcapPacket<'a> {
    /// Seconds since 1970, with the sign that libpcap gives them.
    pub seconds: i64,
    /// Nanoseconds within the second, unchecked.
    pub nanoseconds: i64,
    /// Bytes on the wire, without FCS.
    pub wire_len: u32,
    pub data: &'a [u8],
    handle: PhantomData<&'a mut Pcap>,
}

// SAFETY: a handle of libpcap has no state that belongs to a thread.
unsafe impl Send for Pcap {}

impl Pcap {
    /// A handle that compiles filters for a link type (LINKTYPE_…, 1 for Ethernet).
    pub fn of_link_type(link_type: i32) -> Result<Self, PcapError> {
        let library = library()?;
        // SAFETY: the function takes any numbers.
        let raw = unsafe { (library.open_dead)(link_type, u16::MAX.into()) };
        Self::of(library, raw, || "out of memory".to_owned())
    }

    /// Opens a capture file, `-` for the standard input.
    pub fn of_file(path: &Path) -> Result<Self, PcapError> {
        let library = library()?;
        let path = c_string(path.as_os_str().as_bytes())?;
        let mut error = [0; ERROR_LEN];
        // SAFETY: the path ends with NUL, and the buffer has PCAP_ERRBUF_SIZE bytes.
        let raw = unsafe { (library.open_file)(path.as_ptr(), NANOSECONDS.unsigned_abs(), error.as_mut_ptr()) };
        // SAFETY: the function has written a message that ends with NUL, or the buffer is still zero.
        Self::of(library, raw, || unsafe { text(error.as_ptr()) })
    }

    /// A handle that compiles filters for an interface of this network namespace, with instructions that ask the kernel for VLAN tags which it has
    /// taken out of the frame. Needs CAP_NET_RAW.
    pub fn of_interface(name: &str, snaplen: u32) -> Result<Self, PcapError> {
        let library = library()?;
        let name = c_string(name.as_bytes())?;
        let mut error = [0; ERROR_LEN];
        // SAFETY: the name ends with NUL, and the buffer has PCAP_ERRBUF_SIZE bytes.
        let raw = unsafe { (library.create)(name.as_ptr(), error.as_mut_ptr()) };
        // SAFETY: as in of_file().
        let handle = Self::of(library, raw, || unsafe { text(error.as_ptr()) })?;
        // SAFETY: the handle is open and not active yet.
        let code = unsafe {
            (library.set_snaplen)(handle.raw.as_ptr(), i32::try_from(snaplen).unwrap_or(i32::MAX));
            (library.set_buffer_len)(handle.raw.as_ptr(), BUFFER_LEN);
            (library.activate)(handle.raw.as_ptr())
        };
        // Codes above zero are warnings.
        if code < 0 {
            let reason = Some(handle.error()).filter(|reason| !reason.is_empty());
            // SAFETY: the function takes any number. Its string is valid until the next call, and copied here.
            let reason = reason.unwrap_or_else(|| unsafe { text((library.status)(code)) });
            return Err(PcapError::Libpcap(reason));
        }
        Ok(handle)
    }

    fn of(library: &'static Library, raw: *mut Raw, reason: impl FnOnce() -> String) -> Result<Self, PcapError> {
        let raw = NonNull::new(raw).ok_or_else(|| PcapError::Libpcap(reason()))?;
        Ok(Self { library, raw })
    }

    fn error(&self) -> String {
        // SAFETY: the handle is open. The message is part of it, and copied here.
        unsafe { text((self.library.error)(self.raw.as_ptr())) }
    }

    /// The link type of its packets (DLT_… of pcap/dlt.h).
    pub fn link_type(&self) -> i32 {
        // SAFETY: the handle is open and active.
        unsafe { (self.library.link_type)(self.raw.as_ptr()) }
    }

    /// The program of a filter in tcpdump's syntax (pcap-filter(7)).
    ///
    /// # Errors
    /// [`PcapError::Libpcap`] with the error in the filter.
    pub fn compile(&self, filter: &str) -> Result<Vec<Instruction>, PcapError> {
        let filter = c_string(filter.as_bytes())?;
        let mut program = RawProgram { len: 0, instructions: ptr::null_mut() };
        // SAFETY: the handle is open and active, `program` is writable, and the filter ends with NUL. The netmask 0 is tcpdump's for an interface
        // without one; without a netmask libpcap refuses `ip broadcast`.
        let code = unsafe { (self.library.compile)(self.raw.as_ptr(), &raw mut program, filter.as_ptr(), 1, 0) };
        if code < 0 {
            return Err(PcapError::Libpcap(self.error()));
        }
        let found = if program.instructions.is_null() {
            Vec::new()
        } else {
            // SAFETY: pcap_compile has written `len` instructions, which exist until pcap_freecode.
            let raw = unsafe { slice::from_raw_parts(program.instructions, program.len as usize) };
            raw.iter().map(|i| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect()
        };
        // SAFETY: pcap_compile has filled the program, and nothing uses it afterwards.
        unsafe { (self.library.free_program)(&raw mut program) };
        Ok(found)
    }

    /// The next packet of a file; none at its end. Its bytes are valid until the next call.
    ///
    /// # Errors
    /// [`PcapError::Libpcap`] if the file ends within a packet or is damaged.
    pub fn next_packet(&mut self) -> Result<Option<PcapPacket<'_>>, PcapError> {
        let (mut header, mut data) = (ptr::null_mut(), ptr::null());
        // SAFETY: the handle is open and active, and both pointers are writable.
        match unsafe { (self.library.next)(self.raw.as_ptr(), &raw mut header, &raw mut data) } {
            1 => {}
            END_OF_FILE => return Ok(None),
            _ => return Err(PcapError::Libpcap(self.error())),
        }
        // SAFETY: with the result 1 both pointers are valid until the next call on the handle, which the borrow excludes.
        let (header, data) = unsafe { (&*header, slice::from_raw_parts(data, (*header).kept as usize)) };
        let (seconds, nanoseconds) = (header.time.tv_sec, header.time.tv_usec);
        Ok(Some(PcapPacket { seconds, nanoseconds, wire_len: header.len, data, handle: PhantomData }))
    }
}

impl Drop for Pcap {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nothing uses it afterwards.
        unsafe { (self.library.close)(self.raw.as_ptr()) };
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, PcapError> {
    CString::new(bytes).map_err(|_| PcapError::Libpcap("it has a NUL byte".to_owned()))
}

#[cfg(test)]
mod tests;
