/*
 * `gdrcopy checkpoint` preloads this, with the SONAME and the functions of libgdrapi, over the next libgdrapi of any maker.
 * Its handles stay valid while `gdrcopy suspend` has everything unmapped, unpinned and closed in the next library.
 * `gdrcopy resume` opens, pins and maps again, at the old addresses.
 *
 * Requests. A thread, started by gdr_open, waits for a queued signal to itself, and answers in its name, which anyone can
 * read in /proc. The kernel checks the sender's user as for kill(2). There is no descriptor that a program may close, a
 * child inherit, or a checkpoint have to keep. There is no name that others can take, and no client that the end of the
 * process waits for. An idle process makes no calls, so a flag that calls look at would not do. ptrace would stop a thread
 * anywhere, holding any lock, and needs a privilege (Yama).
 *
 * Addresses. During a request, mmap by the next library replaces a reservation, and munmap leaves one. So at no time can
 * another thread get the addresses. mremap would leave the first addresses of a mapping free, which the next library will
 * unmap. Both calls are redirected in the tables of that library, because UCX and libfabric redirect what the symbols name.
 *
 * `error ?: step` takes the step if there was no error.
 */
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
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

#include "next.h"

#define INFO_V1_SIZE 40

/* ---- The next library ---- */

static void *library;

static void load_next(void)
{
    library = load_from(getenv("GDRCHECKPOINT_LIBRARY")); /* of `gdrcopy checkpoint` */
}

static void load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_next);
}

/* ---- Handles ---- */

/* The arguments of a pin. */
struct request {
    unsigned long address;
    size_t size;
    uint64_t token;
    uint32_t va_space, flags;
};

/* A gdr_t or a pin. */
struct record {
    int fd; /* of a gdr_t; the test suite of NVIDIA's 2.6 reads it here */
    _Atomic(int) kind;
    unsigned era; /* of the process that has it */
    int is_lost;  /* a pin that could not be restored */
    struct record *g;
    uint32_t number; /* unique; that suite reads it here */
    LIST_ENTRY(record) link;

    /* These are for a gdr_t. */
    LIST_HEAD(, record) pins;
    gdr_t next_g; /* NULL while suspended */
    ino_t inode;  /* of its descriptor; 0 with dma-bufs */

    /* These are for a pin. */
    gdr_mh_t next_h; /* 0 while suspended, and if lost */
    struct request as;
    int was_freed; /* before the suspension */
    char *va; /* of its mapping; NULL without one */
    size_t map_size, len;
    int map_flags;
    gdr_mapping_type_t type;
    char place[64]; /* of its mapping, in the words of see_mappings; empty until that has seen it */
    size_t in_place; /* bytes that were where they should be, when /proc/self/maps was read */
};

enum { FREE, OPENED, PINNED };

#define RECORDS (1 << 17)
/* Slots are reused as late as possible, so stale handles are refused. */
static struct record records[RECORDS];
static unsigned taken;
static LIST_HEAD(, record) opened = LIST_HEAD_INITIALIZER(opened);
/* Forks between the first process and this one. */
static unsigned era;

/* Each but the lost ones. */
#define EACH_PIN(g, pin) LIST_FOREACH(g, &opened, link) LIST_FOREACH(pin, &g->pins, link) if (!pin->is_lost)

#define G(handle) ((struct record *)(void *)(handle))
#define PIN(handle) ((struct record *)(handle).h)

static int is_record(const struct record *record)
{
    uintptr_t distance = (uintptr_t)record - (uintptr_t)records;

    return distance < sizeof(records) && distance % sizeof(records[0]) == 0;
}

/* Returns 0 for a handle of this process. */
static int check(const struct record *record, int kind)
{
    if (!is_record(record) || record->kind == FREE)
        return EINVAL;
    if (record->era != era)
        return EACCES;
    return record->kind == kind ? 0 : EINVAL;
}

