//! Makes the tables of this process at its first call, and again in forked children; none where that fails.

use std::ffi::{CStr, CString, OsStr, c_int, c_long, c_void};
use std::fmt::Arguments;
use std::io::Write;
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use gdrcopy_trace_tables::{Copies, Function, LEN, LEN_WITH_COPIES, LISTS, Tables, ticks};

/// `gdrcopy trace` sets the environment variable of this name to
/// `PARENT:EVENTS:TICKS:FUNCTIONS:DIRECTORY`.
const VARIABLE: &str = "GDRTRACE_SETTINGS";
/// And that of this name to the real library.
const LIBRARY: &str = "GDRTRACE_LIBRARY";

#[derive(Debug)]
pub(crate) struct Settings {
    /// Records only its children; all processes if 0.
    parent: u64,
    /// Copies become events.
    events: bool,
    /// The shortest copy that becomes an event.
    pub(crate) min_ticks: u64,
    /// The functions of the real library, a bit each.
    functions: u32,
    directory: String,
    /// The real library.
    pub(crate) library: CString,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// None before the initialization.
pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Children get it zeroed.
#[repr(C)]
struct State {
    tables: AtomicPtr<Tables>,
    /// 0, then [`MAKING`], then [`DONE`], even where there are no tables.
    attempt: AtomicU64,
}

const MAKING: u64 = 1;
const DONE: u64 = 2;

static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());

/// A function was looked up before this object was initialized, for a program linked with libgdrapi.
static LOOKED_UP_EARLY: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZE: extern "C" fn() = initialize;

/// Runs before the program, as nothing else of this object but lookups do.
extern "C" fn initialize() {
    let variables = std::env::var_os(VARIABLE).zip(std::env::var_os(LIBRARY));
    let Some(settings) = variables.and_then(|(settings, library)| parse(&settings, &library)) else {
        return;
    };
    // SAFETY: an anonymous mapping of a page, which is zeroed in children.
    let page = unsafe {
        let len = size_of::<State>();
        let page = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None);
        page.filter(|&page| {
            let arguments = [page, len, libc::MADV_WIPEONFORK as usize];
            system_call(libc::SYS_madvise, arguments).is_some()
        })
    };
    let Some(page) = page else {
        return;
    };
    let _ = SETTINGS.set(settings);
    STATE.store(ptr::with_exposed_provenance_mut(page), Release);
    if let Some(settings) = SETTINGS.get().filter(|settings| settings.is_for_this_process()) {
        let marker = format!("{}/{}.loaded\0", settings.directory, std::process::id());
        let _ = File::create(marker.as_bytes());
    }
    if LOOKED_UP_EARLY.load(Relaxed) {
        note_lookup();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;

/// Runs after the program's exit handlers. Calls may still come, of other objects' destructors.
extern "C" fn finish() {
    // SAFETY: NULL, or the page that `initialize` made, which stays.
    let state = unsafe { STATE.load(Acquire).as_ref() };
    // SAFETY: NULL, or tables whose mapping stays.
    if let Some(tables) = state.and_then(|state| unsafe { state.tables.load(Acquire).as_ref() }) {
        tables.process.end.store(ticks(), Relaxed);
    }
}

fn parse(settings: &OsStr, library: &OsStr) -> Option<Settings> {
    let mut words = settings.to_str()?.splitn(5, ':');
    Some(Settings {
        parent: words.next()?.parse().ok()?,
        events: words.next()? == "1",
        min_ticks: words.next()?.parse().ok()?,
        functions: words.next()?.parse().ok()?,
        directory: words.next()?.to_owned(),
        library: CString::new(library.as_bytes()).ok()?,
    })
}

impl Settings {
    /// Returns whether the real library has this function.
    pub(crate) fn has(&self, function: Function) -> bool {
        self.functions >> function as u32 & 1 == 1
    }

    fn is_for_this_process(&self) -> bool {
        self.parent == 0 || self.parent == u64::from(std::os::unix::process::parent_id())
    }
}

/// Makes the tables, as a function was looked up. Before the initialization it only remembers that one was.
pub(crate) fn note_lookup() {
    match STATE.load(Relaxed).is_null() {
        true => LOOKED_UP_EARLY.store(true, Relaxed),
        false => drop(tables()),
    }
}

/// The tables, if this process can record.
#[inline(always)]
pub(crate) fn tables() -> Option<&'static Tables> {
    // SAFETY: NULL, or the page that `initialize` made, which stays.
    let state = unsafe { STATE.load(Acquire).as_ref() }?;
    // SAFETY: NULL, or what `start` made, which stays; the child of a fork finds NULL.
    unsafe { state.tables.load(Acquire).as_ref() }.or_else(|| start(state))
}

