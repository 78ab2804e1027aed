/* /dev/gdrdrv and /dev/emugpu for the tests: one function per call, which returns 0 or an errno. */
#ifndef DEVICE_H
#define DEVICE_H

#include "check.h"

#include "../emugpu/emugpu_uapi.h"
#include "../gdrdrv_uapi.h"

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define GPU_PAGE ((uint64_t)GDRDRV_GPU_PAGE_SIZE)

/* The id of a user without privileges. */
#define UNPRIVILEGED 65534

/* Exit status of a program that has nothing to test here. */
#define SKIPPED 4

static inline void skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(SKIPPED);
}

/* The process stays unprivileged. */
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
    unsigned char *view; /* as the GPU sees it */
};

/* The GPU of this process. Forked children open their own. */
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

/* Frees the memory, and allocates other memory at the same address. */
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

    CHECK(left > bytes);
    return gpu_alloc(left - bytes);
}

static inline void gpu_inject(struct emugpu_inject inject)
{
    CHECK(ioctl(gpu(), EMUGPU_INJECT, &inject) == 0);
}

static inline void gpu_delay(uint32_t pin_microseconds, uint32_t callback_microseconds)
{
    gpu_inject((struct emugpu_inject){.pin_delay = pin_microseconds, .callback_delay = callback_microseconds});
}

/* The next unpin fails in the GPU driver, which keeps the pin. */
static inline void gpu_fail_put(int error)
{
    gpu_inject((struct emugpu_inject){.nth_put = 1, .put_error = error});
}

/* The next unpin succeeds in the GPU driver, which keeps the pin: it does not find it in this process any more. */
static inline void gpu_ignore_put(void)
{
    gpu_fail_put(0);
}

/* A parameter that emugpu was loaded with. */
static inline int gpu_has(const char *parameter)
{
    char path[80];
    FILE *file;
    int value;

    snprintf(path, sizeof(path), "/sys/module/emugpu/parameters/%s", parameter);
    file = fopen(path, "r");
    CHECK(file != NULL);
    value = fgetc(file) == 'Y';
    fclose(file);
    return value;
}

/* ---- The driver ---- */

static inline int driver_open(void)
{
    int fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

static inline int command(int fd, unsigned long number, void *argument)
{
    return ioctl(fd, number, argument) == 0 ? 0 : errno;
}

static inline int pin(int fd, uint64_t addr, uint64_t size, uint64_t *handle)
{
    struct gdrdrv_pin_buffer a = {.addr = addr, .size = size};
    int error = command(fd, GDRDRV_IOC_PIN_BUFFER, &a);

    if (error == 0)
        *handle = a.handle;
    return error;
}

static inline uint64_t pinned(int fd, struct gpu_memory memory)
{
    uint64_t handle;

    CHECK_OK(pin(fd, memory.va, memory.size, &handle));
    return handle;
}

static inline int unpin(int fd, uint64_t handle)
{
    struct gdrdrv_unpin_buffer a = {handle};

    return command(fd, GDRDRV_IOC_UNPIN_BUFFER, &a);
}

static inline int info(int fd, uint64_t handle, struct gdrdrv_get_info_v2 *info)
{
    memset(info, 0, sizeof(*info));
    info->handle = handle;
    return command(fd, GDRDRV_IOC_GET_INFO_V2, info);
}

static inline int callback_flag(int fd, uint64_t handle, uint32_t *flag)
{
    struct gdrdrv_get_cb_flag a = {.handle = handle};
    int error = command(fd, GDRDRV_IOC_GET_CB_FLAG, &a);

    if (error == 0)
        *flag = a.flag;
    return error;
}

static inline int request_type(int fd, uint64_t handle, uint32_t type)
{
    struct gdrdrv_req_mapping_type a = {handle, type};

    return command(fd, GDRDRV_IOC_REQ_MAPPING_TYPE, &a);
}

static inline int map(int fd, uint64_t handle, size_t size, unsigned char **va)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(handle * PAGE));

    if (at == MAP_FAILED)
        return errno;
    *va = at;
    return 0;
}

static inline unsigned char *mapped(int fd, uint64_t handle, size_t size)
{
    unsigned char *va = NULL;

    CHECK_OK(map(fd, handle, size, &va));
    return va;
}

/* Whether pins outlive a free of their memory. */
static inline int persistent(int fd)
{
    struct gdrdrv_get_attr a = {.attr = GDRDRV_ATTR_USE_PERSISTENT_MAPPING};

    CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &a));
    return (int)a.val;
}

/* The same for programs that have not opened the device. */
static inline int pins_persist(void)
{
    int fd = driver_open(), result = persistent(fd);

    CHECK(close(fd) == 0);
    return result;
}

/* Sets a parameter of the module; only root can. */
static inline void set_parameter(const char *name, unsigned int value)
{
    char path[80];
    int file;

    snprintf(path, sizeof(path), "/sys/module/gdrdrv/parameters/%s", name);
    file = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK(dprintf(file, "%u\n", value) > 0);
    CHECK(close(file) == 0);
}

/* Page tables that are pinned, in all processes. */
static inline long page_tables(void)
{
    static int file = -1;
    char count[24] = "";

    if (file < 0)
        file = open("/proc/driver/gdrdrv/nv_get_pages_refcount", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0); /* if missing, load the module with dbg_enabled=1 */
    CHECK(pread(file, count, sizeof(count) - 1, 0) > 0);
    return atol(count);
}

/* ---- Processes and threads ---- */

/* One byte signals that a step is done, or that the next one may start. */
static inline void say(int pipe)
{
    CHECK(write(pipe, "", 1) == 1);
}

static inline void await(int pipe)
{
    char byte;

    CHECK(read(pipe, &byte, 1) == 1);
}

/*
 * Threads that wait for each other belong on two processors, where there are two: on one they run in turns, a time slice
 * each.
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

/* Runs for a random time below `iterations`. */
static inline void delay(unsigned int *seed, unsigned int iterations)
{
    volatile unsigned int left = (unsigned int)rand_r(seed) % iterations;

    while (left > 0)
        left--;
}

/* ---- Access to memory, from any thread ---- */

static __thread sigjmp_buf touch_return;

static void touch_failed(int signal)
{
    siglongjmp(touch_return, signal);
}

static inline void catch_faults(void)
{
    struct sigaction action = {.sa_handler = touch_failed, .sa_flags = SA_NODEFER};

    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* Reads a byte. Returns the signal that the access raised, or 0. */
__attribute__((noinline)) static int touch(const volatile unsigned char *address, unsigned char *value)
{
    int signal = sigsetjmp(touch_return, 0);

    if (signal == 0)
        *value = *address;
    return signal;
}

/* Every page of the range raises SIGBUS. */
#define CHECK_GONE(va, size) check_pages(__FILE__, __LINE__, va, size, SIGBUS, 0)

/* Every page of the range starts with this value. */
#define CHECK_SHOWS(va, size, value) check_pages(__FILE__, __LINE__, va, size, 0, value)

static inline void check_pages(const char *file, int line, const unsigned char *va, size_t size, int signal,
                               unsigned char value)
{
    size_t i;

    for (i = 0; i < size; i += PAGE) {
        unsigned char got = 0;
        int raised = touch(va + i, &got);

        if (raised == signal && (signal != 0 || got == value))
            continue;
        fprintf(stderr, "%s:%d: at %#zx: signal %d and value %#x, not %d and %#x\n", file, line, i, raised, got, signal,
                value);
        exit(1);
    }
}

#endif
