//! The C library's functions behind those of this library.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    sync::OnceLock,
};

use libc::{
    FILE, epoll_event, fd_set, iovec, msghdr, nfds_t, pollfd, sigset_t, sockaddr, socklen_t, timespec, timeval, uid_t,
};

/// getsockname(2) or getpeername(2).
pub(crate) type GetName = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Accept = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
type Accept4 = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
type GetOption = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
type SetOption = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
type SendTo = unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize;
type SendMsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> isize;
type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type ReadV = unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize;
type Recv = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> isize;
type RecvFrom = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize;
type RecvMsg = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> isize;
type EpollCtl = unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type Poll = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type Ppoll = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
type Select = unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
type Pselect =
    unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
type EpollWait = unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
type EpollPwait = unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
type OfOne = unsafe extern "C" fn(c_int) -> c_int;
type OfTwo = unsafe extern "C" fn(c_int, c_int) -> c_int;
type OfThree = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
type Fclose = unsafe extern "C" fn(*mut FILE) -> c_int;
type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
type Exec = unsafe extern "C" fn(*const c_char, *const *const c_char) -> c_int;
type ExecIn = unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
type Fexecve = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
type OfUser = unsafe extern "C" fn(uid_t) -> c_int;
type OfTwoUsers = unsafe extern "C" fn(uid_t, uid_t) -> c_int;
type OfThreeUsers = unsafe extern "C" fn(uid_t, uid_t, uid_t) -> c_int;
type CapSet = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type Exit = unsafe extern "C" fn(c_int) -> !;

/// The C library's functions that this library replaces, and `dlsym` finds behind them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Real {
    pub(crate) connect: Connect,
    pub(crate) listen: Listen,
    pub(crate) accept: Accept,
    pub(crate) accept4: Accept4,
    pub(crate) getsockname: GetName,
    pub(crate) getpeername: GetName,
    pub(crate) getsockopt: GetOption,
    pub(crate) setsockopt: SetOption,
    pub(crate) sendto: SendTo,
    pub(crate) sendmsg: SendMsg,
    pub(crate) read: Read,
    pub(crate) readv: ReadV,
    pub(crate) recv: Recv,
    pub(crate) recvfrom: RecvFrom,
    pub(crate) recvmsg: RecvMsg,
    pub(crate) epoll_ctl: EpollCtl,
    pub(crate) write: Write,
    pub(crate) writev: ReadV,
    pub(crate) send: Send,
    pub(crate) poll: Poll,
    pub(crate) ppoll: Ppoll,
    pub(crate) select: Select,
    pub(crate) pselect: Pselect,
    pub(crate) epoll_wait: EpollWait,
    pub(crate) epoll_pwait: EpollPwait,
    pub(crate) close: OfOne,
    pub(crate) dup: OfOne,
    pub(crate) dup2: OfTwo,
    pub(crate) dup3: OfThree,
    pub(crate) shutdown: OfTwo,
    pub(crate) fcntl: Fcntl,
    pub(crate) fclose: Fclose,
    pub(crate) fdopen: Fdopen,
    pub(crate) execv: Exec,
    pub(crate) execvp: Exec,
    pub(crate) execve: ExecIn,
    pub(crate) execvpe: ExecIn,
    pub(crate) fexecve: Fexecve,
    pub(crate) setuid: OfUser,
    pub(crate) seteuid: OfUser,
    pub(crate) setreuid: OfTwoUsers,
    pub(crate) setresuid: OfThreeUsers,
    pub(crate) capset: CapSet,
    pub(crate) exit_now: Exit,
}

/// The next definition of a function behind this library's. Without one the program is ended.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; RTLD_NEXT asks for the definition behind the caller's.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        std::process::abort();
    }
    found
}

