/*
 * `gdrcopy trace` preloads this, with the SONAME and the functions of libgdrapi, over the next libgdrapi of any maker. It
 * forwards each call, and counts it in a file of the process, which `gdrcopy` reads at the program's end.
 *
 * The file is mapped, so a process that crashes, is killed, or calls _exit or exec, loses nothing. A forked child makes one of
 * its own. Copies take no lock and make no system call, as each thread counts in its own part. Signal handlers may copy.
 *
 * It prints nothing, and keeps errno. It makes system calls directly, unseen by functions that other preloaded objects replace.
 */
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../checkpoint/next.h"

/* ---- The CPU's counter, which all processes of a computer share ---- */

#if defined(__x86_64__)
#define READ(before) before "rdtsc\n\tshl $32, %%rdx\n\tor %%rdx, %0" : "=a"(now) : : "rdx", "cc", "memory"
#define WAIT_FOR_LOADS "lfence\n\t"
#elif defined(__aarch64__)
#define READ(before) before "mrs %0, cntvct_el0" : "=r"(now) : : "memory"
#define WAIT_FOR_LOADS "dsb ld\n\tisb\n\t" /* The second one keeps the counter from being read before the first. */
#endif

static inline uint64_t ticks(void)
{
    uint64_t now;

    __asm__ volatile(READ(""));
    return now;
}

/* Waits until earlier loads have their data, even from the GPU, but not for stores to leave the CPU. */
static inline uint64_t ticks_after_loads(void)
{
    uint64_t now;

    __asm__ volatile(READ(WAIT_FOR_LOADS));
    return now;
}

/* ---- The file ---- */

enum function {
#define NUMBER(name) F_##name,
    FUNCTIONS(NUMBER) FUNCTION_COUNT
};

enum {
    THREADS = 32,   /* that count for themselves; others share one more part */
    PINS = 512,     /* that are kept apart, those that exist, and earlier ones */
    MISUSES = 64,   /* places in the code */
    LISTS = 64,     /* lists of objects, as a process may load code where there was other code */
    SIZES = 32,     /* 0, and powers of two up to 1 GiB */
    TIMES = 160,    /* four for each power of two; the first eight have one time each */
    GUESSES = 2048,
};

struct process {
    uint64_t pid, parent;
    uint64_t start;   /* of recording */
    uint64_t threads; /* that called libgdrapi */
    uint64_t version; /* of the next library, major and minor, 32 bits each; all bits if it cannot be loaded */
    uint64_t lists;   /* that were begun */
    uint64_t pins_left_out, pins_forgotten, misuses_left_out;
    uint64_t loaded; /* objects when the last list was made */
    uint64_t lock;   /* held while pins change; copies do not take it */
    char program[424];
};

struct calls {
    uint64_t count, failed, error, ticks;
};

/* Pins of one range by the same code, one after the other. */
struct pin {
    uint64_t handle;
    uint64_t live;
    uint64_t gdr, address, size, caller;
    uint64_t list; /* of objects, 1 for the first, which has the caller */
    uint64_t pins, maps;
    uint64_t va, mapped; /* whole pages; 0 if not mapped */
    uint64_t type;
};

enum { ENDED, LIVE, ENDING };

/* Wrong calls of one place in the code. */
struct misuse {
    uint64_t key; /* the caller, the function in 5 bits, and why in 3 */
    uint64_t list, count;
    uint64_t offset, size, mapped; /* of the first copy */
};

enum { OUTSIDE = 1, UNMAPPED, CLOSED, UNKNOWN };

struct thread {
    uint64_t owner;  /* its pthread_t; others with the same one may follow */
    uint64_t busy;   /* It counts; signal handlers count elsewhere. */
    uint64_t inside; /* the caller and, in 8 bits, the function plus 1 of a call that has not returned */
    uint64_t last;   /* when a call ended */
    uint64_t failed; /* copies */
} __attribute__((aligned(64)));

struct class {
    uint64_t bytes, ticks, times[TIMES];
};

/* Copies through a pin's mappings, to them and from them. */
struct uses {
    uint64_t count[2], bytes[2];
};

#define PAGE __attribute__((aligned(4096)))

