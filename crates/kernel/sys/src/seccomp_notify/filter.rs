//! The filter: a classic BPF program over the number and the arguments of a system call.
//!
//! seccompiler, which builds such filters, knows no action that asks a listener.

use std::mem::offset_of;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_USER_NOTIF, seccomp_data, sock_filter,
};

/// AUDIT_ARCH_* of include/uapi/linux/audit.h: the ELF machine, 64 bits, little endian. A 32-bit call of the same kernel has another.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Offsets into what a filter sees: numbers and the lower halves of arguments, which are what `int` arguments are.
const AT_NUMBER: usize = offset_of!(seccomp_data, nr);
const AT_ARCH: usize = offset_of!(seccomp_data, arch);
const AT_ARGS: usize = offset_of!(seccomp_data, args);

/// A system call that can be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    Connect,
    Accept,
    Accept4,
    Listen,
    Getsockname,
    Getpeername,
    Getsockopt,
    Setsockopt,
    EpollCreate,
    EpollCreate1,
}

impl Call {
    /// Its number on this machine; none: this kind of machine lacks it.
    const fn number(self) -> Option<libc::c_long> {
        Some(match self {
            Self::Connect => libc::SYS_connect,
            Self::Accept => libc::SYS_accept,
            Self::Accept4 => libc::SYS_accept4,
            Self::Listen => libc::SYS_listen,
            Self::Getsockname => libc::SYS_getsockname,
            Self::Getpeername => libc::SYS_getpeername,
            Self::Getsockopt => libc::SYS_getsockopt,
            Self::Setsockopt => libc::SYS_setsockopt,
            #[cfg(target_arch = "x86_64")]
            Self::EpollCreate => libc::SYS_epoll_create,
            #[cfg(not(target_arch = "x86_64"))]
            Self::EpollCreate => return None,
            Self::EpollCreate1 => libc::SYS_epoll_create1,
        })
    }
}

/// Socket options that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOption {
    /// The level, as SOL_SOCKET.
    pub level: i32,
    /// Names, as SO_DOMAIN; empty: all of that level.
    pub names: Vec<i32>,
}

/// A system call that is asked about; of getsockopt and setsockopt only the options that are named, or all if none is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub call: Call,
    pub options: Vec<SocketOption>,
}

impl From<Call> for Rule {
    fn from(call: Call) -> Self {
        Self { call, options: Vec::new() }
    }
}

/// Limits of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("the rules for {0:?} are too long for a filter")]
    TooLong(Call),
}

/// A filter, and the calls that it asks about.
#[derive(Debug, Clone)]
pub struct Filter {
    program: Vec<sock_filter>,
    calls: Vec<(libc::c_long, Call)>,
}

impl Filter {
    /// Makes a filter that asks about the calls of `rules`, and allows all others. Calls that this kind of machine lacks are left out.
    ///
    /// # Errors
    /// A rule of more options than a jump can pass over (about 80).
    pub fn new(rules: &[Rule]) -> Result<Self, FilterError> {
        // The arch word first: numbers of another are other calls.
        let mut program = vec![load(AT_ARCH), jump(ARCH, 1, 0), allow(), load(AT_NUMBER)];
        let mut calls = Vec::new();
        for rule in rules {
            let Some(number) = rule.call.number() else { continue };
            calls.push((number, rule.call));
            let body = options(&rule.options);
            let over = u8::try_from(body.len()).map_err(|_| FilterError::TooLong(rule.call))?;
            program.push(unless(number as u32, over));
            program.extend(body);
        }
        program.push(allow());
        Ok(Self { program, calls })
    }

    pub(super) fn program(&self) -> &[sock_filter] {
        &self.program
    }

    pub(super) fn call(&self, number: libc::c_int) -> Option<Call> {
        self.calls.iter().find(|(of, _)| *of == libc::c_long::from(number)).map(|(_, call)| *call)
    }
}