static struct record *take_record(void)
{
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

/* ---- Calls ---- */

/* A suspension closes the gate, and waits for the calls that are in it. Calls that come later wait for the resumption. */
#define CLOSED (1u << 31)
/* The number of calls in it, and CLOSED. */
static _Atomic(uint32_t) gate;
/* Calls of this thread that have begun. More than one, if a signal handler copies; they count as one. */
static __thread int depth;
/* The thread is in the next library, which may call its own functions by these symbols. */
static __thread int inside;
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;

static void open_gate(void)
{
    atomic_fetch_and(&gate, ~CLOSED);
    syscall(SYS_futex, &gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits while the gate is closed. */
static void enter(void)
{
    while (depth == 0) {
        uint32_t value = gate;

        if (value & CLOSED)
            syscall(SYS_futex, &gate, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
        else if (atomic_compare_exchange_strong(&gate, &value, value + 1))
            break;
    }
    depth++;
}

static void leave(void)
{
    if (--depth == 0)
        atomic_fetch_sub(&gate, 1);
}

static int cancel_state; /* of the call that has the lock */

/* Begins a call that is no copy. One runs at a time. */
static void lock(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    enter();
    pthread_mutex_lock(&calls);
    cancel_state = state;
    inside = 1;
}

static int unlock(int result)
{
    int state = cancel_state;

    inside = 0;
    pthread_mutex_unlock(&calls);
    leave();
    pthread_setcancelstate(state, NULL);
    return result;
}

static int check_g(gdr_t g)
{
    return check(G(g), OPENED) ?: G(g)->next_g == NULL ? EIO : 0; /* at the end of a suspended process */
}

static int check_pin(gdr_t g, gdr_mh_t handle)
{
    return check_g(g) ?: check(PIN(handle), PINNED) ?: PIN(handle)->g != G(g) ? EINVAL : 0;
}

/* Refuses lost ones too. */
static int check_use(gdr_t g, gdr_mh_t handle)
{
    return check_pin(g, handle) ?: PIN(handle)->is_lost ? EIO : 0;
}

/* ---- Addresses ---- */

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#define RESERVATION "-"

/* The pin whose mapping the next library makes or releases in this thread. */
static __thread const struct record *placed;

/* Replaces a mapping by addresses that fault. */
static int reserve(char *address, size_t len)
{
    return mmap(address, len, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == address ? 0 : errno;
}

/* The next library called these before. */
static __typeof__(&mmap) next_mmap, next_mmap64;
static __typeof__(&munmap) next_munmap;

static void *place(void *address, size_t len, int protection, int flags, int fd, off_t offset, __typeof__(&mmap) next_map)
{
    if (placed != NULL && address == NULL && placed->len - len < (size_t)getpagesize()) { /* The kernel rounds up. */
        address = placed->va;
        flags |= MAP_FIXED;
    }
    return next_map(address, len, protection, flags, fd, offset);
}

static void *place_mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset)
{
    return place(address, len, protection, flags, fd, offset, next_mmap);
}

static void *place_mmap64(void *address, size_t len, int protection, int flags, int fd, off_t offset)
{
    return place(address, len, protection, flags, fd, offset, next_mmap64);
}

static int displace(void *address, size_t len)
{
    if (placed != NULL && address == placed->va)
        return reserve(address, placed->len) == 0 ? 0 : -1;
    return next_munmap(address, len);
}

static void redirect(void **slot, void *function, void *next)
{
    uintptr_t page = (uintptr_t)slot & -(uintptr_t)getpagesize();

    if (*slot == function || mprotect((void *)page, 1, PROT_READ | PROT_WRITE) != 0)
        return;
    memcpy(next, slot, sizeof(*slot));
    *slot = function;
}

static void redirect_table(const struct link_map *map, const ElfW(Dyn) *const *entries, int table, int size)
{
    if (entries[table] == NULL || entries[size] == NULL)
        return;
    const ElfW(Rela) *relocation = (const void *)entries[table]->d_un.d_ptr;
    const ElfW(Sym) *symbols = (const void *)entries[DT_SYMTAB]->d_un.d_ptr;
    const char *names = (const char *)entries[DT_STRTAB]->d_un.d_ptr;

    for (size_t count = entries[size]->d_un.d_val / sizeof(*relocation); count > 0; count--, relocation++) {
        const char *name = names + symbols[ELF64_R_SYM(relocation->r_info)].st_name;
        void **slot = (void *)(map->l_addr + relocation->r_offset);

        if (strcmp(name, "mmap") == 0)
            redirect(slot, place_mmap, &next_mmap);
        else if (strcmp(name, "mmap64") == 0)
            redirect(slot, place_mmap64, &next_mmap64);
        else if (strcmp(name, "munmap") == 0)
            redirect(slot, displace, &next_munmap);
    }
}

/* Redirects both calls. Others may have done that since the last request. */
static void redirect_library(void)
{
    const ElfW(Dyn) *entries[DT_NUM] = {NULL};
    struct link_map *map;

    dlinfo(library, RTLD_DI_LINKMAP, &map);
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag < DT_NUM)
            entries[entry->d_tag] = entry;
    redirect_table(map, entries, DT_RELA, DT_RELASZ);
    redirect_table(map, entries, DT_JMPREL, DT_PLTRELSZ);
}

/* Counts bytes of a pin's mapping that are where it was, or of its reservation while it is suspended. */
static void see(struct record *pin, char *start, char *end, const char *place)
{
    start = start > pin->va ? start : pin->va;
    end = end < pin->va + pin->len ? end : pin->va + pin->len;
    if (start >= end)
        return;
    if (pin->place[0] == '\0') /* It is new. */
        strcpy(pin->place, place);
    if (strcmp(place, pin->next_h.h != 0 ? pin->place : RESERVATION) == 0)
        pin->in_place += (size_t)(end - start);
}

/* Looks for one mapping, or all, in /proc/self/maps. A place is a file, and where it would begin in memory. */
static int see_mappings(struct record *only)
{
    char access[5], device[16], name[100], place[64];
    unsigned long offset, inode;
    struct record *g, *pin;
    void *start, *end;

    if (only == NULL)
        EACH_PIN(g, pin)
            pin->in_place = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return errno;
    while (fscanf(maps, "%p-%p %4s %lx %15s %lu%99[^\n]%*[^\n]", &start, &end, access, &offset, device, &inode, name) == 7) {
        if (strcmp(access, "---p") == 0 || strstr(name, "gdrapi-closed-mapping") != NULL) /* this project's reservations */
            strcpy(place, RESERVATION);
        else
            snprintf(place, sizeof(place), "%lx %s %lu", offset - (unsigned long)start, device, inode);
        if (only != NULL)
            see(only, start, end, place);
        else
            EACH_PIN(g, pin)
                see(pin, start, end, place);
    }
    fclose(maps);
    return 0;
}

/* ---- Pins and mappings of the next library ---- */

static int next_pin(struct record *pin)
{
    const struct request *as = &pin->as;
    gdr_t g = pin->g->next_g;
    int error = as->flags != 0 ? next.pin_buffer_v2(g, as->address, as->size, as->flags, &pin->next_h)
                               : next.pin_buffer(g, as->address, as->size, as->token, as->va_space, &pin->next_h);

    if (error != 0)
        pin->next_h.h = 0;
    return error;
}

static int next_unpin(struct record *pin)
{
    int error = next.unpin_buffer(pin->g->next_g, pin->next_h);

    pin->next_h.h = 0; /* After an error as well, as NVIDIA's library has freed it. */
    return error;
}

static int next_map(const struct record *pin, void **va, gdr_info_v2_t *info)
{
    gdr_t g = pin->g->next_g;
    int error = pin->map_flags == GDR_MAP_FLAG_DEFAULT ? next.map(g, pin->next_h, va, pin->map_size)
                                                       : next.map_v2(g, pin->next_h, va, pin->map_size, pin->map_flags);

    return error ?: next_info(g, pin->next_h, info);
}

static int next_open(struct record *g)
{
    struct stat file = {0};

    g->next_g = next.open();
    if (g->next_g == NULL)
        return errno;
    memcpy(&g->fd, g->next_g, sizeof(g->fd)); /* -1 with dma-bufs */
    fstat(g->fd, &file);
    g->inode = file.st_ino;
    return 0;
}

static void close_all(void)
{
    struct record *g;

    LIST_FOREACH(g, &opened, link)
    {
        struct stat file = {0};

        fstat(g->fd, &file);
        if (g->next_g != NULL && file.st_ino == g->inode) /* else the program has closed it, and may have another file there */
            next.close(g->next_g);
        g->next_g = NULL;
        g->fd = -1;
    }
}

/* ---- Suspension ---- */

static int is_suspended;
static unsigned lost; /* pins of the last request */

/* Unpins, and leaves a reservation in the place of the mapping. */
static int suspend_pin(struct record *pin)
{
    placed = pin;
    int error = (pin->va != NULL ? reserve(pin->va, pin->len) : 0) ?: next_unpin(pin);
    placed = NULL;
    return error;
}

/* Pins and maps a suspended pin, at its old address. */
static int resume_pin(struct record *pin)
{
    gdr_info_v2_t info;
    void *va = NULL;
    int error = pin->was_freed ? EFAULT : pin->in_place != pin->len ? EADDRINUSE : next_pin(pin);

    if (error != 0 || pin->va == NULL)
        return error;
    placed = pin;
    error = next_map(pin, &va, &info) ?: va != pin->va ? EADDRINUSE : info.mapping_type != pin->type ? EOPNOTSUPP : 0;
    placed = NULL;
    pin->place[0] = '\0';
    if (error != 0 && va == pin->va) {
        suspend_pin(pin);
    } else if (error != 0) {
        /* The kernel may have unmapped the reservation. */
        mmap(pin->va, pin->len, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
        next_unpin(pin);
    }
    return error;
}

static void resume_pins(void)
{
    struct record *g, *pin;

    EACH_PIN(g, pin)
    {
        int error = pin->next_h.h == 0 ? resume_pin(pin) : 0;

        pin->is_lost = error != 0;
        lost += error != 0;
        if (error != 0 && getenv("GDRCOPY_ENABLE_LOGGING") != NULL)
            fprintf(stderr, "ERR:  the pin of %#lx+%#zx is not restored: %s\n", pin->as.address, pin->as.size, strerror(error));
    }
    see_mappings(NULL);
}

/* Changes nothing if it fails. */
static int suspend(void)
{
    int error = see_mappings(NULL);
    struct record *g, *pin;

    redirect_library();
    EACH_PIN(g, pin)
    {
        error = error ?: next.get_callback_flag(g->next_g, pin->next_h, &pin->was_freed); /* gdrdrv 2.0 refuses this thread. */
        if (error == 0 && !pin->was_freed && pin->in_place != pin->len)
            error = EADDRINUSE;
    }
    if (error != 0)
        return error;
    EACH_PIN(g, pin)
        error = error ?: suspend_pin(pin);
    is_suspended = error == 0;
    if (is_suspended) {
        close_all();
    } else { /* as before; those that cannot be seen count as taken */
        see_mappings(NULL);
        resume_pins();
    }
    return error;
}

static int resume(void)
{
    struct record *g;
    int error = 0;

    redirect_library();
    LIST_FOREACH(g, &opened, link)
        error = error ?: next_open(g);
    error = error ?: see_mappings(NULL);
    if (error == 0)
        resume_pins();
    else
        close_all();
    is_suspended = error != 0;
    return error;
}

/* ---- Requests ---- */

/* The signal; its value is the number of the request, times 256, and a letter. */
#define REQUEST (SIGRTMAX - 1)
enum { SUSPEND = 's', END = 'e' };

static pthread_t helper;
static _Atomic(int) has_helper;
static pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;

/* Sets the thread's name to its number, that of the request, and the answer. */
static void answer(int request, char letter, unsigned number)
{
    char name[16];

    unsigned thread = (unsigned)syscall(SYS_gettid) & 0xffffff, count = number < 0xff ? number : 0xff;
    snprintf(name, sizeof(name), "gdr%06x%03x%c%02x", thread, (unsigned)request >> 8 & 0xfff, letter, count);
    prctl(PR_SET_NAME, name);
}

/* The value of the next request, or 0. Waits without limit if there is none. */
static int next_request(const struct timespec *limit)
{
    siginfo_t info;
    sigset_t requests;

    sigemptyset(&requests);
    sigaddset(&requests, REQUEST);
    return sigtimedwait(&requests, &info, limit) == REQUEST ? info.si_value.sival_int : 0;
}

/* Returns 0 as soon as no call is in the gate, or a request that came before. */
static int close_gate(void)
{
    static const struct timespec moment = {0, 1000000};
    int request = 0;

    atomic_fetch_or(&gate, CLOSED);
    while (gate != CLOSED && request == 0)
        request = next_request(&moment);
    return request;
}

/* Returns another request that has withdrawn this one, or 0. */
static int serve(int request)
{
    int is_suspension = (request & 0xff) == SUSPEND, other = 0, error = ECANCELED;

    if (is_suspension == is_suspended) {
        answer(request, is_suspended ? 'a' : 'o', 0); /* as before */
        return 0;
    }
    lost = 0;
    if (is_suspension)
        other = close_gate();
    if (other == 0 && pthread_mutex_trylock(&at_work) == 0) {
        error = is_suspension ? suspend() : resume();
        pthread_mutex_unlock(&at_work);
    }
    if (!is_suspended)
        open_gate();
    answer(request, error != 0 ? 'e' : lost != 0 ? 'l' : 'o', error != 0 ? (unsigned)error : lost);
    return other;
}

static void *help(void *unused)
{
    int request = 0;

    inside = 1;
    answer(0, 'o', 0);
    has_helper = 1;
    while (request != END)
        request = request != 0 ? serve(request) : next_request(NULL);
    return unused;
}

/* Its process can be suspended as soon as gdr_open returns. */
static void start_helper(void)
{
    sigset_t all, before;

    if (has_helper)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&helper, NULL, help, NULL) == 0) {
        pthread_detach(helper);
        while (!has_helper)
            usleep(100);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A process whose first thread ends by pthread_exit ends with its last one, which must not be the helper. */
static void at_end_of_first_thread(void *unused)
{
    (void)unused;
    lock();
    if (has_helper)
        pthread_sigqueue(helper, REQUEST, (union sigval){.sival_int = END});
    has_helper = 1; /* There will be no other. */
    unlock(0);
}

static pthread_key_t key; /* which only the first thread has */

static void in_child(void)
{
    pthread_setspecific(key, &key);
    era++;
    gate = depth != 0;
    pthread_mutex_init(&calls, NULL);
    pthread_mutex_init(&at_work, NULL);
    LIST_INIT(&opened);
    is_suspended = has_helper = 0;
}

__attribute__((constructor)) static void start(void)
{
    pthread_key_create(&key, at_end_of_first_thread);
    pthread_setspecific(key, &key);
    pthread_atfork(NULL, NULL, in_child);
}

/* The next library ends after this, so no request may be at work in it. Calls do not wait any more. */
__attribute__((destructor)) static void finish(void)
{
    pthread_mutex_lock(&at_work); /* for ever */
    open_gate();
}

/* ---- The functions ---- */

/* Begins one that takes the lock. Within the next library, it is that one's. */
#define FUNCTION(name, parameters, arguments)                                                                          \
    static int locked_##name parameters;                                                                               \
    int gdr_##name parameters                                                                                          \
    {                                                                                                                  \
        if (inside)                                                                                                    \
            return next.name arguments;                                                                                \
        lock();                                                                                                        \
        return unlock(locked_##name arguments);                                                                        \
    }                                                                                                                  \
    static int locked_##name parameters

gdr_t gdr_open(void)
{
    if (inside)
        return next.open();
    lock();
    load();
    struct record *g = take_record();
    int error = g == NULL ? ENOMEM : next_open(g);
    if (error == 0) {
        g->kind = OPENED;
        LIST_INSERT_HEAD(&opened, g, link);
        start_helper();
    }
    if (unlock(error) == 0)
        return (gdr_t)(void *)g;
    errno = error;
    return NULL;
}

/* In a forked child it closes the child's copy of the descriptor. */
FUNCTION(close, (gdr_t handle), (handle))
{
    struct record *g = G(handle), *pin;
    int error = check(g, OPENED), is_inherited = error == EACCES && g->kind == OPENED;

    if (error != 0 && !is_inherited)
        return error;
    LIST_FOREACH(pin, &g->pins, link)
        pin->kind = FREE;
    if (!is_inherited)
        LIST_REMOVE(g, link);
    g->kind = FREE;
    return g->next_g != NULL ? next.close(g->next_g) : 0;
}

static int pin_buffer(gdr_t g, const struct request *as, gdr_mh_t *handle)
{
    struct record *pin = NULL;
    int error = check_g(g) ?: handle == NULL ? EINVAL : (pin = take_record()) == NULL ? ENOMEM : 0;

    if (error != 0)
        return error;
    pin->g = G(g);
    pin->as = *as;
    error = next_pin(pin);
    if (error == 0) {
        pin->kind = PINNED;
        LIST_INSERT_HEAD(&pin->g->pins, pin, link);
        handle->h = (unsigned long)pin;
    }
    return error;
}

FUNCTION(pin_buffer, (gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t va_space, gdr_mh_t *handle),
         (g, address, size, token, va_space, handle))
{
    return pin_buffer(g, &(struct request){.address = address, .size = size, .token = token, .va_space = va_space}, handle);
}

FUNCTION(pin_buffer_v2, (gdr_t g, unsigned long address, size_t size, uint32_t flags, gdr_mh_t *handle),
         (g, address, size, flags, handle))
{
    return pin_buffer(g, &(struct request){.address = address, .size = size, .flags = flags}, handle);
}

FUNCTION(unpin_buffer, (gdr_t g, gdr_mh_t handle), (g, handle))
{
    struct record *pin = PIN(handle);
    int error = check_pin(g, handle);

    if (error != 0)
        return error;
    pin->kind = FREE; /* first, for copies in other threads */
    error = pin->is_lost ? 0 : next_unpin(pin);
    if (error == 0) {
        LIST_REMOVE(pin, link);
    } else { /* Programs try again, which then succeeds. */
        pin->kind = PINNED;
        pin->is_lost = 1;
        pin->va = NULL;
    }
    return error;
}

FUNCTION(get_callback_flag, (gdr_t g, gdr_mh_t handle, int *flag), (g, handle, flag))
{
    return check_use(g, handle) ?: next.get_callback_flag(G(g)->next_g, PIN(handle)->next_h, flag);
}

FUNCTION(get_info_v2, (gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info), (g, handle, info))
{
    return check_use(g, handle) ?: info == NULL ? EINVAL : next_info(G(g)->next_g, PIN(handle)->next_h, info);
}

FUNCTION(get_info, (gdr_t g, gdr_mh_t handle, void *info), (g, handle, info))
{
    gdr_info_v2_t all;
    int error = locked_get_info_v2(g, handle, info != NULL ? &all : NULL);

    if (error == 0)
        memcpy(info, &all, INFO_V1_SIZE);
    return error;
}

FUNCTION(map_v2, (gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags), (g, handle, va, size, flags))
{
    struct record *pin = PIN(handle);
    gdr_info_v2_t info;
    void *mapped;
    int error = check_use(g, handle) ?: va == NULL ? EINVAL : pin->va != NULL ? EAGAIN : 0;

    if (error != 0)
        return error;
    pin->map_size = size;
    pin->map_flags = flags;
    error = next_map(pin, &mapped, &info);
    if (error != 0)
        return error;
    *va = pin->va = mapped;
    pin->len = mapping_len(pin->as.address, size, &info);
    pin->type = info.mapping_type;
    pin->place[0] = '\0';
    see_mappings(pin);
    return 0;
}

FUNCTION(map, (gdr_t g, gdr_mh_t handle, void **va, size_t size), (g, handle, va, size))
{
    return locked_map_v2(g, handle, va, size, GDR_MAP_FLAG_DEFAULT);
}

/* The addresses of a lost mapping may be another's, so they are left as they are. */
FUNCTION(unmap, (gdr_t g, gdr_mh_t handle, void *va, size_t size), (g, handle, va, size))
{
    struct record *pin = PIN(handle);
    int error = check_pin(g, handle) ?: pin->va == NULL ? EINVAL : 0;

    if (error == 0 && !pin->is_lost)
        error = next.unmap(G(g)->next_g, pin->next_h, va, size);
    if (error == 0) {
        pin->va = NULL;
        pin->len = 0;
    }
    return error;
}

FUNCTION(driver_get_version, (gdr_t g, int *major, int *minor), (g, major, minor))
{
    return check_g(g) ?: next.driver_get_version(G(g)->next_g, major, minor);
}

FUNCTION(get_attribute, (gdr_t g, gdr_attr_t attribute, int *value), (g, attribute, value))
{
    int error = check_g(g);

    if (error != 0 && value != NULL)
        *value = 0;
    return error ?: next.get_attribute(G(g)->next_g, attribute, value);
}

static int copy(__typeof__(&gdr_copy_to_mapping) next_copy, gdr_mh_t handle, void *to, const void *from, size_t size)
{
    if (inside && !is_record(PIN(handle)))
        return next_copy(handle, to, from, size);
    enter();
    int error = check(PIN(handle), PINNED);
    if (error == 0) {
        gdr_mh_t next_h = {__atomic_load_n(&PIN(handle)->next_h.h, __ATOMIC_ACQUIRE)};

        error = next_h.h != 0 ? next_copy(next_h, to, from, size) : check(PIN(handle), PINNED) ?: EIO;
    }
    leave();
    return error;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
    return copy(next.copy_to_mapping, handle, map_d_ptr, h_ptr, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
    return copy(next.copy_from_mapping, handle, h_ptr, map_d_ptr, size);
}

void gdr_runtime_get_version(int *major, int *minor)
{
    load();
    next.runtime_get_version(major, minor);
}

int gdr_get_mapping_type_string(gdr_mapping_type_t mapping_type, const char **text)
{
    load();
    return next.get_mapping_type_string(mapping_type, text);
}
