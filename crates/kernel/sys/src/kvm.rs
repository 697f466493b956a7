//! Cost of a guest's exit on this machine, measured on one of three instructions.

use std::io;

/// Nanoseconds of an exit to user space and of the way back, as an access to a register of a card takes it that a program emulates: the median of ten
/// batches of 1,000.
///
/// # Errors
/// There is no KVM, or it runs nothing. That it does is no proof that it carries a guest.
pub fn exit_ns() -> io::Result<f64> {
    #[cfg(target_arch = "x86_64")]
    return x86::exit_ns();
    #[cfg(not(target_arch = "x86_64"))]
    Err(io::Error::new(io::ErrorKind::Unsupported, "an exit is measured on x86-64 alone"))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{io, time::Instant};

    use kvm_bindings::kvm_userspace_memory_region;
    use kvm_ioctls::{Kvm, VcpuExit};

    /// `out 0x10, al; jmp -4`: every turn is an exit to user space.
    const PROGRAM: [u8; 4] = [0xe6, 0x10, 0xeb, 0xfc];
    /// Address of the code, and its start.
    const AT: u64 = 0x1000;
    const PAGE: usize = 4096;
    /// Exits of a batch, and batches, of which the median counts.
    const EXITS: u32 = 1000;
    const BATCHES: usize = 10;

    pub(super) fn exit_ns() -> io::Result<f64> {
        let failed = |e: kvm_ioctls::Error| io::Error::from_raw_os_error(e.errno());
        let vm = Kvm::new().and_then(|kvm| kvm.create_vm()).map_err(failed)?;
        let memory = Page::new()?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: AT,
            memory_size: PAGE as u64,
            userspace_addr: memory.0 as u64,
        };
        // SAFETY: the region is a mapping of ours of that size, which outlives the guest: it is dropped after `vm`'s last use below.
        unsafe { vm.set_user_memory_region(region) }.map_err(failed)?;
        let mut cpu = vm.create_vcpu(0).map_err(failed)?;
        let mut segments = cpu.get_sregs().map_err(failed)?;
        (segments.cs.base, segments.cs.selector) = (0, 0);
        cpu.set_sregs(&segments).map_err(failed)?;
        let mut registers = cpu.get_regs().map_err(failed)?;
        // The bit of the flags that is always set.
        (registers.rip, registers.rflags) = (AT, 2);
        cpu.set_regs(&registers).map_err(failed)?;
        let mut batches = Vec::with_capacity(BATCHES);
        // The first brings everything into the caches.
        for _ in 0..=BATCHES {
            let began = Instant::now();
            for _ in 0..EXITS {
                match cpu.run().map_err(failed)? {
                    VcpuExit::IoOut(..) => {}
                    other => return Err(io::Error::other(format!("another exit than was asked for: {other:?}"))),
                }
            }
            batches.push(began.elapsed().as_nanos() as f64 / f64::from(EXITS));
        }
        let batches = &mut batches[1..];
        batches.sort_by(f64::total_cmp);
        drop(cpu);
        drop(vm);
        Ok(batches[batches.len() / 2])
    }

    struct Page(*mut u8);

    impl Page {
        fn new() -> io::Result<Self> {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a mapping of its own at an address that the kernel chooses.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let page = Self(at.cast());
            // SAFETY: the page is writable and longer than the program; nobody else knows of it yet.
            unsafe { std::ptr::copy_nonoverlapping(PROGRAM.as_ptr(), page.0, PROGRAM.len()) };
            Ok(page)
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the mapping of `new`, which nothing refers to any more.
            unsafe { libc::munmap(self.0.cast(), PAGE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_takes_time_or_is_refused() {
        match exit_ns() {
            Ok(ns) => assert!((100.0..1e6).contains(&ns), "{ns}"),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}
