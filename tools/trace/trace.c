/*
 * `gdrcopy trace` preloads this object, which has the SONAME and the functions of libgdrapi. It forwards each call to the next
 * libgdrapi, of any maker, and counts the call in a file of the process, which `gdrcopy` reads at the program's end.
 *
 * The file is mapped, so a process that crashes, is killed, or calls _exit or exec, loses nothing. A forked child makes a
 * file of its own. Each thread counts in its own part, so copies need no lock or system call. Signal handlers may copy.
 *
 * The object prints nothing, and keeps errno. It makes system calls directly, so that other preloaded objects do not see them.
 */
#include "next.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- The CPU's counter, which all processes of a computer share ---- */

#if defined(__x86_64__)
#define READ(before) before "rdtsc\n\tshl $32, %%rdx\n\tor %%rdx, %0" : "=a"(now) : : "rdx", "cc", "memory"
#define WAIT_FOR_LOADS "lfence\n\t"
#elif defined(__aarch64__)
#define READ(before) before "mrs %0, cntvct_el0" : "=r"(now) : : "memory"
#define WAIT_FOR_LOADS "dsb ld\n\tisb\n\t" /* isb keeps the CPU from reading the counter before dsb has ended. */
#endif

static inline uint64_t ticks(void)
{
    uint64_t now;

    __asm__ volatile(READ(""));
    return now;
}

/* Reads the counter after all earlier loads have got their data, even from the GPU. Does not wait for stores. */
static inline uint64_t ticks_after_loads(void)
{
    uint64_t now;

    __asm__ volatile(READ(WAIT_FOR_LOADS));
    return now;
}

/* The counters of two CPUs may differ a little, so `end` may be less than `start` if the thread has changed its CPU. */
static inline uint64_t ticks_between(uint64_t start, uint64_t end)
{
    if (end < start)
        return 0;
    return end - start;
}

/* ---- The file in which the calls of a process are counted ---- */

enum function {
#define NUMBER(result, name, parameters) F_##name,
    FUNCTIONS(NUMBER) FUNCTION_COUNT
};

enum {
    THREADS = 32,   /* the first threads, each of which has its own part of the file; others share one more part */
    PINS = 512,     /* pins that the file has room for: live pins, and those that have ended last */
    SITES = 64,     /* places in the code that pin, and 64 that misuse libgdrapi; others share one more of each kind */
    SIZES = 32,     /* ranges of sizes: 0, and one from each power of two up to 1 GiB */
    TIMES = 160,    /* ranges of ticks: one for each number from 0 to 7, then four from each power of two to the next */
    GUESSES = 2048,
};

struct process {
    uint64_t pid, parent;
    uint64_t start;   /* when recording began */
    uint64_t threads; /* the number of threads that called libgdrapi */
    uint64_t version; /* the next library's major and minor version, 32 bits each; UINT64_MAX if it cannot be loaded */
    uint64_t pins_left_out;
    uint64_t last_pin; /* the index in `pins` of the newest pin */
    uint64_t lock;     /* held while pins change; copies do not take it */
    uint64_t emulated; /* 1 if the GPU is gdremu's */
    char program[440];
};

struct calls {
    uint64_t count, failed, error, ticks;
};

struct pin {
    uint64_t handle, live, gdr, address, size;
    uint64_t site;       /* the index of the place in the code that pinned */
    uint64_t va, mapped; /* the mapping's address, and its size in bytes (whole pages), which is 0 if there is none */
};

enum { ENDED, LIVE, ENDING };

/* A place in the code, and the number of calls that it made. */
struct site {
    uint64_t key; /* the caller's address and, in the low 8 bits, the function (5 bits) and kind of misuse (3 bits) */
    uint64_t count;
    uint64_t offset, size, mapped; /* offset and size of the first copy that was a misuse, and its mapping's length */
    uint64_t type;                 /* the type of the newest mapping of a pin that this place in the code has made */
};

enum { PINNING, MISUSING };
/* Stands for the error of a gdr_open that returned NULL and left errno 0. */
#define NO_ERRNO 4095

