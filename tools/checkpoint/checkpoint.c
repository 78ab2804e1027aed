/*
 * `gdrcopy checkpoint` preloads this, with the SONAME and the functions of libgdrapi, over the next libgdrapi of any maker.
 * Its handles stay valid while `gdrcopy suspend` has everything unmapped, unpinned and closed in the next library.
 * `gdrcopy resume` opens, pins and maps again, and moves each mapping to its old address by mremap.
 *
 * Requests. A thread, started by gdr_open, waits for a queued signal to itself, and answers in its name, which anyone can
 * read in /proc. The kernel checks the sender's user as for kill(2). There is no descriptor that a program may close, a
 * child inherit, or a checkpoint have to keep. There is no name that others can take, and no client that the end of the
 * process waits for. An idle process makes no calls, so a flag that calls look at would not do. ptrace would stop a thread
 * anywhere, holding any lock, and needs a privilege (Yama).
 *
 * Calls and copies. They enter a gate, one atomic counter, in which a suspension closes a bit, and then waits until all have
 * left. Calls that come later wait for the resumption. A copy in the handler of a signal belongs to the call that it
 * interrupted.
 *
 * Moved mappings. The next library remembers the address to which it mapped, and will unmap that. So it stays reserved.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include "gdrapi.h"
#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info); /* programs built before 2.4 */
#pragma GCC visibility pop

#define INFO_V1_SIZE 40

/* ---- The next library ---- */

#define FUNCTIONS(DO)                                                                                                  \
    DO(open) DO(close) DO(pin_buffer) DO(pin_buffer_v2) DO(unpin_buffer) DO(get_callback_flag) DO(get_info)            \
    DO(get_info_v2) DO(map) DO(map_v2) DO(unmap) DO(copy_to_mapping) DO(copy_from_mapping) DO(runtime_get_version)     \
    DO(driver_get_version) DO(get_attribute) DO(get_mapping_type_string)

/* NULL for those that it lacks. */
static struct {
#define DECLARE(name) __typeof__(&gdr_##name) name;
    FUNCTIONS(DECLARE)
} next;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load_next(void)
{
    const char *path = getenv("GDRCHECKPOINT_LIBRARY"); /* of `gdrcopy checkpoint` */
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    if (library == NULL)
        return;
#define LOOK_UP(name) *(void **)&next.name = dlsym(library, "gdr_" #name);
    FUNCTIONS(LOOK_UP)
}

/* Returns whether there is one. */
static int load(void)
{
    pthread_once(&once, load_next);
    return next.open != NULL;
}

/* ---- Handles ---- */

struct driver {
    int major, minor, uses_dmabuf;
    dev_t device;
};

/* The arguments of a pin. */
struct request {
    unsigned long address;
    size_t size;
    uint64_t token;
    uint32_t va_space, flags;
    int is_v2;
};

/* A gdr_t or a pin. */
struct record {
    int fd; /* of a gdr_t; the test suite of NVIDIA's 2.6 reads it here */
    _Atomic(int) kind;
    unsigned era;     /* of the process that has it */
    int error;        /* EIO: not restored */
    struct record *g; /* of a pin */
    uint32_t number;  /* unique; that suite reads it here */
    int freed;        /* before the suspension */
    LIST_ENTRY(record) link;
    LIST_HEAD(, record) pins;
    gdr_t next_g;    /* NULL while suspended */
    gdr_mh_t next_h; /* 0 while suspended, and if not restored */
    int leaks;       /* the next library must not close it */

    struct driver driver; /* of a gdr_t */

    struct request as;

    /* The arguments of its mapping, and where it is. */
    char *va;      /* NULL: not mapped */
    char *next_va; /* where the next library believes it to be; NULL if another thread has mapped something there */
    size_t map_size, len;
    int map_flags;
    gdr_mapping_type_t type;
    unsigned long inode, offset; /* of the file that is mapped */
    unsigned device_major, device_minor;
};

enum { FREE, OPENED, PINNED };

