//! The memory policy of a thread (set_mempolicy(2)).

const WORDS: usize = 16;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// Prefers one NUMA node for what this thread allocates; the policy that was there comes back when it is dropped.
#[derive(Debug)]
pub(crate) struct PreferredNode {
    before: Policy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Policy {
    mode: libc::c_int,
    nodes: [libc::c_ulong; WORDS],
}

impl PreferredNode {
    /// None where the kernel has no NUMA, or no such node: then there is nothing to choose, and nothing was changed.
    pub(crate) fn enter(node: u32) -> Option<Self> {
        let before = Policy::current()?;
        let mut wanted = Policy { mode: libc::MPOL_PREFERRED, nodes: [0; WORDS] };
        *wanted.nodes.get_mut(node as usize / WORD_BITS)? = 1 << (node as usize % WORD_BITS);
        wanted.set().then_some(Self { before })
    }
}

impl Drop for PreferredNode {
    fn drop(&mut self) {
        self.before.set();
    }
}

impl Policy {
    fn current() -> Option<Self> {
        let mut policy = Self { mode: 0, nodes: [0; WORDS] };
        let (mode, nodes) = (&raw mut policy.mode, policy.nodes.as_mut_ptr());
        // SAFETY: both pointers are to live memory of ours, and the kernel writes no more bits than are named; no address is asked for.
        let code = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                mode,
                nodes,
                WORDS * WORD_BITS,
                std::ptr::null::<libc::c_void>(),
                0 as libc::c_ulong,
            )
        };
        (code == 0).then_some(policy)
    }

    fn set(&self) -> bool {
        // SAFETY: the mask is live, and the kernel reads no more bits than are named.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), WORDS * WORD_BITS) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_before_comes_back() {
        let Some(first) = Policy::current() else {
            eprintln!("skipped: this kernel has no memory policies");
            return;
        };
        let mut interleaved = Policy { mode: libc::MPOL_INTERLEAVE, nodes: [0; WORDS] };
        interleaved.nodes[0] = 1;
        assert!(interleaved.set());
        let preferred = PreferredNode::enter(0).expect("node 0");
        assert_eq!(Policy::current().map(|p| p.mode), Some(libc::MPOL_PREFERRED));
        drop(preferred);
        assert_eq!(Policy::current(), Some(interleaved.clone()));
        assert!(PreferredNode::enter(900).is_none());
        assert_eq!(Policy::current(), Some(interleaved));
        assert!(first.set());
    }
}
