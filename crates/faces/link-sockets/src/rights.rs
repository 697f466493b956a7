//! The calls by which a program gives up root's rights. What it carries connections with are root's packet sockets: those stay with a process of root's that
//! carries on, and the program has none of them when the call returns.

use std::ffi::{c_int, c_void};

use libc::uid_t;

use crate::{leave::carries_on, locked::Locked, real::real, teardown::may_begin};

/// As it is, to setreuid(2) and its kin.
const SAME: uid_t = uid_t::MAX;
/// The bit of CAP_NET_RAW in the first word of capabilities (include/uapi/linux/capability.h).
const NET_RAW: u32 = 1 << 13;

/// The users of a process: real, in effect, saved.
type Users = [uid_t; 3];

/// setuid(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setuid(user: uid_t) -> c_int {
    // Who is not root changes the one in effect alone.
    let after = |[real, effect, saved]: Users| if effect == 0 { [user; 3] } else { [real, user, saved] };
    // SAFETY: the caller's argument, as it came.
    giving_up(gives_up_root(after), || unsafe { (real().setuid)(user) })
}

/// seteuid(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seteuid(user: uid_t) -> c_int {
    let after = |[real, _, saved]: Users| [real, user, saved];
    // SAFETY: the caller's argument, as it came.
    giving_up(gives_up_root(after), || unsafe { (real().seteuid)(user) })
}

/// setreuid(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setreuid(user: uid_t, in_effect: uid_t) -> c_int {
    // SAFETY: the caller's arguments, as they came.
    giving_up(gives_up_root(|users| reset(users, user, in_effect)), || unsafe { (real().setreuid)(user, in_effect) })
}

/// setresuid(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setresuid(user: uid_t, in_effect: uid_t, saved: uid_t) -> c_int {
    let after = |users: Users| {
        let new = [user, in_effect, saved];
        std::array::from_fn(|at| if new[at] == SAME { users[at] } else { new[at] })
    };
    // SAFETY: the caller's arguments, as they came.
    giving_up(gives_up_root(after), || unsafe { (real().setresuid)(user, in_effect, saved) })
}

/// capset(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    // SAFETY: where there are data, three words at least are, by the caller: in effect, permitted, inheritable.
    let permitted = (!data.is_null()).then(|| unsafe { data.cast::<u32>().add(1).read_unaligned() });
    // SAFETY: the caller's arguments, as they came.
    giving_up(permitted.is_some_and(|bits| bits & NET_RAW == 0), || unsafe { (real().capset)(header, data) })
}

/// The users after setreuid(2).
fn reset([was, effect, saved]: Users, user: uid_t, in_effect: uid_t) -> Users {
    let of = |new, old| if new == SAME { old } else { new };
    let after = of(in_effect, effect);
    let is_saved = user != SAME || (in_effect != SAME && in_effect != was);
    [of(user, was), after, if is_saved { after } else { saved }]
}

/// Is this process root's in one way or another, and in none after a call?
fn gives_up_root(after: impl FnOnce(Users) -> Users) -> bool {
    let mut users = [SAME; 3];
    let [real, effect, saved] = &mut users;
    // SAFETY: the places are this function's.
    let told = unsafe { libc::getresuid(real, effect, saved) } == 0;
    told && users.contains(&0) && !after(users).contains(&0)
}

/// Makes a call; before one that gives up rights the sockets go.
fn giving_up(gives_up: bool, call: impl FnOnce() -> c_int) -> c_int {
    let locked = if gives_up { Locked::take() } else { None };
    let Some(mut locked) = locked.filter(Locked::has_begun) else { return call() };
    let goes_on = carries_on(&mut locked);
    locked.end(goes_on);
    let done = call();
    // As who it is now.
    may_begin();
    done
}