/// Instructions for the options of a rule's number. Each path through them ends in an answer.
fn options(options: &[SocketOption]) -> Vec<sock_filter> {
    if options.is_empty() {
        return vec![ask()];
    }
    let mut body = Vec::new();
    for option in options {
        let names: Vec<sock_filter> = match option.names.as_slice() {
            [] => vec![ask()],
            names => {
                let mut each = vec![load(AT_ARGS + 16)];
                each.extend(names.iter().flat_map(|name| [unless(*name as u32, 1), ask()]));
                each.push(allow());
                each
            }
        };
        body.push(load(AT_ARGS + 8));
        // The caller refuses a body of more than 255 instructions, and so what does not fit here.
        body.push(unless(option.level as u32, names.len().min(255) as u8));
        body.extend(names);
    }
    body.push(allow());
    body
}

fn load(at: usize) -> sock_filter {
    // SAFETY: it puts numbers into a struct.
    unsafe { BPF_STMT((BPF_LD | BPF_W | BPF_ABS) as u16, at as u32) }
}

/// Passes over so many instructions if the word is, or is not, `value`.
fn jump(value: u32, if_is: u8, if_not: u8) -> sock_filter {
    // SAFETY: it puts numbers into a struct.
    unsafe { BPF_JUMP((BPF_JMP | BPF_JEQ | BPF_K) as u16, value, if_is, if_not) }
}

fn unless(value: u32, over: u8) -> sock_filter {
    jump(value, 0, over)
}

fn answer(action: u32) -> sock_filter {
    // SAFETY: it puts numbers into a struct.
    unsafe { BPF_STMT((BPF_RET | BPF_K) as u16, action) }
}

fn allow() -> sock_filter {
    answer(SECCOMP_RET_ALLOW)
}

fn ask() -> sock_filter {
    answer(SECCOMP_RET_USER_NOTIF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter over a call, as the kernel would.
    fn run(filter: &Filter, arch: u32, number: libc::c_long, args: [u64; 6]) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = filter.program[at];
            at += 1;
            match u32::from(step.code) {
                code if code == BPF_RET | BPF_K => return step.k,
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    word = match step.k as usize {
                        AT_NUMBER => number as u32,
                        AT_ARCH => arch,
                        other => args[(other - AT_ARGS) / 8] as u32,
                    };
                }
                _ => at += usize::from(if word == step.k { step.jt } else { step.jf }),
            }
        }
    }

    #[test]
    fn it_asks_about_what_is_named_and_nothing_else() {
        let option = |level, names: &[i32]| SocketOption { level, names: names.to_vec() };
        let filter = Filter::new(&[
            Call::Connect.into(),
            Rule { call: Call::Getsockopt, options: vec![option(6, &[]), option(1, &[38, 39])] },
            Call::Listen.into(),
        ])
        .unwrap();
        let asks = |number, args| run(&filter, ARCH, number, args) == SECCOMP_RET_USER_NOTIF;
        let none = [0; 6];
        assert!(asks(libc::SYS_connect, none));
        assert!(asks(libc::SYS_listen, none));
        for allowed in [libc::SYS_read, libc::SYS_write, libc::SYS_accept4, libc::SYS_setsockopt, libc::SYS_execve] {
            assert!(!asks(allowed, none), "{allowed}");
        }
        for (level, name, is) in
            [(6, 1, true), (6, 99, true), (1, 38, true), (1, 39, true), (1, 4, false), (0, 38, false)]
        {
            // The upper half of an int argument is anything.
            let args = [7, level | 0xdead << 32, name, 0, 0, 0];
            assert_eq!(asks(libc::SYS_getsockopt, args), is, "level {level} name {name}");
        }
        // The same numbers by another arch are other calls.
        assert_eq!(run(&filter, 0x4000_0003, libc::SYS_connect, none), SECCOMP_RET_ALLOW);
        assert_eq!(filter.call(libc::SYS_connect as i32), Some(Call::Connect));
        assert_eq!(filter.call(libc::SYS_read as i32), None);
    }

    #[test]
    fn a_rule_that_is_too_long_is_refused() {
        let many = SocketOption { level: 1, names: (0..200).collect() };
        let rule = Rule { call: Call::Setsockopt, options: vec![many] };
        assert_eq!(Filter::new(&[rule]).unwrap_err(), FilterError::TooLong(Call::Setsockopt));
    }
}