/* src/commands/trace/recorded.rs has the words of these, and how many there are. */
struct file {
    struct process process;
    struct calls calls[FUNCTION_COUNT] PAGE;
    struct misuse misuses[MISUSES] PAGE;
    struct pin pins[PINS] PAGE;
    struct thread threads[THREADS + 1] PAGE;
    struct class copies[THREADS + 1][2][SIZES] PAGE; /* to mappings, and from them */
    struct uses uses[THREADS + 1][PINS] PAGE;
    uint64_t guesses[GUESSES] PAGE; /* numbers of pins by a hash of the handle, to begin with */
};

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

/* ---- Work that no signal interrupts, nor the one that cancels a thread ---- */

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

/* ---- The next library ---- */

/* Variables of `gdrcopy trace`. */
static const char *directory, *library;
static uint64_t version;
static int is_loaded;

/* Several threads may do it at once, as the loader gives all the same. */
static void load_next(void)
{
    int major = 0, minor = 0, error = errno;
    void *found = load_from(library);

    next.runtime_get_version(&major, &minor);
    version = found != NULL ? (uint64_t)major << 32 | (uint32_t)minor : UINT64_MAX;
    __atomic_store_n(&is_loaded, 1, __ATOMIC_RELEASE);
    dlerror(); /* The program gets no error of this. */
    errno = error;
}

/* ---- The process ---- */

enum { MAKING = 1, DONE };

/* Children get it zeroed. */
static struct state {
    struct file *file;
    uint64_t attempt;
} nothing = {.attempt = DONE}, *state = &nothing;