#define RECORDS (1 << 17)
/* Slots are reused as late as possible, so stale handles are refused. */
static struct record *records;
static unsigned taken;
static LIST_HEAD(, record) opened = LIST_HEAD_INITIALIZER(opened);
/* Forks between the first process and this one. */
static unsigned era;

static int is_record(const void *handle)
{
    uintptr_t distance = (uintptr_t)handle - (uintptr_t)records;

    return records != NULL && distance < RECORDS * sizeof(struct record) && distance % sizeof(struct record) == 0;
}

/* Returns 0 for a handle of this process. */
static int check(const struct record *handle, int kind)
{
    if (!is_record(handle) || handle->kind == FREE)
        return EINVAL;
    if (handle->era != era)
        return EACCES;
    return handle->kind == kind ? 0 : EINVAL;
}

static struct record *take_record(void)
{
    const size_t size = RECORDS * sizeof(struct record);

    if (records == NULL) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (memory == MAP_FAILED)
            return NULL;
        records = memory;
    }
    for (unsigned tries = 0; tries < RECORDS; tries++) {
        struct record *record = &records[++taken % RECORDS];

        if (record->kind == FREE) {
            memset(record, 0, sizeof(*record));
            record->era = era;
            record->number = taken;
            return record;
        }
    }
    return NULL;
}

static void drop(struct record *record)
{
    record->kind = FREE;
    LIST_REMOVE(record, link);
}

/* ---- The gate ---- */

#define CLOSED (1u << 31)
/* The calls in progress, and CLOSED. */
static _Atomic(uint32_t) gate;
/* The frame of this thread's call, which is in the gate; 0 without one. */
static __thread uintptr_t frame;
/* The thread is in the next library. */
static __thread int inside;
static __thread int cancel_state;
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_gate(uint32_t value, long milliseconds)
{
    struct timespec limit = {0, milliseconds * 1000000};

    syscall(SYS_futex, &gate, FUTEX_WAIT_PRIVATE, value, milliseconds > 0 ? &limit : NULL, NULL, 0);
}

static void wake_gate(void)
{
    syscall(SYS_futex, &gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void leave_gate(void)
{
    if (atomic_fetch_sub(&gate, 1) == (CLOSED | 1))
        wake_gate();
}

/* Waits while it is closed. Returns what `leave` takes. */
static uintptr_t enter(uintptr_t here)
{
    uint32_t value;

    if (frame != 0 && here < frame)
        return 0; /* in the handler of a signal, during another call */
    if (frame == 0) { /* else siglongjmp has left a copy, which is still counted */
        for (;;) {
            while ((value = gate) & CLOSED)
                wait_for_gate(value, 0);
            if (!(atomic_fetch_add(&gate, 1) & CLOSED))
                break;
            leave_gate();
        }
    }
    return frame = here;
}

static void leave(uintptr_t entered)
{
    if (entered == 0 || frame != entered)
        return;
    frame = 0;
    leave_gate();
}

#define HERE ((uintptr_t)__builtin_frame_address(0))

/* Begins a call that is no copy. One runs at a time. */
static void lock(void)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    enter(HERE);
    pthread_mutex_lock(&calls);
    inside = 1;
}

static int unlock(int result)
{
    int state = cancel_state;

    inside = 0;
    pthread_mutex_unlock(&calls);
    leave(frame);
    pthread_setcancelstate(state, NULL);
    return result;
}

/* Begins a call that uses g. */
static int begin(struct record *g)
{
    lock();
    return check(g, OPENED);
}

/* Begins a call that uses a pin of g. */
static int begin_pin(struct record *g, struct record *pin)
{
    int error = begin(g);

    if (error == 0)
        error = check(pin, PINNED);
    return error == 0 && pin->g != g ? EINVAL : error;
}

/* ---- Addresses ---- */

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* Replaces a mapping by addresses that fault. */
static int reserve(char *address, size_t len)
{
    return mmap(address, len, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == address ? 0 : errno;
}

/* Reserves addresses where nothing is. */
static int reserve_free(char *address, size_t len)
{
    char *reserved = mmap(address, len, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);

    if (reserved != MAP_FAILED && reserved != address) /* before Linux 4.17 */
        munmap(reserved, len);
    return reserved == address;
}

/* A line of /proc/self/maps. */
struct area {
    char *start, *end;
    char access[5];
    unsigned long offset, inode;
    unsigned device_major, device_minor;
    int is_closed; /* by libgdrapi, which keeps the addresses of closed mappings */
};

static struct area *areas;
static size_t areas_count, areas_room;

static int read_areas(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 200];

    areas_count = 0;
    if (maps == NULL)
        return errno;
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (areas_count == areas_room) {
            size_t room = areas_room * 2 + 1000;
            struct area *more = realloc(areas, room * sizeof(*areas));

            if (more == NULL) {
                fclose(maps);
                return ENOMEM;
            }
            areas = more;
            areas_room = room;
        }
        struct area *area = &areas[areas_count++];
        sscanf(line, "%p-%p %4s %lx %x:%x %lu", (void **)&area->start, (void **)&area->end, area->access, &area->offset,
               &area->device_major, &area->device_minor, &area->inode);
        area->is_closed = strstr(line, "gdrapi-closed-mapping") != NULL;
    }
    fclose(maps);
    return 0;
}

