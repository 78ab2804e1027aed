/* Functions for the tests of the module: /dev/emugpu, parameters, processes. kit/driver.h has those for /dev/gdrdrv. */
#ifndef DEVICE_H
#define DEVICE_H

#include "kit/driver.h"

#include "../emugpu/emugpu_uapi.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

/* The id of a user without privileges. */
#define UNPRIVILEGED 65534

/* Makes the process unprivileged for the rest of its life. */
static inline void drop_privileges(void)
{
    CHECK(setgroups(0, NULL) == 0 && setgid(UNPRIVILEGED) == 0 && setuid(UNPRIVILEGED) == 0);
    CHECK(setuid(0) != 0);
}

/* ---- GPU memory ---- */

struct gpu_memory {
    uint64_t va;
    uint64_t size;
    uint32_t object;
    unsigned char *view; /* the memory, as the GPU sees it */
};

/* Returns the descriptor of this process's GPU. A forked child opens its own. */
static inline int gpu(void)
{
    static int fd;
    static pid_t owner;

    if (owner != getpid()) {
        fd = open(EMUGPU_DEVICE, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        owner = getpid();
    }
    return fd;
}

static inline struct gpu_memory gpu_alloc(uint64_t size)
{
    static uint64_t next = 0x200000000000;
    struct emugpu_create create = {.size = size, .flags = EMUGPU_RDMA};
    struct emugpu_map map = {.size = size};
    struct gpu_memory memory = {.size = size};

    CHECK(ioctl(gpu(), EMUGPU_CREATE, &create) == 0);
    memory.object = map.handle = create.handle;
    memory.va = map.va = __atomic_fetch_add(&next, size + GPU_PAGE, __ATOMIC_RELAXED);
    CHECK(ioctl(gpu(), EMUGPU_MAP, &map) == 0);
    memory.view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, gpu(), (off_t)EMUGPU_OFFSET(create.handle));
    CHECK(memory.view != MAP_FAILED);
    return memory;
}

static inline void gpu_free(struct gpu_memory memory)
{
    struct emugpu_range range = {memory.va, memory.size};

    CHECK(munmap(memory.view, memory.size) == 0);
    CHECK(ioctl(gpu(), EMUGPU_UNMAP, &range) == 0);
    CHECK(ioctl(gpu(), EMUGPU_RELEASE, &memory.object) == 0);
}

/* Frees the memory, and allocates new memory at the same address. */
static inline void gpu_renew(struct gpu_memory memory)
{
    struct emugpu_range range = {memory.va, memory.size};

    CHECK(ioctl(gpu(), EMUGPU_RENEW, &range) == 0);
}

static inline struct emugpu_status gpu_status(void)
{
    struct emugpu_status status;

    CHECK(ioctl(gpu(), EMUGPU_STATUS, &status) == 0);
    return status;
}

/* Allocates all GPU memory except `bytes`, so that freed pages are soon allocated again. */
static inline struct gpu_memory gpu_leave_free(uint64_t bytes)
{
    uint64_t left = gpu_status().free_bytes;

    CHECK_COMPARE(left, >, bytes);
    return gpu_alloc(left - bytes);
}

static inline void gpu_inject(struct emugpu_inject inject)
{
    CHECK(ioctl(gpu(), EMUGPU_INJECT, &inject) == 0);
}

/* Makes the GPU driver fail the next unpin and keep the pin. */
static inline void gpu_fail_put(int error)
{
    gpu_inject((struct emugpu_inject){.nth_put = 1, .put_error = error});
}

/* Makes the GPU driver answer 0 to the next unpin but keep the pin, as if it did not find the pin in this process. */
static inline void gpu_ignore_put(void)
{
    gpu_fail_put(0);
}

/* Returns the text of a module's parameter. */
static inline const char *parameter(const char *module, const char *name)
{
    char path[80];

    snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s", module, name);
    return file_text(path);
}

static inline int gpu_has(const char *name)
{
    return parameter("emugpu", name)[0] == 'Y';
}

/* ---- The driver ---- */

static inline uint64_t pinned(int fd, struct gpu_memory memory)
{
    uint64_t handle;

    CHECK_OK(pin(fd, memory.va, memory.size, &handle));
    return handle;
}

/* Returns whether pins are persistent, for programs that have not opened the device yet. */
static inline int pins_persist(void)
{
    int fd = driver_open(), result = persistent(fd);

    CHECK(close(fd) == 0);
    return result;
}

/* Sets a parameter of a module. Only root can. */
static inline void set_parameter(const char *module, const char *name, unsigned int value)
{
    char path[80], number[16];

    snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s", module, name);
    snprintf(number, sizeof(number), "%u\n", value);
    write_text(path, number);
}

/* Returns how many page tables the GPU driver has made for pins, in all processes, and not yet freed. */
static inline long page_tables(void)
{
    long count = all_page_tables();

    CHECK(count >= 0); /* if this fails, load the module with dbg_enabled=1 */
    return count;
}

/* ---- Processes and threads ---- */

/*
 * Returns the set that has only the processor with this number, modulo the count of processors. Threads that wait for
 * each other should run on two. On one processor, each would wait for the other's time slice to end.
 */
static inline cpu_set_t processor(int number)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(number % sysconf(_SC_NPROCESSORS_ONLN), &set);
    return set;
}

static inline void run_on(int number)
{
    cpu_set_t set = processor(number);

    CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static inline pthread_t started_on(int number, void *(*run)(void *), void *argument)
{
    cpu_set_t set = processor(number);
    pthread_attr_t attributes;
    pthread_t thread;

    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) == 0);
    CHECK(pthread_create(&thread, &attributes, run, argument) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    return thread;
}

/* A socket for a parent ([0]) and one for its child that works in steps ([1]). */
static __attribute__((unused)) int steps[2];

/* Starts a child that stops after each step. The parent waits for each step, and then lets the child go on. */
static inline pid_t start_steps(void (*part)(void))
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, steps) == 0);
    pid_t child = start_child(part);
    CHECK(close(steps[1]) == 0);
    return child;
}

static inline void finish_steps(pid_t child)
{
    finish_child(child);
    CHECK(close(steps[0]) == 0);
}

static inline void next_step(void)
{
    say(steps[1]);
    await(steps[1]);
}

struct live_pin {
    int fd;
    uint64_t handle;
};

/* The main function of a thread that unpins a pin. */
static inline void *unpin_thread(void *pin)
{
    const struct live_pin *p = pin;

    CHECK_OK(unpin(p->fd, p->handle));
    return NULL;
}

/* Loops a random number of times, fewer than `iterations`. */
static inline void delay(unsigned int *seed, unsigned int iterations)
{
    volatile unsigned int left = (unsigned int)rand_r(seed) % iterations;

    while (left > 0)
        left--;
}

#endif