enum { OUTSIDE = 1, UNMAPPED, CLOSED, UNKNOWN };

struct thread {
    uint64_t busy;   /* not 0 while the thread counts; signal handlers that interrupt it count in the shared part */
    uint64_t inside; /* a call that has not returned: the caller's address; in the low 8 bits, the function plus 1 */
    uint64_t last;   /* when the last call ended */
    uint64_t failed; /* the number of copies that failed */
} __attribute__((aligned(64)));

struct class {
    uint64_t bytes, ticks, times[TIMES];
};

/* src/commands/trace/recorded.rs must have the same layout: how many 64-bit words each struct has, and how many of each
 * struct the file has. */
struct file {
    struct process process __attribute__((aligned(4096))); /* makes the file a whole number of pages long */
    struct thread threads[THREADS + 1];
    struct calls calls[FUNCTION_COUNT];
    struct site sites[2][SITES + 1];
    struct pin pins[PINS];
    struct class copies[THREADS + 1][2][SIZES]; /* by thread, direction (0: to a mapping, 1: from it) and size */
    uint64_t guesses[GUESSES]; /* for each hash of a handle, the index in `pins` to look at first */
};

/* recorded.rs adds up the sizes of the members before `guesses`, so there must be no padding between them. */
_Static_assert(offsetof(struct file, guesses) ==
                   sizeof(struct process) + sizeof((struct file *)0)->threads + sizeof((struct file *)0)->calls +
                       sizeof((struct file *)0)->sites + sizeof((struct file *)0)->pins + sizeof((struct file *)0)->copies,
               "padding in struct file");

static inline uint64_t get(const uint64_t *number)
{
    return __atomic_load_n(number, __ATOMIC_RELAXED);
}

static inline void set(uint64_t *number, uint64_t value)
{
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
}

static inline uint64_t add(uint64_t *number, uint64_t value)
{
    return __atomic_fetch_add(number, value, __ATOMIC_RELAXED);
}

/* ---- Work that no signal may interrupt, not even the signal that cancels a thread ---- */

struct quiet {
    uint64_t signals;
    int error;
};

static struct quiet begin_quiet(void)
{
    struct quiet before = {.error = errno};
    uint64_t all = UINT64_MAX;

    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before.signals, sizeof(all));
    return before;
}

static void end_quiet(struct quiet before)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before.signals, NULL, sizeof(before.signals));
    errno = before.error;
}

/* ---- The libgdrapi to which calls are forwarded ---- */

/* The values of GDRTRACE_DIRECTORY and GDRTRACE_LIBRARY, which `gdrcopy trace` sets. */
static const char *directory, *library;
static uint64_t version;
static int is_emulated;
static int is_loaded;

static int gpu_is_emulated(void)
{
    const char *(*provider)(void);

    *(void **)&provider = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return provider != NULL && strcmp(provider(), "nvidia") != 0;
}

/* Several threads may do this at once, as dlsym gives all of them the same addresses to store. */
static void load_next(void)
{
    int major = 0, minor = 0, error = errno;
    void *loaded = next_load(library);

    next.runtime_get_version(&major, &minor);
    version = (uint64_t)major << 32 | (uint32_t)minor;
    if (loaded == NULL)
        version = UINT64_MAX;
    is_emulated = gpu_is_emulated();
    __atomic_store_n(&is_loaded, 1, __ATOMIC_RELEASE);
    dlerror(); /* Else the program's next dlerror could return an error of these calls. */
    errno = error;
}

/* ---- The process ---- */

enum { MAKING = 1, DONE };

/* `state` points to a page that the kernel zeroes in forked children, so that each child creates its own file. If this
 * process is not recorded, `state` points to `nothing`. */
static struct state {
    struct file *file;
    uint64_t attempt;
} nothing = {.attempt = DONE}, *state = &nothing;

/* Creates a file of this process. File number 0 is for counts, the others are for lists of the loaded objects. If
 * `start` is 0, the file only shows that the process has loaded the trace library. */
