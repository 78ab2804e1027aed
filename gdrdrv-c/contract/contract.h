/* The contract of /dev/gdrdrv, common to its cases. README.md describes the suite. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "kit/driver.h"

#include <stdbool.h>

/* ---- Cases, each a TEST in a process of its own, whose end must leave nothing pinned ---- */

/* Pipes of a case, by which two processes take turns. */
extern int to_child[2], to_parent[2];

/* Runs this program again with the descriptor of a device, and ends with `then`. */
_Noreturn void exec_self(const char *then, int fd);
_Noreturn void after_exec(const char *then, int fd);

/* ---- The implementation under test ---- */

enum implementation {
    GDRDRV_C = 1, /* gdrdrv-c of this repository */
    NVIDIA = 2,   /* NVIDIA's gdrdrv */
    GDREMU = 4,   /* gdremu */
    DEFECTS = 8   /* gdremu --module-defects */
};

enum implementation implementation(void);

/* Returns whether the device is of release 2.`minor` or later. */
bool since(unsigned int minor);

/* Ends a case that gdremu's nvidia provider, in place of the driver on a real GPU, answers otherwise. */
void waive_over_bar1(const char *why);

/* A result that the suite does not check on this implementation. */
#define ANY (-1L)

/*
 * The behavior of this implementation where some differ on purpose, from the table of differences.c, or else the
 * contract's.
 */
long expected(const char *what, long contract);

/* ---- GPU memory, from CUDA or, without it, from /dev/emugpu ---- */

struct memory {
    uint64_t va; /* starts a GPU page */
    uint64_t size;
    void *emugpu;
};

/* Sizes are multiples of this, so that CUDA frees the memory that a case frees. */
#define UNIT (2UL << 20)
struct memory memory_alloc(uint64_t size);
void memory_free(struct memory memory);
/* Write and read memory as the GPU sees it. */
void memory_fill(struct memory memory, unsigned char value);
unsigned char memory_byte(struct memory memory, uint64_t offset);
/* The address of two adjacent allocations of UNIT bytes, in a process of one case. 0 if this CUDA cannot place them. */
uint64_t memory_two_allocations(void);
/* Puts the tokens of the memory into the argument. False if this CUDA has none. */
bool memory_tokens(struct memory memory, struct gdrdrv_pin_buffer *argument);

/* No process has GPU memory there. */
#define NO_GPU_MEMORY 0x1000000000ULL

/* ---- Commands ---- */

extern const struct known_command {
    unsigned long number;
    unsigned int since; /* of release 2.x */
} commands[9];

/* ---- Pins ---- */

static inline uint64_t pinned(int fd, struct memory memory, uint64_t size)
{
    uint64_t handle;

    CHECK_OK(pin(fd, memory.va, size, &handle));
    return handle;
}

/* The type of a pin's mapping, by commands that every release has. */
static inline uint32_t mapping_type(int fd, uint64_t handle)
{
    struct gdrdrv_get_info v1 = {.handle = handle};
    struct gdrdrv_get_info_v2 v2;
    int error = info(fd, handle, &v2);

    if (error != ENOTTY) {
        CHECK_OK(error);
        return v2.mapping_type;
    }
    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &v1));
    return !v1.mapped ? GDRDRV_MAPPING_TYPE_NONE : v1.wc_mapping ? GDRDRV_MAPPING_TYPE_WC : GDRDRV_MAPPING_TYPE_CACHING;
}

#define CHECK_MAPPED(fd, handle) CHECK(mapping_type(fd, handle) != GDRDRV_MAPPING_TYPE_NONE)
#define CHECK_NOT_MAPPED(fd, handle) CHECK_EQUAL(mapping_type(fd, handle), GDRDRV_MAPPING_TYPE_NONE)

static inline void unmap(void *va, size_t size)
{
    CHECK(munmap(va, size) == 0);
}

/* ---- The pin of a case, mapped, whose bytes are all OURS ---- */

#define OURS 0x11

extern int fd;
extern struct memory memory;
extern uint64_t handle;
extern unsigned char *va;

/* Opens the device, and pins and maps `size` bytes, or fewer of them, or none. What is left ends with the process. */
void begin(uint64_t size);
void begin_partly_mapped(uint64_t size, size_t mapped_size);
void begin_unmapped(uint64_t size);

/* Page tables pinned since the case began, in all processes; or -1 if the device does not report their number. */
long page_tables(void);

#define CHECK_PINNED(number)                                                                                           \
    do {                                                                                                               \
        if (page_tables() >= 0)                                                                                        \
            CHECK_EQUAL(page_tables(), number);                                                                        \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