/* Number 0 is the process's file, others are lists. Started at 0, it marks a process that has loaded this object. */
static int create(uint64_t start, uint64_t number)
{
    char name[512];

    snprintf(name, sizeof(name), "%s/%d-%lu.%lu", directory, (int)getpid(), (unsigned long)start, (unsigned long)number);
    return (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Writes what there is to read, or zeros without a descriptor. Returns whether the file has the length of struct file. */
static int fill(int to, int from)
{
    char buffer[4096] = {0};
    long len = sizeof(buffer);
    size_t left = sizeof(struct file);
    struct rlimit limit;

    getrlimit(RLIMIT_FSIZE, &limit);
    while (limit.rlim_cur >= sizeof(struct file) && left > 0) { /* else a signal would end the process */
        if (from >= 0)
            len = syscall(SYS_read, from, buffer, sizeof(buffer));
        if (len <= 0 || (size_t)len > left || syscall(SYS_write, to, buffer, len) != len)
            break;
        left -= (size_t)len;
    }
    return left == 0;
}

/* Copies the list of this process's objects, so that addresses in them have names after its end. Returns its number. Each is
 * a file of its own, as no thread may wait for another, nor a signal handler for what it interrupts. */
static uint64_t list_objects(struct file *file)
{
    uint64_t number = add(&file->process.lists, 1) + 1;

    if (number > LISTS)
        return LISTS;
    struct quiet quiet = begin_quiet();
    int maps = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int list = create(file->process.start, number);
    if (maps >= 0)
        fill(list, maps);
    syscall(SYS_close, maps);
    syscall(SYS_close, list);
    end_quiet(quiet);
    return number;
}

static int count_objects(struct dl_phdr_info *info, size_t size, void *loaded)
{
    (void)size;
    *(uint64_t *)loaded = info->dlpi_adds;
    return 1;
}

/* Returns the number of a list with all objects. */
static uint64_t list_new_objects(struct file *file)
{
    uint64_t loaded = 0;

    dl_iterate_phdr(count_objects, &loaded);
    if (__atomic_exchange_n(&file->process.loaded, loaded, __ATOMIC_RELAXED) != loaded)
        return list_objects(file);
    uint64_t lists = get(&file->process.lists);
    return lists < LISTS ? lists : LISTS;
}

/* Returns NULL if this process has no room for its file, which stays too short. */
static struct file *make_file(void)
{
    struct file *file = MAP_FAILED;
    uint64_t start = ticks();

    int fd = create(start, 0);
    if (fill(fd, -1)) /* now, as a full file system must not end the program later */
        file = (void *)syscall(SYS_mmap, NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    syscall(SYS_close, fd);
    if (file == MAP_FAILED)
        return NULL;
    struct process *process = &file->process;
    process->pid = (uint64_t)getpid();
    process->parent = (uint64_t)getppid();
    process->start = start;
    process->version = version;
    syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", process->program, sizeof(process->program) - 1);
    list_objects(file);
    return file;
}

/* Makes the file once per process, while other threads wait. Async-signal-safe in a child, which may copy first. */
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

/* NULL if this process is not recorded. */
static inline struct file *this_file(void)
{
    struct file *file = __atomic_load_n(&state->file, __ATOMIC_ACQUIRE);

    return file != NULL ? file : start();
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

static __attribute__((noinline, cold)) void find_part(struct file *file)
{
    uint64_t owner = (uint64_t)pthread_self();
    unsigned number;

    for (number = 0; number < THREADS; number++) {
        uint64_t before = 0;

        if (get(&file->threads[number].owner) == owner ||
            __atomic_compare_exchange_n(&file->threads[number].owner, &before, owner, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
    }
    mine.number = number;
    if (__atomic_exchange_n(&mine.file, file, __ATOMIC_RELAXED) != file) /* else a signal handler has been here */
        add(&file->process.threads, 1);
}

/* The number of this thread's part. It is the shared one if this is a signal handler that has interrupted the counting. */
static inline unsigned part_of_thread(struct file *file)
{
    if (mine.file != file)
        find_part(file);
    return get(&file->threads[mine.number].busy) ? THREADS : mine.number;
}

/* Remembers a call that may end the program. */
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

/* Adds to a number of this part. */
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

/* The pin with this handle that exists, or else the last one. */
static inline struct pin *find(struct file *file, uint64_t handle)
{
    uint64_t *guess = &file->guesses[(handle * 0x9e3779b97f4a7c15 >> 48) % GUESSES];
    struct pin *pin = &file->pins[get(guess)];

    return get(&pin->handle) == handle && handle != 0 ? pin : search(file, handle, guess);
}

/* Returns the place of earlier pins of the range by this code, an unused one, or that of an ended pin. The latter's copies
 * count in the sums only then. Returns PINS if all pins exist. */
static uint64_t choose_pin(struct file *file, uint64_t address, uint64_t size, uint64_t caller)
{
    uint64_t unused = PINS, ended = PINS;

    for (uint64_t i = PINS; i-- > 0;) {
        const struct pin *pin = &file->pins[i];

        if (pin->pins == 0)
            unused = i;
        else if (pin->live == LIVE)
            continue;
        else if (pin->address == address && pin->size == size && pin->caller == caller)
            return i;
        else
            ended = i;
    }
    if (unused < PINS || ended == PINS)
        return unused;
    for (unsigned part = 0; part <= THREADS; part++)
        memset(&file->uses[part][ended], 0, sizeof(struct uses));
    memset(&file->pins[ended], 0, sizeof(struct pin));
    file->process.pins_forgotten++;
    return ended;
}

static void note_pin(struct file *file, gdr_t g, gdr_mh_t handle, uint64_t address, uint64_t size, uintptr_t caller)
{
    uint64_t list = list_new_objects(file);
    struct quiet quiet = lock(file);
    uint64_t number = choose_pin(file, address, size, caller);

    for (struct pin *pin = file->pins; pin < file->pins + PINS; pin++)
        if (pin->handle == handle.h) { /* Its pin has ended, even if that call has not returned. */
            set(&pin->handle, 0);
            set(&pin->live, ENDED);
        }
    if (number < PINS) {
        struct pin *pin = &file->pins[number];

        pin->gdr = (uintptr_t)g;
        pin->address = address;
        pin->size = size;
        pin->caller = caller;
        pin->list = list;
        pin->pins++;
        set(&pin->mapped, 0);
        set(&pin->live, LIVE);
        __atomic_store_n(&pin->handle, handle.h, __ATOMIC_RELEASE);
    } else {
        file->process.pins_left_out++;
    }
    unlock(file, quiet);
}

/* Changes the state of pins that have the handle or, without one, the gdr_t. */
static void change_pins(struct file *file, gdr_t g, const gdr_mh_t *handle, uint64_t from, uint64_t to)
{
    struct quiet quiet = lock(file);

    for (struct pin *pin = file->pins; pin < file->pins + PINS; pin++) {
        int is_meant = handle != NULL ? pin->handle == handle->h : pin->gdr == (uintptr_t)g;

        if (pin->live != from || !is_meant)
            continue;
        if (to == ENDED)
            set(&pin->mapped, 0);
        set(&pin->live, to);
    }
    unlock(file, quiet);
}

/* ---- Misuse ---- */

static __attribute__((noinline, cold)) void note_misuse(struct file *file, enum function function, const struct pin *pin,
                                                        uintptr_t caller, uint64_t address, uint64_t size)
{
    uint64_t mapped = pin != NULL ? get(&pin->mapped) : 0, why = OUTSIDE;

    if (pin == NULL && get(&file->process.pins_left_out) > 0)
        return; /* It may be one of these. */
    if (pin == NULL)
        why = UNKNOWN;
    else if (get(&pin->live) == ENDED)
        why = CLOSED;
    else if (mapped == 0)
        why = UNMAPPED;
    uint64_t key = (uint64_t)caller << 8 | function << 3 | why;
    for (struct misuse *misuse = file->misuses; misuse < file->misuses + MISUSES; misuse++) {
        uint64_t before = 0;

        if (__atomic_compare_exchange_n(&misuse->key, &before, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            misuse->offset = pin != NULL ? address - get(&pin->va) : 0;
            misuse->size = size;
            misuse->mapped = mapped;
            misuse->list = list_objects(file);
        } else if (before != key) {
            continue;
        }
        add(&misuse->count, 1);
        return;
    }
    add(&file->process.misuses_left_out, 1);
}

/* ---- Calls that are no copies ---- */

/* The thread is in a call. Those that the next library makes of its own functions do not count. */
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
    struct call call = {.function = function};

    call.file = this_file();
    /* A signal handler may have left a call by siglongjmp. No function of a library calls gdr_open. */
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

/* Returns the error. */
static int end(const struct call *call, int error)
{
    uint64_t now = ticks();

    if (!call->counts)
        return error;
    struct calls *calls = &call->file->calls[call->function];
    inside = 0;
    leave(call->file, call->part, now);
    add(&calls->count, 1);
    add(&calls->ticks, now > call->start ? now - call->start : 0); /* CPUs may differ. */
    if (error != 0) {
        add(&calls->failed, 1);
        set(&calls->error, (uint64_t)error);
    }
    return error;
}

static void note_map(struct file *file, gdr_t g, gdr_mh_t handle, const void *va, size_t size)
{
    struct pin *pin = find(file, handle.h);
    gdr_info_v2_t info;
    int before = errno;

    if (pin == NULL)
        return;
    inside = 1;
    if (next_info(g, handle, &info) != 0)
        info.va = pin->address;
    inside = 0;
    set(&pin->type, info.mapping_type);
    set(&pin->va, (uintptr_t)va);
    add(&pin->maps, 1);
    __atomic_store_n(&pin->mapped, mapping_len(pin->address, size, &info), __ATOMIC_RELEASE);
    errno = before;
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

/* Forwards a call, and notes what it did if it succeeds. */
#define FUNCTION(name, parameters, arguments, handle, note)                                                            \
    int gdr_##name parameters                                                                                          \
    {                                                                                                                  \
        struct call call = begin(F_##name, CALLER, handle);                                                            \
        int error = end(&call, next.name arguments);                                                                   \
                                                                                                                       \
        if (error == 0 && call.counts)                                                                                 \
            note;                                                                                                      \
        return error;                                                                                                  \
    }

FUNCTION(pin_buffer, (gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t va_space, gdr_mh_t *handle),
         (g, address, size, token, va_space, handle), NULL, note_pin(call.file, g, *handle, address, size, CALLER))
FUNCTION(pin_buffer_v2, (gdr_t g, unsigned long address, size_t size, uint32_t flags, gdr_mh_t *handle),
         (g, address, size, flags, handle), NULL, note_pin(call.file, g, *handle, address, size, CALLER))
FUNCTION(map, (gdr_t g, gdr_mh_t handle, void **va, size_t size), (g, handle, va, size), &handle,
         note_map(call.file, g, handle, *va, size))
FUNCTION(map_v2, (gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags), (g, handle, va, size, flags), &handle,
         note_map(call.file, g, handle, *va, size))
FUNCTION(get_callback_flag, (gdr_t g, gdr_mh_t handle, int *flag), (g, handle, flag), &handle, (void)0)
FUNCTION(get_info, (gdr_t g, gdr_mh_t handle, void *info), (g, handle, info), &handle, (void)0)
FUNCTION(get_info_v2, (gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info), (g, handle, info), &handle, (void)0)
FUNCTION(driver_get_version, (gdr_t g, int *major, int *minor), (g, major, minor), NULL, (void)0)
FUNCTION(get_attribute, (gdr_t g, gdr_attr_t attribute, int *value), (g, attribute, value), NULL, (void)0)
FUNCTION(get_mapping_type_string, (gdr_mapping_type_t type, const char **text), (type, text), NULL, (void)0)

void gdr_runtime_get_version(int *major, int *minor)
{
    struct call call = begin(F_runtime_get_version, CALLER, NULL);

    next.runtime_get_version(major, minor);
    end(&call, 0);
}

gdr_t gdr_open(void)
{
    struct call call = begin(F_open, CALLER, NULL);
    gdr_t g = NULL;

    if ((void *)next.open != (void *)missing)
        g = next.open();
    else
        errno = ELIBACC;
    end(&call, g == NULL ? errno : 0);
    return g;
}

int gdr_close(gdr_t g)
{
    struct call call = begin(F_close, CALLER, NULL);

    if (call.file != NULL)
        change_pins(call.file, g, NULL, LIVE, ENDING);
    int error = end(&call, next.close(g));
    if (call.file != NULL) /* With other errors it is closed nevertheless. */
        change_pins(call.file, g, NULL, ENDING, error == EINVAL || error == EACCES ? LIVE : ENDED);
    return error;
}

/* Another thread may get the handle before this returns. */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
    struct call call = begin(F_unpin_buffer, CALLER, &handle);

    if (call.file != NULL)
        change_pins(call.file, g, &handle, LIVE, ENDING);
    int error = end(&call, next.unpin_buffer(g, handle));
    if (call.file != NULL)
        change_pins(call.file, g, &handle, ENDING, error != 0 ? LIVE : ENDED);
    return error;
}

/* Another thread may map it before this returns. */
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
    struct call call = begin(F_unmap, CALLER, &handle);
    struct pin *pin = call.file != NULL ? find(call.file, handle.h) : NULL;
    uint64_t mapped = pin != NULL ? __atomic_exchange_n(&pin->mapped, 0, __ATOMIC_RELAXED) : 0;
    int error = end(&call, next.unmap(g, handle, va, size));

    if (pin != NULL && error != 0)
        set(&pin->mapped, mapped);
    return error;
}

/* ---- Copies ---- */

static inline void count_copy(struct file *file, unsigned part, int direction, const struct pin *pin, size_t size, uint64_t took)
{
    unsigned size_class = size == 0 ? 0 : 64 - (unsigned)__builtin_clzl(size);
    unsigned shift = 61 - (unsigned)__builtin_clzl(took | 4);
    uint64_t time = 4 * shift + (took >> shift);
    struct class *class = &file->copies[part][direction][size_class < SIZES ? size_class : SIZES - 1];

    count(part, &class->bytes, size);
    count(part, &class->ticks, took);
    count(part, &class->times[time < TIMES ? time : TIMES - 1], 1);
    if (pin != NULL) {
        struct uses *uses = &file->uses[part][pin - file->pins];

        count(part, &uses->count[direction], 1);
        count(part, &uses->bytes[direction], size);
    }
}

static inline __attribute__((always_inline)) int copy(enum function function, gdr_mh_t handle, void *to, const void *from,
                                                      size_t size, uintptr_t caller)
{
    int direction = function == F_copy_from_mapping;
    struct file *file = this_file();
    __typeof__(&gdr_copy_to_mapping) next_copy = direction == 0 ? next.copy_to_mapping : next.copy_from_mapping;

    if (file == NULL)
        return next_copy(handle, to, from, size);
    const struct pin *pin = find(file, handle.h);
    uint64_t address = direction == 0 ? (uintptr_t)to : (uintptr_t)from;
    uint64_t offset = pin != NULL ? address - get(&pin->va) : 0, mapped = pin != NULL ? get(&pin->mapped) : 0;
    if (size > 0 && (offset > mapped || size > mapped - offset)) /* Now, as the copy may end the program. */
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
        count_copy(file, part, direction, pin, size, now > start ? now - start : 0);
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