static int create(uint64_t start, uint64_t number)
{
    char name[512];

    snprintf(name, sizeof(name), "%s/%d-%lu.%lu", directory, (int)getpid(), (unsigned long)start, (unsigned long)number);
    return (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Copies at most sizeof(struct file) bytes from the file `from` to `to`. If `from` is negative, writes
 * sizeof(struct file) zeros instead. Returns whether sizeof(struct file) bytes were written. */
static int fill(int to, int from)
{
    char buffer[4096] = {0};
    long len = sizeof(buffer);
    size_t left = sizeof(struct file);
    struct rlimit limit;

    getrlimit(RLIMIT_FSIZE, &limit);
    while (limit.rlim_cur >= sizeof(struct file) && left > 0) { /* a write past the limit would raise SIGXFSZ */
        if (from >= 0)
            len = syscall(SYS_read, from, buffer, sizeof(buffer));
        if (len <= 0 || (size_t)len > left || syscall(SYS_write, to, buffer, len) != len)
            break;
        left -= (size_t)len;
    }
    return left == 0;
}

/* Copies the list of the loaded objects, so that addresses in them can be given names after the process's end. The
 * first list has number 1. Each recorded place in the code gets one more list, as a process may load code where other
 * code was before. Each list is a file of its own, so no thread waits for another. */
static void list_objects(const struct file *file, uint64_t number)
{
    struct quiet quiet = begin_quiet();
    int maps = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int list = create(file->process.start, number);

    if (maps >= 0)
        fill(list, maps);
    syscall(SYS_close, maps);
    syscall(SYS_close, list);
    end_quiet(quiet);
}

/* Creates and maps the file for this process's counts. Returns NULL if the whole file cannot be written or mapped. */
static struct file *make_file(void)
{
    struct file *file = MAP_FAILED;
    uint64_t start = ticks();

    int fd = create(start, 0);
    if (fill(fd, -1)) /* Fails on a full file system, where a later store to the mapping would raise SIGBUS. */
        file = (void *)syscall(SYS_mmap, NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    syscall(SYS_close, fd);
    if (file == MAP_FAILED)
        return NULL;
    struct process *process = &file->process;
    process->pid = (uint64_t)getpid();
    process->parent = (uint64_t)getppid();
    process->start = start;
    process->version = version;
    process->emulated = (uint64_t)is_emulated;
    syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", process->program, sizeof(process->program) - 1);
    list_objects(file, 1);
    return file;
}

/* Makes the file of counts once per process, while other threads wait. In a forked child, the first call may be a copy,
 * and copies must be async-signal-safe. So this is async-signal-safe there, too. */
static __attribute__((noinline, cold)) struct file *start(void)
{
    uint64_t attempt = 0;

    if (!__atomic_load_n(&is_loaded, __ATOMIC_ACQUIRE))
        load_next();
    if (__atomic_load_n(&state->attempt, __ATOMIC_ACQUIRE) == DONE)
        return state->file;
    struct quiet quiet = begin_quiet();
    if (__atomic_compare_exchange_n(&state->attempt, &attempt, MAKING, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&state->file, make_file(), __ATOMIC_RELEASE);
        __atomic_store_n(&state->attempt, DONE, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&state->attempt, __ATOMIC_ACQUIRE) != DONE)
        sched_yield();
    end_quiet(quiet);
    return state->file;
}

/* Returns NULL if this process is not recorded. */
static inline struct file *this_file(void)
{
    struct file *file = __atomic_load_n(&state->file, __ATOMIC_ACQUIRE);

    if (file == NULL)
        file = start();
    return file;
}

__attribute__((constructor)) static void begin_process(void)
{
    if (getenv("GDRTRACE_DIRECTORY") == NULL || getenv("GDRTRACE_LIBRARY") == NULL)
        return;
    directory = strdup(getenv("GDRTRACE_DIRECTORY"));
    library = strdup(getenv("GDRTRACE_LIBRARY"));
    void *page = (void *)syscall(SYS_mmap, NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    if (page == MAP_FAILED || syscall(SYS_madvise, page, sizeof(*state), MADV_WIPEONFORK) != 0)
        return;
    state = page;
    syscall(SYS_close, create(0, 0));
}

/* ---- Threads ---- */

static __thread struct {
    struct file *file;
    unsigned number;
} mine;

static __attribute__((noinline, cold)) void take_part(struct file *file)
{
    mine.number = THREADS; /* A signal handler that runs here counts in the shared part, or takes this thread's part. */
    if (__atomic_exchange_n(&mine.file, file, __ATOMIC_SEQ_CST) == file)
        return;
    uint64_t number = add(&file->process.threads, 1);
    if (number < THREADS)
        mine.number = (unsigned)number;
}

/* Returns the number of the part of the file in which this thread counts. In a signal handler that has interrupted the
 * thread while it counted, returns the number of the part that threads share. */
static inline unsigned part_of_thread(struct file *file)
{
    if (mine.file != file)
        take_part(file);
    if (get(&file->threads[mine.number].busy))
        return THREADS;
    return mine.number;
}

/* Records that the thread is in this call, because the call may end the program, and the report then names it. */
static inline void enter(struct file *file, unsigned part, enum function function, uintptr_t caller)
{
    if (part != THREADS)
        set(&file->threads[part].inside, (uint64_t)caller << 8 | (function + 1));
}

static inline void leave(struct file *file, unsigned part, uint64_t now)
{
    set(&file->threads[part].inside, 0);
    set(&file->threads[part].last, now);
}

/* Adds `value` to a number in this part of the file. The addition is atomic only in the part that threads share. */
static inline void count(unsigned part, uint64_t *number, uint64_t value)
{
    if (part == THREADS)
        add(number, value);
    else
        set(number, get(number) + value);
}

/* ---- Pins ---- */

static struct quiet lock(struct file *file)
{
    struct quiet quiet = begin_quiet();

    while (__atomic_exchange_n(&file->process.lock, 1, __ATOMIC_ACQUIRE) == 1)
        sched_yield();
    return quiet;
}

static void unlock(struct file *file, struct quiet quiet)
{
    __atomic_store_n(&file->process.lock, 0, __ATOMIC_RELEASE);
    end_quiet(quiet);
}

static __attribute__((noinline, cold)) struct pin *search(struct file *file, uint64_t handle, uint64_t *guess)
{
    for (uint64_t i = 0; i < PINS && handle != 0; i++)
        if (get(&file->pins[i].handle) == handle) {
            set(guess, i);
            return &file->pins[i];
        }
    return NULL;
}

/* Returns the newest recorded pin with this handle, which may have ended, or NULL if there is none. */
static inline struct pin *find(struct file *file, uint64_t handle)
{
    uint64_t *guess = &file->guesses[(handle * 0x9e3779b97f4a7c15 >> 48) % GUESSES];
    struct pin *pin = &file->pins[get(guess)];

    if (get(&pin->handle) == handle && handle != 0)
        return pin;
    return search(file, handle, guess);
}

/* ---- Places in the code ---- */

static __attribute__((noinline, cold)) struct site *note_site(struct file *file, int kind, uint64_t key, uint64_t offset,
                                                              uint64_t size, uint64_t mapped)
{
    struct site *site = file->sites[kind];

    for (; site < &file->sites[kind][SITES]; site++) {
        uint64_t before = 0;

        if (__atomic_compare_exchange_n(&site->key, &before, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            site->offset = offset;
            site->size = size;
            site->mapped = mapped;
            list_objects(file, (uint64_t)(site - file->sites[0]) + 2);
            break;
        }
        if (before == key)
            break;
    }
    add(&site->count, 1);
    return site;
}

static __attribute__((noinline, cold)) void note_misuse(struct file *file, enum function function, const struct pin *pin,
                                                        uintptr_t caller, uint64_t address, uint64_t size)
{
    uint64_t why = UNKNOWN, offset = 0, mapped = 0;

    if (pin == NULL && get(&file->process.pins_left_out) > 0)
        return; /* The handle may belong to a pin that was not recorded, for lack of room. */
    if (pin != NULL) {
        why = OUTSIDE;
        offset = address - get(&pin->va);
        mapped = get(&pin->mapped);
        if (mapped == 0)
            why = UNMAPPED;
        if (get(&pin->live) == ENDED)
            why = CLOSED;
    }
    note_site(file, MISUSING, (uint64_t)caller << 8 | function << 3 | why, offset, size, mapped);
}

/* ---- Calls that are no copies ---- */

/* 1 while the thread is in a call of libgdrapi. If libgdrapi then calls its own functions, these calls do not count. */
static __thread int inside;

struct call {
    struct file *file;
    enum function function;
    int counts;
    unsigned part;
    uint64_t start;
};

static struct call begin(enum function function, uintptr_t caller, const gdr_mh_t *handle)
{
    struct call call = {.file = this_file(), .function = function};

    /* If a signal handler has left an earlier call by siglongjmp, `inside` is still 1, as if libgdrapi made the calls
     * that follow. So they do not count until a gdr_open, which counts because libgdrapi never calls it. */
    call.counts = call.file != NULL && (!inside || function == F_open);
    if (!call.counts)
        return call;
    inside = 1;
    if (handle != NULL) {
        const struct pin *pin = find(call.file, handle->h);

        if (pin == NULL || get(&pin->live) == ENDED || (function == F_unmap && get(&pin->mapped) == 0))
            note_misuse(call.file, function, pin, caller, 0, 0);
    }
    call.part = part_of_thread(call.file);
    enter(call.file, call.part, function, caller);
    call.start = ticks();
    return call;
}

static int end(const struct call *call, int error)
{
    uint64_t now = ticks();

    if (!call->counts)
        return error;
    struct calls *calls = &call->file->calls[call->function];
    inside = 0;
    leave(call->file, call->part, now);
    add(&calls->count, 1);
    add(&calls->ticks, ticks_between(call->start, now));
    if (error != 0) {
        add(&calls->failed, 1);
        set(&calls->error, (uint64_t)error);
    }
    return error;
}

static void note_pin(const struct call *call, int error, gdr_t g, const gdr_mh_t *handle, uint64_t address, uint64_t size,
                     uintptr_t caller)
{
    struct file *file = call->file;
    struct pin *pin = NULL;

    if (error != 0 || !call->counts)
        return;
    struct site *site = note_site(file, PINNING, (uint64_t)caller << 8, 0, 0, 0);
    struct quiet quiet = lock(file);
    for (uint64_t i = 1; i <= PINS; i++) {
        struct pin *other = &file->pins[(file->process.last_pin + i) % PINS];

        /* If an earlier pin had the new pin's handle, it has ended, even if its unpin call has not returned. */
        if (other->handle == handle->h) {
            set(&other->handle, 0);
            set(&other->live, ENDED);
        }
        if (pin == NULL && other->live == ENDED)
            pin = other;
    }
    if (pin != NULL) {
        set(&pin->handle, 0);
        pin->gdr = (uintptr_t)g;
        pin->address = address;
        pin->size = size;
        pin->site = (uint64_t)(site - file->sites[PINNING]);
        set(&pin->mapped, 0);
        set(&pin->live, LIVE);
        __atomic_store_n(&pin->handle, handle->h, __ATOMIC_RELEASE);
        file->process.last_pin = (uint64_t)(pin - file->pins);
    } else {
        file->process.pins_left_out++;
    }
    unlock(file, quiet);
}

/* Changes the state of the pin with this handle from `from` to `to`; if `handle` is NULL, of all pins of this gdr_t. */
static void change_pins(const struct call *call, gdr_t g, const gdr_mh_t *handle, uint64_t from, uint64_t to)
{
    struct file *file = call->file;

    if (file == NULL)
        return;
    struct quiet quiet = lock(file);
    for (struct pin *pin = file->pins; pin < file->pins + PINS; pin++) {
        int is_meant = pin->gdr == (uintptr_t)g;

        if (handle != NULL)
            is_meant = pin->handle == handle->h;
        if (pin->live != from || !is_meant)
            continue;
        if (to == ENDED)
            set(&pin->mapped, 0);
        set(&pin->live, to);
    }
    unlock(file, quiet);
}

/* Sets how many bytes of the pin are mapped. Returns how many were mapped before. */
static uint64_t set_mapped(const struct call *call, gdr_mh_t handle, uint64_t mapped)
{
    struct pin *pin;

    if (call->file == NULL)
        return 0;
    pin = find(call->file, handle.h);
    if (pin == NULL)
        return 0;
    return __atomic_exchange_n(&pin->mapped, mapped, __ATOMIC_RELAXED);
}

/* Rounds a mapping's length up to whole pages. With GDRCOPY_ALLOW_UNALIGNED_MAP, a pin may begin inside a page. */
static size_t mapped_len(unsigned long address, size_t size, const gdr_info_v2_t *info)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t head = 0;

    if (address > info->va)
        head = address - info->va;
    return (size + head + page - 1) / page * page;
}

static void note_map(const struct call *call, int error, gdr_t g, gdr_mh_t handle, void *const *va, size_t size)
{
    gdr_info_v2_t info;
    int before = errno;

    if (error != 0 || !call->counts)
        return;
    struct pin *pin = find(call->file, handle.h);
    if (pin == NULL)
        return;
    inside = 1;
    if (next_info(g, handle, &info) != 0)
        info.va = pin->address;
    inside = 0;
    set(&call->file->sites[PINNING][pin->site].type, info.mapping_type);
    set(&pin->va, (uintptr_t)*va);
    __atomic_store_n(&pin->mapped, mapped_len(pin->address, size, &info), __ATOMIC_RELEASE);
    errno = before;
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

int gdr_pin_buffer(gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t va_space, gdr_mh_t *handle)
{
    struct call call = begin(F_pin_buffer, CALLER, NULL);
    int error = end(&call, next.pin_buffer(g, address, size, token, va_space, handle));

    note_pin(&call, error, g, handle, address, size, CALLER);
    return error;
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long address, size_t size, uint32_t flags, gdr_mh_t *handle)
{
    struct call call = begin(F_pin_buffer_v2, CALLER, NULL);
    int error = end(&call, next.pin_buffer_v2(g, address, size, flags, handle));

    note_pin(&call, error, g, handle, address, size, CALLER);
    return error;
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
    struct call call = begin(F_unpin_buffer, CALLER, &handle);

    change_pins(&call, g, &handle, LIVE, ENDING);
    int error = end(&call, next.unpin_buffer(g, handle));
    change_pins(&call, g, &handle, ENDING, error == 0 ? ENDED : LIVE);
    return error;
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
    struct call call = begin(F_map, CALLER, &handle);
    int error = end(&call, next.map(g, handle, va, size));

    note_map(&call, error, g, handle, va, size);
    return error;
}

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)
{
    struct call call = begin(F_map_v2, CALLER, &handle);
    int error = end(&call, next.map_v2(g, handle, va, size, flags));

    note_map(&call, error, g, handle, va, size);
    return error;
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
    struct call call = begin(F_unmap, CALLER, &handle);

    /* The unmapping is recorded before the call, because another thread may map the pin before the call returns. */
    uint64_t mapped = set_mapped(&call, handle, 0);
    int error = end(&call, next.unmap(g, handle, va, size));
    if (error != 0)
        set_mapped(&call, handle, mapped);
    return error;
}

gdr_t gdr_open(void)
{
    struct call call = begin(F_open, CALLER, NULL);
    gdr_t g = next.open();
    int error = 0;

    if (g == NULL)
        error = errno;
    if (g == NULL && error == 0)
        error = NO_ERRNO;
    end(&call, error);
    return g;
}

int gdr_close(gdr_t g)
{
    struct call call = begin(F_close, CALLER, NULL);

    change_pins(&call, g, NULL, LIVE, ENDING);
    int error = end(&call, next.close(g));
    int stays_open = error == EINVAL || error == EACCES; /* After other errors, the connection is closed. */
    change_pins(&call, g, NULL, ENDING, stays_open ? LIVE : ENDED);
    return error;
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
    struct call call = begin(F_get_callback_flag, CALLER, &handle);

    return end(&call, next.get_callback_flag(g, handle, flag));
}

int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_t *info)
{
    struct call call = begin(F_get_info, CALLER, &handle);

    return end(&call, next.get_info(g, handle, info));
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
    struct call call = begin(F_get_info_v2, CALLER, &handle);

    return end(&call, next.get_info_v2(g, handle, info));
}

int gdr_driver_get_version(gdr_t g, int *major, int *minor)
{
    struct call call = begin(F_driver_get_version, CALLER, NULL);

    return end(&call, next.driver_get_version(g, major, minor));
}

int gdr_get_attribute(gdr_t g, gdr_attr_t attribute, int *value)
{
    struct call call = begin(F_get_attribute, CALLER, NULL);

    return end(&call, next.get_attribute(g, attribute, value));
}

int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **text)
{
    struct call call = begin(F_get_mapping_type_string, CALLER, NULL);

    return end(&call, next.get_mapping_type_string(type, text));
}

void gdr_runtime_get_version(int *major, int *minor)
{
    struct call call = begin(F_runtime_get_version, CALLER, NULL);

    next.runtime_get_version(major, minor);
    end(&call, 0);
}

/* ---- Copies ---- */

static inline void count_copy(struct file *file, unsigned part, int direction, size_t size, uint64_t took)
{
    unsigned size_class = 0;
    unsigned shift = 61 - (unsigned)__builtin_clzl(took | 4);
    uint64_t time = 4 * shift + (took >> shift);

    if (size > 0)
        size_class = 64 - (unsigned)__builtin_clzl(size);
    if (size_class >= SIZES)
        size_class = SIZES - 1;
    if (time >= TIMES)
        time = TIMES - 1;
    struct class *class = &file->copies[part][direction][size_class];
    count(part, &class->bytes, size);
    count(part, &class->ticks, took);
    count(part, &class->times[time], 1);
}

static inline __attribute__((always_inline)) int copy(enum function function, gdr_mh_t handle, void *to, const void *from,
                                                      size_t size, uintptr_t caller)
{
    int direction = function == F_copy_from_mapping;
    struct file *file = this_file(); /* The first call of this_file() loads the traced library, and sets `next`. */
    __typeof__(&gdr_copy_to_mapping) next_copy = next.copy_to_mapping;
    uint64_t address = (uintptr_t)to, offset = 0, mapped = 0;

    if (direction == 1) {
        next_copy = next.copy_from_mapping;
        address = (uintptr_t)from;
    }
    if (file == NULL)
        return next_copy(handle, to, from, size);
    const struct pin *pin = find(file, handle.h);
    if (pin != NULL) {
        offset = address - get(&pin->va);
        mapped = get(&pin->mapped);
    }
    if (size > 0 && (offset > mapped || size > mapped - offset)) /* Noted before the copy, which may end the program. */
        note_misuse(file, function, pin, caller, address, size);
    unsigned part = part_of_thread(file);
    enter(file, part, function, caller);
    uint64_t start = ticks();
    int error = next_copy(handle, to, from, size);
    uint64_t now = ticks_after_loads();
    struct thread *thread = &file->threads[part];
    set(&thread->busy, part != THREADS);
    __atomic_signal_fence(__ATOMIC_ACQ_REL);
    leave(file, part, now);
    if (error != 0)
        count(part, &thread->failed, 1);
    else
        count_copy(file, part, direction, size, ticks_between(start, now));
    __atomic_signal_fence(__ATOMIC_ACQ_REL);
    set(&thread->busy, 0);
    return error;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
    return copy(F_copy_to_mapping, handle, map_d_ptr, h_ptr, size, CALLER);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
    return copy(F_copy_from_mapping, handle, h_ptr, map_d_ptr, size, CALLER);
}
