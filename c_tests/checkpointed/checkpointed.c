/*
 * A process with a child, two threads in each, and pins of emugpu's memory; gdrdrv-c/vm/check-criu.sh checkpoints it.
 *
 * usage: checkpointed STATUS
 *
 * SIGUSR1 and SIGUSR2 play the part of cuda-checkpoint. The first saves the GPU memory, frees it and closes /dev/emugpu.
 * The second makes GPU memory at the same addresses with the saved contents. SIGHUP checks all contents, and writes others.
 * The file STATUS has the number of signals that were served, and STATUS.child that of the child.
 */

#include "gdrapi.h"
#include "kit/check.h"

#include "../../gdrdrv-c/emugpu/emugpu_uapi.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define PINS 8
#define PAGE EMUGPU_PAGE_SIZE
#define MEMORY ((size_t)PINS * 2 * PAGE)
#define ADDRESS 0x200000000000

/* ---- GPU memory ---- */

static int gpu = -1;
static uint32_t object;
static unsigned char *view; /* as the GPU sees it */
static unsigned char saved[MEMORY];

static void make_memory(void)
{
    struct emugpu_create create = {.size = MEMORY, .flags = EMUGPU_RDMA};
    struct emugpu_map map = {.va = ADDRESS, .size = MEMORY};

    gpu = open(EMUGPU_DEVICE, O_RDWR | O_CLOEXEC);
    CHECK(gpu >= 0);
    CHECK(ioctl(gpu, EMUGPU_CREATE, &create) == 0);
    object = map.handle = create.handle;
    CHECK(ioctl(gpu, EMUGPU_MAP, &map) == 0);
    view = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, (off_t)EMUGPU_OFFSET(object));
    CHECK(view != MAP_FAILED);
    memcpy(view, saved, MEMORY);
}

static void save_memory(void)
{
    struct emugpu_range range = {ADDRESS, MEMORY};

    memcpy(saved, view, MEMORY);
    CHECK(munmap(view, MEMORY) == 0);
    CHECK(ioctl(gpu, EMUGPU_UNMAP, &range) == 0);
    CHECK(ioctl(gpu, EMUGPU_RELEASE, &object) == 0);
    CHECK(close(gpu) == 0);
}

/* ---- Pins ---- */

static gdr_t connections[2];

static struct mapped {
    gdr_mh_t handle;
    unsigned char *va;
    size_t offset, size; /* of the mapping, in the memory */
    gdr_mapping_type_t type;
} pins[PINS];

/* Pins one page or two, and maps them in whole or in part. The last two pins are of the same memory. */
static void pin_all(void)
{
    for (size_t i = 0; i < PINS; i++) {
        gdr_t g = connections[i % 2];
        struct mapped *mapped = &pins[i];
        gdr_info_t info;
        void *va;

        mapped->offset = (i == PINS - 1 ? i - 1 : i) * 2 * PAGE;
        mapped->size = i % 3 == 1 ? PAGE + 100 : PAGE;
        CHECK_OK(gdr_pin_buffer(g, ADDRESS + mapped->offset, i % 3 == 0 ? PAGE : 2 * PAGE, 0, 0, &mapped->handle));
        CHECK_OK(gdr_map(g, mapped->handle, &va, mapped->size));
        CHECK_OK(gdr_get_info(g, mapped->handle, &info));
        mapped->va = va;
        mapped->type = info.mapping_type;
    }
}

/* Leaves the addresses of the mapping reserved. */
static void close_a_mapping(void)
{
    gdr_t g = gdr_open();
    gdr_mh_t handle;
    void *va;

    CHECK(g != NULL);
    CHECK_OK(gdr_pin_buffer(g, ADDRESS, PAGE, 0, 0, &handle));
    CHECK_OK(gdr_map(g, handle, &va, PAGE));
    CHECK_OK(gdr_close(g));
}

static void write_all(unsigned char seed)
{
    for (size_t i = 0; i < PINS; i++) {
        struct mapped *mapped = &pins[i];

        memset(view + mapped->offset, seed + (int)mapped->offset / PAGE, mapped->size / 2);
        mapped->va[mapped->size - 1] = seed;
    }
}

/* Through the mapping, by the library's copy and by loads of the program. */
static void check_all(unsigned char seed)
{
    static unsigned char seen[2 * PAGE];

    for (size_t i = 0; i < PINS; i++) {
        const struct mapped *mapped = &pins[i];
        gdr_info_t info;

        CHECK_OK(gdr_get_info(connections[i % 2], mapped->handle, &info));
        CHECK_EQUAL(info.va, ADDRESS + mapped->offset);
        CHECK_EQUAL(info.mapping_type, mapped->type);
        CHECK_OK(gdr_copy_from_mapping(mapped->handle, seen, mapped->va, mapped->size));
        CHECK_BYTES(seen, view + mapped->offset, mapped->size);
        CHECK_EQUAL(seen[0], (unsigned char)(seed + mapped->offset / PAGE));
        CHECK_EQUAL(mapped->va[mapped->size / 2 - 1], seen[0]);
        CHECK_EQUAL(view[mapped->offset + mapped->size - 1], seed);
    }
}

/* ---- The program ---- */

static unsigned char seed;

static void *check_and_write(void *argument)
{
    check_all(seed);
    write_all(++seed);
    check_all(seed);
    return argument;
}

static void in_a_child(void)
{
    int major, minor;

    CHECK_ERROR(gdr_driver_get_version(connections[0], &major, &minor), EACCES);
}

/* In another thread than the one that pins. */
static void work(void)
{
    in_thread(check_and_write, NULL);
    in_child(in_a_child);
}

static void *pause_forever(void *argument)
{
    for (;;)
        pause();
    return argument;
}

static void report(const char *status, unsigned served)
{
    char text[20];
    int file = open(status, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), len = snprintf(text, sizeof(text), "%u\n", served);

    CHECK(file >= 0);
    CHECK(write(file, text, (size_t)len) == len);
    CHECK(close(file) == 0);
}

int main(int argc, char **argv)
{
    char status[300];
    sigset_t signals;

    CHECK(argc == 2);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    sigaddset(&signals, SIGHUP);
    CHECK(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    snprintf(status, sizeof(status), "%s%s", argv[1], child == 0 ? ".child" : "");
    make_memory();
    for (int i = 0; i < 2; i++) {
        connections[i] = gdr_open();
        CHECK(connections[i] != NULL);
    }
    close_a_mapping();
    pin_all();
    write_all(seed);
    (void)start_thread(pause_forever, NULL);
    for (unsigned served = 0;; served++) {
        int signal;

        report(status, served);
        CHECK(sigwait(&signals, &signal) == 0);
        switch (signal) {
        case SIGUSR1:
            save_memory();
            break;
        case SIGUSR2:
            make_memory();
            break;
        default:
            work();
        }
    }
}