/* The first area that ends after an address. */
static const struct area *area_after(const char *address)
{
    size_t low = 0, high = areas_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (areas[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return &areas[low];
}

static int is_reserved(const struct record *pin, const struct area *area)
{
    (void)pin;
    return area->is_closed || (area->inode == 0 && strcmp(area->access, "---p") == 0);
}

static int is_mapped(const struct record *pin, const struct area *area)
{
    return area->inode == pin->inode && area->device_major == pin->device_major && area->device_minor == pin->device_minor &&
           area->offset - (unsigned long)area->start == pin->offset - (unsigned long)pin->va && area->access[3] == 's';
}

/* Returns whether all areas at the addresses of a mapping are so. */
static int all_areas(const struct record *pin, int (*are)(const struct record *pin, const struct area *area))
{
    const char *address = pin->va, *end = pin->va + pin->len;
    const struct area *area = area_after(address);

    for (; address < end; address = area++->end)
        if (area == areas + areas_count || area->start > address || !are(pin, area))
            return 0;
    return 1;
}

/* ---- Pins and mappings of the next library ---- */

static void report(const struct record *pin, const char *what, int error)
{
    if (getenv("GDRCOPY_ENABLE_LOGGING") != NULL)
        fprintf(stderr, "ERR:  the pin of %#lx+%#zx %s: %s\n", pin->as.address, pin->as.size, what, strerror(error));
}

static int next_pin(struct record *pin)
{
    gdr_t g = pin->g->next_g;

    if (pin->as.is_v2 && next.pin_buffer_v2 != NULL)
        return next.pin_buffer_v2(g, pin->as.address, pin->as.size, pin->as.flags, &pin->next_h);
    if (pin->as.flags != 0)
        return ENOSYS;
    return next.pin_buffer(g, pin->as.address, pin->as.size, pin->as.token, pin->as.va_space, &pin->next_h);
}

static int next_info(const struct record *pin, gdr_info_v2_t *info)
{
    int error;

    memset(info, 0, sizeof(*info));
    if (next.get_info_v2 != NULL) {
        error = next.get_info_v2(pin->g->next_g, pin->next_h, info);
    } else {
        error = next.get_info(pin->g->next_g, pin->next_h, info);
        if (info->mapped)
            info->mapping_type = info->wc_mapping ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
    }
    /* NVIDIA's driver forgets a mapping that has moved. */
    if (error == 0 && pin->va != pin->next_va && info->mapping_type == GDR_MAPPING_TYPE_NONE) {
        info->mapped = 1;
        info->wc_mapping = pin->type == GDR_MAPPING_TYPE_WC;
        info->mapping_type = pin->type;
    }
    return error;
}

static int next_unpin(struct record *pin)
{
    int error = next.unpin_buffer(pin->g->next_g, pin->next_h);

    pin->next_h.h = 0; /* After an error, NVIDIA's library has freed the handle as well. */
    return error;
}

/* Maps where the next library likes it, and returns the type of the mapping. */
static int next_map(const struct record *pin, void **va, gdr_info_v2_t *info)
{
    gdr_t g = pin->g->next_g;
    int error = ENOSYS;

    if (next.map_v2 != NULL)
        error = next.map_v2(g, pin->next_h, va, pin->map_size, pin->map_flags);
    else if (pin->map_flags == GDR_MAP_FLAG_DEFAULT)
        error = next.map(g, pin->next_h, va, pin->map_size);
    return error != 0 ? error : next_info(pin, info);
}

static int has_moved(const struct record *pin)
{
    return pin->va != NULL && pin->va != pin->next_va;
}

/* Replaces a mapping that has moved by a reservation, so that the next library can unpin it. */
static int take_back(struct record *pin)
{
    if (!has_moved(pin) || pin->next_h.h == 0)
        return 0;
    int error = reserve(pin->va, pin->len);
    if (error == 0 && pin->next_va == NULL)
        pin->g->leaks = 1;
    else if (error == 0)
        next.unmap(pin->g->next_g, pin->next_h, pin->next_va, pin->map_size);
    return error;
}

/* ---- Suspension ---- */

static int is_suspended;

/* Returns an error if a pin could not be taken away and returned. */
static int check_pin(struct record *pin)
{
    gdr_info_v2_t info;
    int freed = 0;

    if (pin->next_h.h == 0)
        return 0;
    if (has_moved(pin) && pin->next_va == NULL)
        return EBUSY;
    int error = next_info(pin, &info); /* gdrdrv 2.0 serves only the thread that opened it. */
    if (error == 0)
        error = next.get_callback_flag(pin->g->next_g, pin->next_h, &freed);
    pin->freed = freed;
    if (error == 0 && !freed && pin->va != NULL && !all_areas(pin, is_mapped))
        error = EADDRINUSE; /* The program has replaced it. */
    return error;
}

static int suspend_pin(struct record *pin)
{
    if (pin->next_h.h == 0)
        return 0;
    int had_moved = has_moved(pin), error = had_moved ? take_back(pin) : 0;
    if (error == 0 && pin->va != NULL && !had_moved)
        error = reserve(pin->va, pin->len);
    if (error == 0)
        error = next_unpin(pin);
    /* While it is mapped, NVIDIA's and this project's libraries keep its addresses reserved. Others free them. */
    if (pin->va != NULL && !had_moved)
        reserve_free(pin->va, pin->len);
    return error;
}

/* Pins and maps it at its old address. */
static int resume_pin(struct record *pin)
{
    gdr_info_v2_t info;
    void *va = NULL;
    int error;

    if (pin->freed)
        return EFAULT;
    if (pin->va != NULL && !all_areas(pin, is_reserved)) {
        pin->len = 0;
        return EADDRINUSE;
    }
    error = next_pin(pin);
    if (error != 0) {
        pin->next_h.h = 0;
        return error;
    }
    pin->next_va = pin->va;
    if (pin->va == NULL)
        return 0;
    error = next_map(pin, &va, &info);
    if (error == 0 && info.mapping_type != pin->type)
        error = EOPNOTSUPP;
    if (error == 0 && mremap(va, pin->len, pin->len, MREMAP_MAYMOVE | MREMAP_FIXED, pin->va) != pin->va) {
        error = errno;
        if (!reserve_free(pin->va, pin->len) && (read_areas() != 0 || !all_areas(pin, is_reserved)))
            pin->len = 0; /* The kernel has unmapped the reservation, and another thread has the addresses. */
    }
    if (error != 0) {
        if (va != NULL)
            next.unmap(pin->g->next_g, pin->next_h, va, pin->map_size);
        next_unpin(pin);
        return error;
    }
    pin->next_va = reserve_free(va, pin->len) ? va : NULL;
    return 0;
}

/* Returns NULL with errno. */
static gdr_t next_open(int *fd, struct driver *driver)
{
    struct stat file = {0};
    gdr_t g = next.open();

    if (g == NULL)
        return NULL;
    memcpy(fd, g, sizeof(*fd)); /* -1 with dma-bufs */
    memset(driver, 0, sizeof(*driver));
    next.driver_get_version(g, &driver->major, &driver->minor);
    next.get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &driver->uses_dmabuf);
    fstat(*fd, &file);
    driver->device = file.st_rdev;
    return g;
}

static void close_all(void)
{
    struct record *g;

    LIST_FOREACH(g, &opened, link)
    {
        if (g->next_g != NULL)
            next.close(g->next_g);
        g->next_g = NULL;
        g->fd = -1;
    }
}

/* Opens all, with the same driver as before. */
static int open_all(void)
{
    struct driver driver;
    struct record *g;

    LIST_FOREACH(g, &opened, link)
    {
        if (g->next_g != NULL)
            continue;
        g->next_g = next_open(&g->fd, &driver);
        int error = g->next_g == NULL ? errno : memcmp(&driver, &g->driver, sizeof(driver)) != 0 ? ENODEV : 0;
        if (error != 0) {
            close_all();
            return error;
        }
    }
    return 0;
}

/* Does it for all pins until the first error. */
static int each_pin(int (*work)(struct record *pin))
{
    struct record *g, *pin;
    int error = 0;

    LIST_FOREACH(g, &opened, link)
    {
        error = g->leaks ? EBUSY : error;
        LIST_FOREACH(pin, &g->pins, link)
        {
            if (error == 0 && (error = work(pin)) != 0)
                report(pin, "cannot be suspended", error);
        }
    }
    return error;
}

/* Notes which file a mapping is of. */
static int note_file(struct record *pin)
{
    const struct area *area = area_after(pin->va);

    if (pin->va != NULL && pin->next_h.h != 0) {
        pin->inode = area->inode;
        pin->device_major = area->device_major;
        pin->device_minor = area->device_minor;
        pin->offset = area->offset + (unsigned long)(pin->va - area->start);
    }
    return 0;
}

static unsigned lost; /* pins of the last request that could not be restored */

static int resume_or_lose(struct record *pin)
{
    int error = pin->next_h.h == 0 && pin->error == 0 ? resume_pin(pin) : 0;

    if (error != 0) {
        report(pin, "is not restored", error);
        pin->error = EIO;
        lost++;
    }
    return 0;
}

static void resume_pins(void)
{
    each_pin(resume_or_lose);
    if (read_areas() == 0)
        each_pin(note_file);
}

static int suspend(void)
{
    int error = read_areas();

    if (error == 0)
        error = each_pin(check_pin);
    if (error != 0)
        return error;
    error = each_pin(suspend_pin);
    if (error == 0)
        close_all();
    else if (read_areas() == 0)
        resume_pins();
    is_suspended = error == 0;
    return error;
}

static int resume(void)
{
    int error = open_all();

    if (error == 0 && (error = read_areas()) != 0)
        close_all();
    if (error != 0)
        return error;
    resume_pins();
    is_suspended = 0;
    return 0;
}

/* ---- Requests ---- */

/* The signal; its value is the number of the request, times 256, and a letter. */
#define REQUEST (SIGRTMAX - 1)
enum { SUSPEND = 's', RESUME = 'r', END = 'e' };

static _Atomic(pid_t) helper_process; /* that has the thread */
static pthread_t helper;
static sem_t has_name; /* as soon as gdr_open returns */
static _Atomic(int) has_ended, works;
static _Atomic(int) first_thread_ended, end_is_queued;

/* Sets the thread's name to its number, that of the request, and the answer, of at most three letters. */
static void answer(int request, const char *text)
{
    char name[16];

    snprintf(name, sizeof(name), "gdr%06x%03x%s", (unsigned)syscall(SYS_gettid) & 0xffffff, (unsigned)request >> 8 & 0xfff, text);
    prctl(PR_SET_NAME, name);
}

/* The value of the next request, or 0. Waits without limit if there is none. */
static int next_request(const struct timespec *limit)
{
    siginfo_t info;
    sigset_t requests;

    sigemptyset(&requests);
    sigaddset(&requests, REQUEST);
    return sigtimedwait(&requests, &info, limit) == REQUEST && info.si_code == SI_QUEUE ? info.si_value.sival_int : 0;
}

static void open_gate(void)
{
    atomic_fetch_and(&gate, ~CLOSED);
    wake_gate();
}

/* Waits for the calls in progress. Returns a request that ends the waiting, or 0. */
static int close_gate(void)
{
    static const struct timespec now = {0, 0};
    uint32_t value;
    int request = 0;

    atomic_fetch_or(&gate, CLOSED);
    while ((value = gate) != CLOSED && request == 0 && !has_ended) {
        wait_for_gate(value, 20);
        request = next_request(&now);
    }
    works = value == CLOSED;
    if (!works || has_ended) {
        works = 0;
        open_gate();
    }
    return request;
}

static void serve(int request)
{
    int error = 0, other = 0;
    char text[8] = "ok";

    lost = 0;
    if ((request & 0xff) == SUSPEND && is_suspended) {
        strcpy(text, "as"); /* suspended already */
    } else if ((request & 0xff) == SUSPEND) {
        other = close_gate();
        error = works ? suspend() : ECANCELED;
    } else if (is_suspended) {
        works = 1;
        error = has_ended ? ECANCELED : resume();
    }
    if (works && !is_suspended)
        open_gate();
    works = 0;
    if (lost > 0)
        snprintf(text, sizeof(text), "l%02x", lost < 0xff ? lost : 0xff);
    else if (error != 0)
        snprintf(text, sizeof(text), "e%02x", (unsigned)error & 0xff);
    answer(request, text);
    if (other != 0)
        serve(other);
}

static void *help(void *unused)
{
    int request;

    inside = 1;
    answer(0, "");
    sem_post(&has_name);
    while (!has_ended || is_suspended) {
        request = next_request(NULL);
        if ((request & 0xff) == END)
            has_ended = 1;
        else if (request != 0)
            serve(request);
    }
    return unused;
}

/* A process whose first thread ends by pthread_exit ends with its last one, which must not be the helper. */
static void end_helper(void)
{
    if (first_thread_ended && helper_process == getpid() && !atomic_exchange(&end_is_queued, 1))
        pthread_sigqueue(helper, REQUEST, (union sigval){.sival_int = END});
}

static void start_helper(void)
{
    sigset_t all, before;

    if (helper_process == getpid() || first_thread_ended || has_ended)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&helper, NULL, help, NULL) == 0) {
        pthread_detach(helper);
        while (sem_wait(&has_name) != 0)
            ;
        helper_process = getpid();
        end_helper(); /* if the first thread ended just now */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void at_end_of_thread(void *unused)
{
    (void)unused;
    first_thread_ended = 1;
    end_helper();
}

static pthread_key_t key; /* whose destructor ends the helper with the first thread */

static void in_child(void)
{
    pthread_setspecific(key, &key);
    era++;
    atomic_store(&gate, frame != 0);
    pthread_mutex_init(&calls, NULL);
    LIST_INIT(&opened);
    sem_init(&has_name, 0, 0);
    is_suspended = works = has_ended = first_thread_ended = end_is_queued = 0;
}

__attribute__((constructor)) static void start(void)
{
    pthread_key_create(&key, at_end_of_thread);
    pthread_setspecific(key, &key);
    pthread_atfork(NULL, NULL, in_child);
}

/* Calls that come at the end of a suspended process do not wait. */
__attribute__((destructor)) static void finish(void)
{
    has_ended = 1;
    while (works)
        usleep(1000);
    if (is_suspended)
        open_gate();
}

/* ---- The functions ---- */

/* The next library may call its own functions by these symbols. */
#define PASS_ON(call)                                                                                                  \
    if (inside)                                                                                                        \
    return call

gdr_t gdr_open(void)
{
    struct record *g = NULL;
    int error = ENOMEM;

    PASS_ON(next.open());
    lock();
    if (!load()) {
        error = ELIBACC;
    } else if ((g = take_record()) != NULL) {
        g->next_g = next_open(&g->fd, &g->driver);
        error = g->next_g == NULL ? errno : 0;
        if (error == 0) {
            g->kind = OPENED;
            LIST_INSERT_HEAD(&opened, g, link);
            start_helper();
        }
    }
    unlock(0);
    errno = error != 0 ? error : errno;
    return error == 0 ? (gdr_t)(void *)g : NULL;
}

/* In a forked child it closes the child's copy of the descriptor. */
int gdr_close(gdr_t handle)
{
    struct record *g = (void *)handle, *pin;

    PASS_ON(next.close(handle));
    int error = begin(g);
    if (error == EACCES && g->kind == OPENED) {
        error = g->next_g != NULL ? next.close(g->next_g) : 0;
        LIST_FOREACH(pin, &g->pins, link)
            pin->kind = FREE;
        g->kind = FREE;
    } else if (error == 0) {
        while ((pin = LIST_FIRST(&g->pins)) != NULL) {
            take_back(pin);
            drop(pin);
        }
        error = g->next_g != NULL && !g->leaks ? next.close(g->next_g) : 0;
        drop(g);
    }
    return unlock(error);
}

static int pin_buffer(struct record *g, const struct request *as, gdr_mh_t *handle)
{
    struct record *pin = NULL;
    int error = begin(g);

    if (error == 0 && (g->next_g == NULL || handle == NULL))
        error = handle == NULL ? EINVAL : EIO;
    if (error == 0 && (pin = take_record()) == NULL)
        error = ENOMEM;
    if (error == 0) {
        pin->g = g;
        pin->as = *as;
        error = next_pin(pin);
    }
    if (error == 0) {
        pin->kind = PINNED;
        LIST_INSERT_HEAD(&g->pins, pin, link);
        handle->h = (unsigned long)pin;
    }
    return unlock(error);
}

int gdr_pin_buffer(gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t va_space, gdr_mh_t *handle)
{
    PASS_ON(next.pin_buffer(g, address, size, token, va_space, handle));
    return pin_buffer((void *)g, &(struct request){.address = address, .size = size, .token = token, .va_space = va_space}, handle);
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long address, size_t size, uint32_t flags, gdr_mh_t *handle)
{
    PASS_ON(next.pin_buffer_v2(g, address, size, flags, handle));
    return pin_buffer((void *)g, &(struct request){.address = address, .size = size, .flags = flags, .is_v2 = 1}, handle);
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
    struct record *pin = (void *)handle.h;

    PASS_ON(next.unpin_buffer(g, handle));
    int error = begin_pin((void *)g, pin);
    if (error == 0)
        error = take_back(pin);
    if (error == 0) {
        int is_unreachable = has_moved(pin) && pin->next_va == NULL;
        if (pin->next_h.h != 0 && !is_unreachable)
            error = next_unpin(pin);
        if (error == 0) {
            drop(pin);
        } else { /* Programs try again, which then succeeds. */
            pin->error = EIO;
            pin->va = pin->next_va = NULL;
        }
    }
    return unlock(error);
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
    struct record *pin = (void *)handle.h;

    PASS_ON(next.get_callback_flag(g, handle, flag));
    int error = begin_pin((void *)g, pin);
    if (error == 0)
        error = pin->next_h.h != 0 ? next.get_callback_flag(pin->g->next_g, pin->next_h, flag) : EIO;
    return unlock(error);
}

static int get_info(gdr_t g, gdr_mh_t handle, void *info, size_t size)
{
    struct record *pin = (void *)handle.h;
    gdr_info_v2_t all;
    int error = begin_pin((void *)g, pin);

    if (error == 0)
        error = info == NULL ? EINVAL : pin->next_h.h == 0 ? EIO : next_info(pin, &all);
    if (error == 0)
        memcpy(info, &all, size);
    return unlock(error);
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
    return inside ? next.get_info_v2(g, handle, info) : get_info(g, handle, info, sizeof(*info));
}

int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info)
{
    return inside ? next.get_info(g, handle, info) : get_info(g, handle, info, INFO_V1_SIZE);
}

