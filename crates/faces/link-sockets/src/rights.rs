//! The calls by which a program gives up root. Its engine has root's packet sockets: those go to a child of root's, which carries the connections on, and
//! the program has none of them when the call returns.

use std::ffi::{c_int, c_void};

use libc::uid_t;

use crate::{exit::hand_to_child, locked::Locked, real::real, teardown::allow_start};

/// "Unchanged", to setreuid(2) and its kin.
const SAME: uid_t = uid_t::MAX;
/// The bit of CAP_NET_RAW in the first word of capabilities (include/uapi/linux/capability.h).
const NET_RAW: u32 = 1 << 13;

/// User ids of a process: real, effective, saved.
type Users = [uid_t; 3];

/// setuid(2).
///
/// # Safety
/// The contract of setuid(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setuid(user: uid_t) -> c_int {
    // Without root it changes the effective one alone.
    let after = |[real, effect, saved]: Users| if effect == 0 { [user; 3] } else { [real, user, saved] };
    // SAFETY: the caller's argument, unchanged.
    dropping_root(gives_up_root(after), || unsafe { (real().setuid)(user) })
}

/// seteuid(3).
///
/// # Safety
/// The contract of seteuid(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seteuid(user: uid_t) -> c_int {
    let after = |[real, _, saved]: Users| [real, user, saved];
    // SAFETY: the caller's argument, unchanged.
    dropping_root(gives_up_root(after), || unsafe { (real().seteuid)(user) })
}

/// setreuid(2).
///
/// # Safety
/// The contract of setreuid(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setreuid(user: uid_t, in_effect: uid_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    dropping_root(gives_up_root(|users| reset(users, user, in_effect)), || unsafe {
        (real().setreuid)(user, in_effect)
    })
}

/// setresuid(2).
///
/// # Safety
/// The contract of setresuid(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setresuid(user: uid_t, in_effect: uid_t, saved: uid_t) -> c_int {
    let after = |users: Users| {
        let new = [user, in_effect, saved];
        std::array::from_fn(|at| if new[at] == SAME { users[at] } else { new[at] })
    };
    // SAFETY: the caller's arguments, unchanged.
    dropping_root(gives_up_root(after), || unsafe { (real().setresuid)(user, in_effect, saved) })
}

/// capset(2).
///
/// # Safety
/// The contract of capset(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    // SAFETY: where there are data, three words at least are, by the caller: in effect, permitted, inheritable.
    let permitted = (!data.is_null()).then(|| unsafe { data.cast::<u32>().add(1).read_unaligned() });
    // SAFETY: the caller's arguments, unchanged.
    dropping_root(permitted.is_some_and(|bits| bits & NET_RAW == 0), || unsafe { (real().capset)(header, data) })
}

/// User ids after setreuid(2).
fn reset([was, effect, saved]: Users, user: uid_t, in_effect: uid_t) -> Users {
    let of = |new, old| if new == SAME { old } else { new };
    let after = of(in_effect, effect);
    let is_saved = user != SAME || (in_effect != SAME && in_effect != was);
    [of(user, was), after, if is_saved { after } else { saved }]
}

/// True if a call takes the last of this process's three user ids from root.
fn gives_up_root(after: impl FnOnce(Users) -> Users) -> bool {
    let mut users = [SAME; 3];
    let [real, effect, saved] = &mut users;
    // SAFETY: the places are this function's.
    let is_known = unsafe { libc::getresuid(real, effect, saved) } == 0;
    is_known && users.contains(&0) && !after(users).contains(&0)
}

/// Makes a call; before one that gives up root the engine's sockets are closed.
fn dropping_root(gives_up: bool, call: impl FnOnce() -> c_int) -> c_int {
    let locked = if gives_up { Locked::take() } else { None };
    let Some(mut locked) = locked.filter(Locked::has_started) else { return call() };
    let goes_on = hand_to_child(&mut locked);
    locked.end(goes_on);
    let done = call();
    // The engine starts again as the new user, if the broker lets it.
    allow_start();
    done
}
