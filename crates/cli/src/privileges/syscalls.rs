//! System calls allowed in a run, after setup. All others are refused: starting programs, opening sockets, other processes,
//! namespaces, mounts, modules, keys, changing users.
//!
//! The list is from traces of all verbs, plus what C libraries use for memory, threads, times and signals.

use libc::{c_int, c_long};
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use std::collections::BTreeMap;

/// Allowed with any arguments.
const ALWAYS: &[c_long] = &[
    // Files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_flock,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    // DPDK threads wait with these, and abort the process on failure; its ports have their own events and timers.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Open sockets.
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    // To detect the death of an inline engine; the pidfd is only polled.
    libc::SYS_pidfd_open,
    // Memory of a ring for each new reader.
    libc::SYS_memfd_create,
    libc::SYS_mlock,
    libc::SYS_munlock,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Times, and queries of a process about itself.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];

/// Older variants of these calls on this architecture.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_unlink,
    libc::SYS_dup2,
    libc::SYS_getpgrp,
    libc::SYS_poll,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(target_arch = "aarch64")]
const OLD: &[c_long] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLD: &[c_long] = &[];

/// ioctl requests: terminals, queues of sockets and tun interfaces, interface settings and counters.
#[allow(clippy::unnecessary_cast, reason = "not every C library defines them as 64-bit numbers")]
const IOCTLS: &[u64] = &[
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
    libc::FIONREAD as u64,
    // A live view reads single keys, and restores the terminal.
    libc::TIOCGPGRP as u64,
    TCGETS2,
    TCSETS2,
    // Unacknowledged bytes.
    libc::TIOCOUTQ as u64,
    // Stops reception from a tun interface.
    libc::TUNSETFILTEREBPF as u64,
    libc::SIOCGIFNAME as u64,
    libc::SIOCGIFFLAGS as u64,
    libc::SIOCGIFMTU as u64,
    libc::SIOCGIFINDEX as u64,
    SIOCETHTOOL,
];
/// asm-generic/ioctls.h.
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;
/// linux/sockios.h.
const SIOCETHTOOL: u64 = 0x8946;

/// linux/bpf.h: map lookup and update, and test runs of a loaded program.
const BPF: &[u64] = &[1, 2, 10];

/// linux/prctl.h: names of threads and of memory, timer slack, and the auxiliary vector.
const PRCTLS: &[u64] = &[libc::PR_SET_NAME as u64, libc::PR_SET_TIMERSLACK as u64, 0x5356_4d41, PR_GET_AUXV];

/// linux/prctl.h; not defined in every libc.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Returns the allowed calls with their rules; a call without rules is allowed with any arguments.
pub(super) fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALWAYS.iter().chain(OLD).map(|call| (*call, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let equal = |values: &[u64]| values.iter().map(|value| one(SeccompCmpOp::Eq, *value)).collect::<Vec<_>>();
    let is = |argument, conditions: Vec<(SeccompCmpOp, u64)>| {
        let rule = |(operator, value)| {
            SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?])
        };
        conditions.into_iter().map(rule).collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_ioctl, is(1, equal(IOCTLS))?);
    rules.insert(libc::SYS_bpf, is(0, equal(BPF))?);
    rules.insert(libc::SYS_prctl, is(0, equal(PRCTLS))?);
    // Ports that reconnect to a Unix socket after their peer disconnected.
    if linerate_backends::memif::reconnects() {
        rules.insert(libc::SYS_socket, is(0, equal(&[libc::AF_UNIX as u64]))?);
        rules.insert(libc::SYS_connect, Vec::new());
        rules.insert(libc::SYS_eventfd2, Vec::new());
    }
    // Reconnecting to a collector.
    if linerate_export::export::reconnects() {
        let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(|family| family as u64);
        rules.insert(libc::SYS_socket, is(0, equal(&families))?);
        rules.insert(libc::SYS_connect, Vec::new());
        let blocking = [IOCTLS, &[libc::FIONBIO]].concat();
        rules.insert(libc::SYS_ioctl, is(1, equal(&blocking))?);
    }
    // Signals only to this process.
    rules.insert(libc::SYS_tgkill, is(0, equal(&[own]))?);
    rules.insert(libc::SYS_kill, is(0, equal(&[own]))?);
    // Threads, no processes. The flags of clone3 are in memory, where a filter cannot check them; libraries fall back to clone.
    rules.insert(libc::SYS_clone, is(0, vec![mask(libc::CLONE_THREAD, libc::CLONE_THREAD)])?);
    // No memory becomes executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, is(2, vec![mask(libc::PROT_EXEC, 0)])?);
    }
    Ok(rules)
}

fn one(operator: SeccompCmpOp, value: u64) -> (SeccompCmpOp, u64) {
    (operator, value)
}

fn mask(bits: c_int, value: c_int) -> (SeccompCmpOp, u64) {
    (SeccompCmpOp::MaskedEq(bits as u64), value as u64)
}