/* Notes where a new mapping is. */
static void note_mapping(struct record *pin, void *va, const gdr_info_v2_t *info)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t head = pin->as.address > info->va ? pin->as.address - info->va : 0; /* with GDRCOPY_ALLOW_UNALIGNED_MAP */

    pin->va = pin->next_va = va;
    pin->len = (pin->map_size + head + page - 1) / page * page;
    pin->type = info->mapping_type;
    if (read_areas() == 0)
        note_file(pin);
}

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)
{
    struct record *pin = (void *)handle.h;
    gdr_info_v2_t info;
    void *mapped = NULL;

    PASS_ON(next.map_v2(g, handle, va, size, flags));
    int error = begin_pin((void *)g, pin);
    if (error == 0 && (va == NULL || pin->next_h.h == 0))
        error = va == NULL ? EINVAL : EIO;
    if (error == 0 && pin->va != NULL)
        error = EAGAIN;
    if (error == 0) {
        pin->map_size = size;
        pin->map_flags = flags;
        error = next_map(pin, &mapped, &info);
    }
    if (error == 0) {
        note_mapping(pin, mapped, &info);
        *va = mapped;
    }
    return unlock(error);
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
    return inside ? next.map(g, handle, va, size) : gdr_map_v2(g, handle, va, size, GDR_MAP_FLAG_DEFAULT);
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
    struct record *pin = (void *)handle.h;

    PASS_ON(next.unmap(g, handle, va, size));
    int error = begin_pin((void *)g, pin);
    if (error == 0 && pin->va == NULL)
        error = EINVAL;
    if (error == 0 && pin->next_h.h != 0 && !has_moved(pin))
        error = next.unmap(pin->g->next_g, pin->next_h, va, size);
    else if (error == 0 && (error = take_back(pin)) == 0)
        munmap(pin->va, pin->len); /* Nothing if the addresses were lost. */
    if (error == 0) {
        if (has_moved(pin) && pin->next_va == NULL)
            pin->next_h.h = 0; /* The next library cannot map it again. */
        pin->va = pin->next_va = NULL;
    }
    return unlock(error);
}

