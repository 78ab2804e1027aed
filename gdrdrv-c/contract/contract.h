/* Declarations for the tests of /dev/gdrdrv's behavior. README.md describes these tests. Each is called a case. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "kit/driver.h"

#include <stdbool.h>

/* ---- Cases. Each is a TEST, and runs in its own process. No pin may be left when that process ends ---- */

/* The process of a test case and its child wait for each other through these pipes. */
extern int to_child[2], to_parent[2];

/* Executes this program again, which then calls after_exec() with these arguments. */
_Noreturn void exec_self(const char *then, int fd);
/* Runs in the executed program. Checks that the device `fd` behaves as `then` says, and ends the test case. */
_Noreturn void after_exec(const char *then, int fd);

/* ---- The implementation under test ---- */

enum implementation {
    GDRDRV_C = 1, /* gdrdrv-c of this repository */
    NVIDIA = 2,   /* NVIDIA's gdrdrv */
    GDREMU = 4,   /* gdremu, the emulator of this repository */
    DEFECTS = 8   /* gdremu --module-defects, which has the defects of NVIDIA's gdrdrv */
};

enum implementation implementation(void);

/* Returns whether the device is of release 2.`minor` or later. */
bool since(unsigned int minor);

/* Skips the case if gdremu emulates /dev/gdrdrv over the BAR1 of a real GPU (its provider `nvidia`). */
void waive_over_bar1(const char *why);

/* Stands for any result. expected() returns this where an implementation's result is not checked. */
#define ANY (-1L)

/*
 * Returns the result that this implementation must have in the situation `what`: the one in the table of differences.c,
 * or `contract` if the table has none for this implementation and release.
 */
long expected(const char *what, long contract);

/* ---- GPU memory, from CUDA or, without it, from /dev/emugpu ---- */

struct memory {
    uint64_t va; /* a multiple of the GPU page size */
    uint64_t size;
    void *emugpu;
};

/*
 * memory_alloc() rounds sizes up to multiples of this. CUDA puts several smaller allocations into one block, and may
 * keep the block when one of them is freed. Then the GPU driver would not notice the free.
 */
#define UNIT (2UL << 20)
struct memory memory_alloc(uint64_t size);
void memory_free(struct memory memory);
/* Lets the GPU fill the memory with a value, without a mapping of a pin. */
void memory_fill(struct memory memory, unsigned char value);
/* Returns a byte of the memory as the GPU sees it. */
unsigned char memory_byte(struct memory memory, uint64_t offset);
/*
 * Makes two allocations of UNIT bytes at adjacent addresses, and returns the first address, or 0 if this CUDA cannot
 * make them. The memory is freed when the process ends.
 */
uint64_t memory_two_allocations(void);
/* Puts the tokens, which name the process that has the memory, into the argument. Returns false if there are none. */
bool memory_tokens(struct memory memory, struct gdrdrv_pin_buffer *argument);

/* An address at which no process has GPU memory. */
#define NO_GPU_MEMORY 0x1000000000ULL

/* ---- Commands ---- */

extern const struct known_command {
    unsigned long number;
    unsigned int since; /* the command exists since release 2.`since` */
} commands[9];

/* ---- Pins ---- */

static inline uint64_t pinned(int fd, struct memory memory, uint64_t size)
{
    uint64_t handle;

    CHECK_OK(pin(fd, memory.va, size, &handle));
    return handle;
}

/* Returns the type of a pin's mapping. Releases without GET_INFO_V2 do not report GDRDRV_MAPPING_TYPE_DEVICE. */
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

/* ---- The pin of a case: it is mapped, and each of its bytes is OURS ---- */

#define OURS 0x11

extern int fd;
extern struct memory memory;
extern uint64_t handle;
extern unsigned char *va;

/* Opens the device, and pins and maps `size` bytes of new memory. The exit of the process undoes all of that. */
void begin(uint64_t size);
/* Does the same as begin(), but maps only the first `mapped_size` bytes. */
void begin_partly_mapped(uint64_t size, size_t mapped_size);
/* Does the same as begin(), and then unmaps the pin. */
void begin_unmapped(uint64_t size);

/*
 * Returns by how much the number of pinned page tables, of all processes, has grown since the case began. Returns -1 if
 * the device does not report that number.
 */
long page_tables(void);

#define CHECK_PINNED(number)                                                                                           \
    do {                                                                                                               \
        if (page_tables() >= 0)                                                                                        \
            CHECK_EQUAL(page_tables(), number);                                                                        \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
