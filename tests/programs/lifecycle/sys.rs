//! Wrappers of system calls without a safe form in std: forks, signals, limits.
#![allow(unsafe_code, reason = "the calls below have no safe form; each is wrapped and justified")]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Forks; returns 0 in the child and the child's id in the parent.
pub(crate) fn fork() -> i32 {
    // SAFETY: the scenarios' children only do what this crate supports in a forked child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    child
}

/// Forks by the system call alone, so that no handler runs; returns 0 in the child and the child's id in the parent.
#[cfg(target_os = "linux")]
pub(crate) fn clone_without_handlers() -> i32 {
    // SAFETY: as a fork; null keeps the stack.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    i32::try_from(child).unwrap()
}

/// Ends the process at once: no destructor, no exit handler.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
    /// It hung, and was killed.
    Hung,
}

/// Waits for a child, and kills it if it hangs.
pub(crate) fn wait(child: i32) -> End {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        if ended == child {
            return if libc::WIFSIGNALED(status) {
                End::Signal(libc::WTERMSIG(status))
            } else {
                End::Exit(libc::WEXITSTATUS(status))
            };
        }
        if Instant::now() > deadline {
            kill(child, libc::SIGKILL);
            return End::Hung;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn kill(process: i32, signal: i32) {
    // SAFETY: takes numbers, and sends the signal to a process of this test.
    let failed = unsafe { libc::kill(process, signal) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Sends this process a signal.
pub(crate) fn raise(signal: i32) {
    kill(std::process::id().cast_signed(), signal);
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

/// Installs a handler that counts the signal.
pub(crate) fn count(signal: i32) {
    extern "C" fn handler(_signal: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the handler touches an atomic alone.
    unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
}

/// Installs a handler that counts the signal and calls the previous one, as crates that share signals do.
pub(crate) fn chain(signal: i32) {
    static BEFORE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(signal: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
        let before = BEFORE.load(Ordering::SeqCst);
        if before != libc::SIG_DFL && before != libc::SIG_IGN {
            // SAFETY: the value is neither SIG_DFL nor SIG_IGN, so it is the handler that was installed before.
            let before: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(before) };
            before(signal);
        }
    }
    // SAFETY: the handler calls nothing but another handler.
    let before = unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    BEFORE.store(before, Ordering::SeqCst);
}

/// Returns the number of counted signals.
pub(crate) fn counted() -> u32 {
    HANDLED.load(Ordering::SeqCst)
}

/// Restores a signal's default action, which the test's shell may have changed.
pub(crate) fn restore(signal: i32) {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Ignores a signal from now on.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Limits the size of files to `bytes`; `None` removes the limit.
///
/// On Linux the library keeps SIGXFSZ from ending the process; elsewhere the signal is ignored.
pub(crate) fn limit_files(bytes: Option<u64>) {
    if !cfg!(target_os = "linux") {
        ignore(libc::SIGXFSZ);
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    assert_eq!(failed, 0);
    limit.rlim_cur = bytes.map_or(limit.rlim_max, |bytes| limit.rlim_max.min(bytes as libc::rlim_t));
    // SAFETY: `limit` is initialized and not above the hard limit.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Opens a pseudo-terminal; returns its screen side and the side that programs write to.
pub(crate) fn open_terminal() -> (File, File) {
    let (mut screen, mut program) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: the first two point to writable descriptors; the other arguments may be null.
    let failed = unsafe { libc::openpty(&raw mut screen, &raw mut program, null, null.cast(), null.cast()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty has just opened this descriptor, and nothing else owns it.
    let screen = unsafe { File::from_raw_fd(screen) };
    // SAFETY: openpty has just opened this descriptor too, and nothing else owns it.
    let program = unsafe { File::from_raw_fd(program) };
    (screen, program)
}

/// Closes all descriptors from that number on.
#[cfg(target_os = "linux")]
pub(crate) fn close_from(first: i32) {
    // SAFETY: takes numbers; the scenarios use none of these descriptors any more.
    (first..1024).for_each(|number| _ = unsafe { libc::close(number) });
}

pub(crate) fn make_fifo(path: &std::path::Path) {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path is a valid C string.
    let failed = unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Returns whether this process may ignore file permissions.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Returns whether this process has more rights than its caller.
#[cfg(target_os = "linux")]
pub(crate) fn has_more_rights() -> bool {
    // SAFETY: takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Replaces stderr by a full pipe without a reader thread.
pub(crate) fn fill_stderr() {
    let mut ends = [0; 2];
    // SAFETY: `ends` is a valid place for two descriptors.
    let failed = unsafe { libc::pipe(ends.as_mut_ptr()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    let [_reader, writer] = ends;
    // SAFETY: takes numbers; both descriptors are open.
    unsafe { libc::fcntl(writer, libc::F_SETFL, libc::O_NONBLOCK) };
    let page = [b'.'; 4096];
    // SAFETY: the pointer and the length are those of `page`.
    while unsafe { libc::write(writer, page.as_ptr().cast(), page.len()) } > 0 {}
    // SAFETY: takes numbers; both descriptors are open.
    unsafe { libc::fcntl(writer, libc::F_SETFL, 0) };
    // SAFETY: takes numbers; both descriptors are open.
    let moved = unsafe { libc::dup2(writer, libc::STDERR_FILENO) };
    assert_eq!(moved, libc::STDERR_FILENO, "{}", std::io::Error::last_os_error());
}

/// Replaces stderr by a pipe whose reader is closed; a write to it ends the process.
pub(crate) fn break_stderr() {
    let mut ends = [0; 2];
    // SAFETY: `ends` is a valid place for two descriptors.
    let failed = unsafe { libc::pipe(ends.as_mut_ptr()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    let [reader, writer] = ends;
    restore(libc::SIGPIPE);
    // SAFETY: takes numbers; both descriptors are open, and no other code uses the reader.
    unsafe { libc::dup2(writer, libc::STDERR_FILENO) };
    // SAFETY: takes a number; no other code uses the reader.
    unsafe { libc::close(reader) };
}

/// Limits the address space to `more` bytes above the current use; `None` removes the limit.
#[cfg(target_os = "linux")]
pub(crate) fn limit_memory(more: Option<u64>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    assert_eq!(failed, 0);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let taken = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
    limit.rlim_cur = more.map_or(limit.rlim_max, |more| limit.rlim_max.min(taken + more));
    // SAFETY: `limit` is initialized and not above the hard limit.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Prevents the process from opening files; `false` removes the limit.
#[cfg(target_os = "linux")]
pub(crate) fn limit_descriptors(none: bool) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(failed, 0);
    // Only the three standard streams have lower numbers, and they stay open; other numbers may become free at any time.
    limit.rlim_cur = if none { 3 } else { limit.rlim_max.min(1024) };
    // SAFETY: `limit` is initialized and not above the hard limit.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Mounts a disk in memory on a folder, for this process, with options such as its size; returns whether the kernel permits it.
#[cfg(target_os = "linux")]
pub(crate) fn mount_small_disk(folder: &std::path::Path, options: &std::ffi::CStr) -> bool {
    use std::os::unix::ffi::OsStrExt;

    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).unwrap();
    let mount = |target: &std::ffi::CStr, kind: &std::ffi::CStr, flags, options: &std::ffi::CStr| {
        let (source, kind, options) = (c"none".as_ptr(), kind.as_ptr(), options.as_ptr().cast());
        // SAFETY: the strings end with a zero byte.
        unsafe { libc::mount(source, target.as_ptr(), kind, flags, options) == 0 }
    };
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // SAFETY: the same.
    let group = unsafe { libc::getegid() };
    // SAFETY: takes numbers; the process has one thread so far.
    let has_namespaces = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0 };
    has_namespaces
        // The disk's files need an owner.
        && std::fs::write("/proc/self/setgroups", "deny").is_ok()
        && std::fs::write("/proc/self/uid_map", format!("{user} {user} 1")).is_ok()
        && std::fs::write("/proc/self/gid_map", format!("{group} {group} 1")).is_ok()
        && mount(c"/", c"none", libc::MS_REC | libc::MS_PRIVATE, c"")
        && mount(&path, c"tmpfs", 0, options)
}

/// Hides /proc behind an empty folder for this process; returns whether the kernel permits it.
#[cfg(target_os = "linux")]
pub(crate) fn hide_proc() -> bool {
    let mount = |source: &std::ffi::CStr, target: &std::ffi::CStr, kind: &std::ffi::CStr, flags| {
        // SAFETY: the strings end with a zero byte, and no data goes with them.
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) == 0 }
    };
    // SAFETY: takes numbers; the process has one thread so far.
    let has_namespaces = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0 };
    has_namespaces
        && mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE)
        && mount(c"none", c"/proc", c"tmpfs", 0)
        && !std::path::Path::new("/proc/self").exists()
}

/// Counts in a file that another process sees, also after this one was killed.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
pub(crate) struct SharedCounts(&'static [AtomicU64; 512]);

#[cfg(target_os = "linux")]
impl SharedCounts {
    /// Opens the file, which is created if it does not exist. The mapping stays.
    pub(crate) fn open(path: &std::path::Path) -> SharedCounts {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(4096).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses affects no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping has 4096 bytes, is never removed, and any bytes are valid atomics.
        SharedCounts(unsafe { &*start.cast() })
    }

    pub(crate) fn get(self, at: usize) -> &'static AtomicU64 {
        &self.0[at]
    }
}

/// Lets `mmap` fail in this thread, and in children that it forks, where all those flags are given. Returns `false` if the kernel
/// has no such filter.
#[cfg(target_os = "linux")]
pub(crate) fn refuse_mappings(flags: libc::c_int) -> bool {
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let (load, is_equal) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    /// Where `seccomp_data` has the number of the call, and the lower half of its fourth argument.
    const NUMBER: u32 = 0;
    const FLAGS: u32 = 16 + 3 * 8 + if cfg!(target_endian = "big") { 4 } else { 0 };
    let flags = flags.cast_unsigned();
    let mut steps = [
        step(load, NUMBER, 0, 0),
        step(is_equal, u32::try_from(libc::SYS_mmap).unwrap(), 0, 4),
        step(load, FLAGS, 0, 0),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, flags, 0, 0),
        step(is_equal, flags, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOMEM.cast_unsigned(), 0, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: u16::try_from(steps.len()).unwrap(), filter: steps.as_mut_ptr() };
    // SAFETY: takes numbers.
    let may_filter = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the program points to its steps, which live for the call.
    let is_set = || unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } == 0;
    may_filter && is_set()
}