/* Returns 0 if the pin may be copied through. */
static int check_copy(const struct record *pin)
{
    int error = check(pin, PINNED);

    if (error == 0 && pin->next_h.h == 0)
        error = EIO;
    return error == 0 && pin->va == NULL ? EINVAL : error;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
    const struct record *pin = (void *)handle.h;

    if (inside && !is_record(pin))
        return next.copy_to_mapping(handle, map_d_ptr, h_ptr, size);
    uintptr_t entered = enter(HERE);
    int error = check_copy(pin);
    if (error == 0)
        error = next.copy_to_mapping(pin->next_h, map_d_ptr, h_ptr, size);
    leave(entered);
    return error;
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
    const struct record *pin = (void *)handle.h;

    if (inside && !is_record(pin))
        return next.copy_from_mapping(handle, h_ptr, map_d_ptr, size);
    uintptr_t entered = enter(HERE);
    int error = check_copy(pin);
    if (error == 0)
        error = next.copy_from_mapping(pin->next_h, h_ptr, map_d_ptr, size);
    leave(entered);
    return error;
}

void gdr_runtime_get_version(int *major, int *minor)
{
    if (load() && next.runtime_get_version != NULL)
        next.runtime_get_version(major, minor);
}

int gdr_driver_get_version(gdr_t handle, int *major, int *minor)
{
    struct record *g = (void *)handle;

    PASS_ON(next.driver_get_version(handle, major, minor));
    int error = begin(g);
    if (error == 0)
        error = g->next_g != NULL ? next.driver_get_version(g->next_g, major, minor) : EIO;
    return unlock(error);
}

int gdr_get_attribute(gdr_t handle, gdr_attr_t attribute, int *value)
{
    struct record *g = (void *)handle;

    PASS_ON(next.get_attribute(handle, attribute, value));
    int error = begin(g);
    if (error == 0)
        error = g->next_g != NULL ? next.get_attribute(g->next_g, attribute, value) : EIO;
    else if (value != NULL)
        *value = 0;
    return unlock(error);
}

int gdr_get_mapping_type_string(gdr_mapping_type_t mapping_type, const char **text)
{
    return load() && next.get_mapping_type_string != NULL ? next.get_mapping_type_string(mapping_type, text) : ENOSYS;
}
