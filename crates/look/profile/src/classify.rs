//! Class of a stack: pure.

use model::profile::Class;

use crate::rules::{Rule, Rules};

/// The class of a stack, and the function that decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classification<'a> {
    pub class: Class,
    /// The function that decided: the innermost one that a rule names for itself. For locks the function that takes the lock.
    /// None when no function decided.
    pub function: Option<&'a str>,
    /// For locks: whether the time went into waiting for somebody else, and the class of the function that takes the lock.
    pub lock: Option<LockUse>,
    /// True if functions that no rule names lie inside of the one that decided.
    pub attributed_to_caller: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockUse {
    /// True if the time went into waiting.
    pub waiting: bool,
    /// The class of the function that takes the lock.
    pub owner: Class,
}

/// Classes a kernel stack by the built-in table. `frames` are names, innermost first; a frame without a symbol is an empty name.
pub fn classify<'a>(frames: &[&'a str]) -> Classification<'a> {
    classify_by(Rules::built_in(), frames)
}

/// [`classify`] by another table.
pub fn classify_by<'a>(rules: &Rules, frames: &[&'a str]) -> Classification<'a> {
    let mut lock: Option<bool> = None;
    let mut unnamed = false;
    for &function in frames {
        match rules.rule(function) {
            Some(Rule::Class(class)) => {
                return match lock {
                    Some(waiting) => of_lock(function, waiting, class),
                    None => {
                        Classification { class, function: Some(function), lock: None, attributed_to_caller: unnamed }
                    }
                };
            }
            Some(Rule::Caller) => {}
            // A lock within a function that no rule names is that function's lock.
            Some(Rule::Lock) if !unnamed => lock = Some(lock.unwrap_or(false)),
            Some(Rule::Waiting) if !unnamed => lock = Some(true),
            Some(Rule::Lock | Rule::Waiting) => {}
            None => match lock {
                Some(waiting) => {
                    let owner = classify_by(rules, rest_after(frames, function)).class;
                    return of_lock(function, waiting, owner);
                }
                None => unnamed = true,
            },
        }
    }
    match lock {
        Some(waiting) => Classification {
            class: Class::Locks,
            function: None,
            lock: Some(LockUse { waiting, owner: Class::Unclassified }),
            attributed_to_caller: false,
        },
        None => Classification { class: Class::Unclassified, function: None, lock: None, attributed_to_caller: false },
    }
}

fn of_lock(function: &str, waiting: bool, owner: Class) -> Classification<'_> {
    Classification {
        class: Class::Locks,
        function: Some(function),
        lock: Some(LockUse { waiting, owner }),
        attributed_to_caller: false,
    }
}

/// The frames outside of `function`.
fn rest_after<'a, 'b>(frames: &'b [&'a str], function: &str) -> &'b [&'a str] {
    let at = frames.iter().position(|f| std::ptr::eq(*f, function)).map_or(frames.len(), |i| i + 1);
    &frames[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(frames: &[&str]) -> Class {
        classify(frames).class
    }

    #[test]
    fn the_innermost_known_function_decides() {
        assert_eq!(class(&["fib_table_lookup", "ip_route_input_slow", "ip_rcv", "net_rx_action"]), Class::Ip);
        assert_eq!(class(&["kmem_cache_free", "ip_rcv"]), Class::Memory);
        assert_eq!(class(&["__pi_memcpy", "tpacket_rcv"]), Class::Copying);
    }

    #[test]
    fn helpers_are_charged_to_their_caller() {
        assert_eq!(class(&["__rcu_read_lock", "veth_xmit", "dev_hard_start_xmit"]), Class::Transmit);
        assert_eq!(class(&["_raw_spin_unlock_irqrestore", "__skb_try_recv_datagram", "packet_recvmsg"]), Class::Taps);
        let verdict = classify(&["read_tsc", "ktime_get", "tick_nohz_idle_exit"]);
        assert_eq!((verdict.class, verdict.attributed_to_caller), (Class::Timers, false));
    }

    #[test]
    fn unknown_functions_are_charged_to_their_caller_and_counted() {
        let verdict = classify(&["frobnicate_skb", "__napi_poll", "net_rx_action"]);
        assert_eq!(
            (verdict.class, verdict.function, verdict.attributed_to_caller),
            (Class::Receive, Some("__napi_poll"), true)
        );
        assert_eq!(class(&["frobnicate"]), Class::Unclassified);
        assert_eq!(class(&[]), Class::Unclassified);
        assert_eq!(class(&["", "", "ip_rcv"]), Class::Ip);
    }

    #[test]
    fn a_lock_belongs_to_who_takes_it() {
        let verdict = classify(&["native_queued_spin_lock_slowpath", "_raw_spin_lock", "packet_rcv", "ip_rcv"]);
        assert_eq!((verdict.class, verdict.function), (Class::Locks, Some("packet_rcv")));
        assert_eq!(verdict.lock, Some(LockUse { waiting: true, owner: Class::Taps }));
        let verdict = classify(&["__raw_callee_save___pv_queued_spin_unlock", "_raw_spin_unlock", "veth_xdp_xmit"]);
        assert_eq!(verdict.lock, Some(LockUse { waiting: false, owner: Class::Transmit }));
        // A function that no rule names takes it; what called that one says what it belongs to.
        let verdict = classify(&["_raw_spin_lock", "frobnicate", "tcp_v4_rcv"]);
        assert_eq!((verdict.function, verdict.lock.unwrap().owner), (Some("frobnicate"), Class::Transport));
        assert_eq!(classify(&["_raw_spin_lock"]).class, Class::Locks);
    }
}