/// The events of copies, if they are wanted.
#[inline(always)]
pub(crate) fn copies(tables: &'static Tables) -> Option<&'static Copies> {
    let wanted = settings()?.events;
    // SAFETY: `start` mapped them after the tables.
    wanted.then(|| unsafe { &*ptr::from_ref(tables).add(1).cast::<Copies>() })
}

/// Makes tables once per process, while other threads wait. Async-signal-safe, as a child may copy first.
#[cold]
fn start(state: &State) -> Option<&'static Tables> {
    if state.attempt.load(Acquire) != DONE {
        // A signal handler would wait for what it interrupts, others for a thread that was canceled.
        uninterrupted(|| match state.attempt.compare_exchange(0, MAKING, Acquire, Acquire) {
            Ok(_) => {
                state.tables.store(make().map_or(null_mut(), |tables| ptr::from_ref(tables).cast_mut()), Release);
                state.attempt.store(DONE, Release);
            }
            Err(_) => {
                while state.attempt.load(Acquire) != DONE {
                    std::thread::yield_now();
                }
            }
        });
    }
    // SAFETY: NULL, or tables whose mapping stays.
    unsafe { state.tables.load(Acquire).as_ref() }
}

/// New tables of this process, if it is to record.
fn make() -> Option<&'static Tables> {
    let settings = settings().filter(|settings| settings.is_for_this_process())?;
    let pid = std::process::id();
    let now = ticks();
    let file = File::named(format_args!("{}/{pid}-{now}.tables\0", settings.directory))?;
    let len = if settings.events { LEN_WITH_COPIES } else { LEN };
    let Some(tables) = file.map(len) else {
        let _ = File::named(format_args!("{}/{pid}.failed\0", settings.directory));
        return None;
    };
    let process = &tables.process;
    process.pid.store(pid.into(), Relaxed);
    process.parent.store(std::os::unix::process::parent_id().into(), Relaxed);
    process.start.store(now, Relaxed);
    process.version.store(VERSION.load(Relaxed), Relaxed);
    let mut program = [0; 512];
    let link = c"/proc/self/exe".as_ptr().addr();
    let place = [HERE, link, program.as_mut_ptr().expose_provenance(), program.len()];
    // SAFETY: the buffer is writable.
    unsafe { system_call(libc::SYS_readlinkat, place) };
    process.program.set(&program);
    Some(tables)
}

/// The real library's, which children inherit.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// Records the version of the real library.
pub(crate) fn set_version(major: c_int, minor: c_int) {
    let version = (major as u64) << 32 | u64::from(minor as u32);
    VERSION.store(version, Relaxed);
    if let Some(tables) = tables() {
        tables.process.version.store(version, Relaxed);
    }
}

/// Copies the list of this process's objects beside its tables, so that addresses in them have names after its end. Returns
/// the list's number. Each is a file of its own, as no thread may wait for another, nor a signal handler for what it interrupts.
pub(crate) fn list_objects(tables: &Tables) -> u64 {
    let process = &tables.process;
    let (pid, start) = (process.pid.load(Relaxed), process.start.load(Relaxed));
    let number = process.lists.fetch_add(1, Relaxed) + 1;
    if number > LISTS {
        return LISTS;
    }
    uninterrupted(|| -> Option<()> {
        let directory = &settings()?.directory;
        let maps = File::open(c"/proc/self/maps".to_bytes_with_nul(), libc::O_RDONLY)?;
        let list = File::named(format_args!("{directory}/{pid}-{start}.{number}.maps\0"))?;
        let mut buffer = [0u8; 4096];
        let mut room = longest_file();
        loop {
            let start = buffer.as_mut_ptr().expose_provenance();
            // SAFETY: the buffer is as long as stated.
            unsafe {
                let read = system_call(libc::SYS_read, [maps.0, start, buffer.len()]);
                let len = read.filter(|&len| len > 0)?;
                room = room.checked_sub(len as u64)?;
                system_call(libc::SYS_write, [list.0, start, len])?;
            }
        }
    });
    number
}

/// Does that if objects were loaded since it was done last. Returns the number of the list that has all of them.
pub(crate) fn list_new_objects(tables: &Tables) -> u64 {
    let mut loaded = 0u64;
    // SAFETY: `count` stores a number there.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut loaded).cast()) };
    match tables.process.loaded.swap(loaded, Relaxed) == loaded {
        true => tables.process.lists.load(Relaxed).min(LISTS),
        false => list_objects(tables),
    }
}