/// The functions of the C library.
pub(crate) fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    // SAFETY: each is the function of that name in the C library, whose type socket(7), epoll_ctl(2) and its headers give.
    REAL.get_or_init(|| unsafe {
        Real {
            connect: mem::transmute::<*mut c_void, Connect>(next(c"connect")),
            listen: mem::transmute::<*mut c_void, Listen>(next(c"listen")),
            accept: mem::transmute::<*mut c_void, Accept>(next(c"accept")),
            accept4: mem::transmute::<*mut c_void, Accept4>(next(c"accept4")),
            getsockname: mem::transmute::<*mut c_void, GetName>(next(c"getsockname")),
            getpeername: mem::transmute::<*mut c_void, GetName>(next(c"getpeername")),
            getsockopt: mem::transmute::<*mut c_void, GetOption>(next(c"getsockopt")),
            setsockopt: mem::transmute::<*mut c_void, SetOption>(next(c"setsockopt")),
            sendto: mem::transmute::<*mut c_void, SendTo>(next(c"sendto")),
            sendmsg: mem::transmute::<*mut c_void, SendMsg>(next(c"sendmsg")),
            read: mem::transmute::<*mut c_void, Read>(next(c"read")),
            readv: mem::transmute::<*mut c_void, ReadV>(next(c"readv")),
            recv: mem::transmute::<*mut c_void, Recv>(next(c"recv")),
            recvfrom: mem::transmute::<*mut c_void, RecvFrom>(next(c"recvfrom")),
            recvmsg: mem::transmute::<*mut c_void, RecvMsg>(next(c"recvmsg")),
            epoll_ctl: mem::transmute::<*mut c_void, EpollCtl>(next(c"epoll_ctl")),
            write: mem::transmute::<*mut c_void, Write>(next(c"write")),
            writev: mem::transmute::<*mut c_void, ReadV>(next(c"writev")),
            send: mem::transmute::<*mut c_void, Send>(next(c"send")),
            poll: mem::transmute::<*mut c_void, Poll>(next(c"poll")),
            ppoll: mem::transmute::<*mut c_void, Ppoll>(next(c"ppoll")),
            select: mem::transmute::<*mut c_void, Select>(next(c"select")),
            pselect: mem::transmute::<*mut c_void, Pselect>(next(c"pselect")),
            epoll_wait: mem::transmute::<*mut c_void, EpollWait>(next(c"epoll_wait")),
            epoll_pwait: mem::transmute::<*mut c_void, EpollPwait>(next(c"epoll_pwait")),
            close: mem::transmute::<*mut c_void, OfOne>(next(c"close")),
            dup: mem::transmute::<*mut c_void, OfOne>(next(c"dup")),
            dup2: mem::transmute::<*mut c_void, OfTwo>(next(c"dup2")),
            dup3: mem::transmute::<*mut c_void, OfThree>(next(c"dup3")),
            shutdown: mem::transmute::<*mut c_void, OfTwo>(next(c"shutdown")),
            fcntl: mem::transmute::<*mut c_void, Fcntl>(next(c"fcntl")),
            fclose: mem::transmute::<*mut c_void, Fclose>(next(c"fclose")),
            fdopen: mem::transmute::<*mut c_void, Fdopen>(next(c"fdopen")),
            execv: mem::transmute::<*mut c_void, Exec>(next(c"execv")),
            execvp: mem::transmute::<*mut c_void, Exec>(next(c"execvp")),
            execve: mem::transmute::<*mut c_void, ExecIn>(next(c"execve")),
            execvpe: mem::transmute::<*mut c_void, ExecIn>(next(c"execvpe")),
            fexecve: mem::transmute::<*mut c_void, Fexecve>(next(c"fexecve")),
            setuid: mem::transmute::<*mut c_void, OfUser>(next(c"setuid")),
            seteuid: mem::transmute::<*mut c_void, OfUser>(next(c"seteuid")),
            setreuid: mem::transmute::<*mut c_void, OfTwoUsers>(next(c"setreuid")),
            setresuid: mem::transmute::<*mut c_void, OfThreeUsers>(next(c"setresuid")),
            capset: mem::transmute::<*mut c_void, CapSet>(next(c"capset")),
            exit_now: mem::transmute::<*mut c_void, Exit>(next(c"_exit")),
        }
    })
}

/// Sets errno, and returns -1.
pub(crate) fn fail(error: c_int) -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Restores errno when it is dropped.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn keep() -> Self {
        // SAFETY: errno is this thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        fail(self.0);
    }
}