/// How many objects the process has loaded so far.
unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, _: usize, loaded: *mut c_void) -> c_int {
    // SAFETY: `list_new_objects` passes a number, the loader the rest.
    unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
    1
}

/// Does work in which no signal arrives, nor the one that cancels a thread, so neither can leave it by half. Keeps errno.
pub(crate) fn uninterrupted<T>(work: impl FnOnce() -> T) -> T {
    let (all, mut before) = (u64::MAX, 0u64);
    let set = |new: *const u64, old: *mut u64| {
        let [new, old] = [new.expose_provenance(), old.expose_provenance()];
        let arguments = [libc::SIG_SETMASK as usize, new, old, size_of::<u64>()];
        // SAFETY: NULL, or variables of this size.
        unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
    };
    set(&all, &mut before);
    let result = keep_errno(work);
    set(&before, null_mut());
    result
}

/// This thread's `pthread_t`, which no other has while it runs.
#[inline(always)]
pub(crate) fn thread() -> u64 {
    // SAFETY: no requirements.
    unsafe { libc::pthread_self() as u64 }
}

/// Mappings are whole pages of this size.
pub(crate) fn page_size() -> usize {
    // SAFETY: no requirements.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// The calling thread's errno is the same afterwards.
pub(crate) fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the thread's errno, for as long as the thread runs.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = work();
    *errno = before;
    result
}

/// Makes a system call; none if it fails. Variadic functions do not widen arguments, so all are whole words.
///
/// # Safety
/// As the call's.
unsafe fn system_call<const N: usize>(number: c_long, arguments: [usize; N]) -> Option<usize> {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: contract of this function.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).ok()
}

/// Maps new memory, of a file or none, for reading and writing.
///
/// # Safety
/// The file is as long.
unsafe fn map(len: usize, flags: c_int, file: Option<&File>) -> Option<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let file = file.map_or(usize::MAX, |file| file.0);
    // SAFETY: the kernel chooses the place.
    unsafe { system_call(libc::SYS_mmap, [0, len, protection, flags as usize, file, 0]) }
}

/// Bytes of the longest file that this process may write. Longer ones raise a signal.
fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a local variable.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// Paths are relative to the current directory.
const HERE: usize = libc::AT_FDCWD as usize;

/// An open file, by system calls only.
struct File(usize);

impl File {
    /// A new file with this path, which ends with a zero; without memory of the heap.
    fn named(path: Arguments) -> Option<File> {
        let mut buffer = [0u8; 512];
        (&mut buffer[..]).write_fmt(path).ok()?;
        File::create(&buffer)
    }

    fn create(path: &[u8]) -> Option<File> {
        File::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC)
    }

    fn open(path: &[u8], flags: c_int) -> Option<File> {
        let path = CStr::from_bytes_until_nul(path).ok()?.as_ptr().expose_provenance();
        let flags = (flags | libc::O_CLOEXEC | libc::O_NOFOLLOW) as usize;
        // SAFETY: the path ends with a zero.
        unsafe { system_call(libc::SYS_openat, [HERE, path, flags, 0o600]).map(File) }
    }

    /// Writes zeros, where a file system or a sandbox has no fallocate.
    fn fill(&self, len: usize) -> Option<usize> {
        let zeros = [0u8; 4096];
        // SAFETY: the thread's errno.
        let is_full = unsafe { *libc::__errno_location() } == libc::ENOSPC;
        (!is_full).then_some(())?;
        (0..len).step_by(zeros.len()).try_fold(0, |filled, at| {
            let some = zeros.len().min(len - at);
            // SAFETY: the buffer is at least as long.
            let written = unsafe { system_call(libc::SYS_write, [self.0, zeros.as_ptr().addr(), some]) }?;
            (written == some).then_some(filled + written)
        })
    }

    /// Maps tables of this file. It gets its memory now, as a full file system must not end the program later.
    fn map(&self, len: usize) -> Option<&'static Tables> {
        // SAFETY: the file is as long; its bytes are tables, whatever they are, and the mapping stays.
        unsafe {
            (longest_file() >= len as u64).then_some(())?;
            let allocated = system_call(libc::SYS_fallocate, [self.0, 0, 0, len]);
            allocated.or_else(|| self.fill(len))?;
            let memory = map(len, libc::MAP_SHARED, Some(self))?;
            Some(&*ptr::with_exposed_provenance::<Tables>(memory))
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is open, and not used again.
        unsafe { system_call(libc::SYS_close, [self.0]) };
    }
}
