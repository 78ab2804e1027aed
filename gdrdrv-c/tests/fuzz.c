/*
 * Two threads make valid and invalid calls: commands with right and wrong numbers, sizes and pointers, and mmap,
 * munmap, mremap and close in between. The kernel must survive, and nothing may stay pinned.
 *
 * usage: fuzz [calls [seed]]
 */

#include "device.h"

#define THREADS 2
#define MEMORY_PAGES 64
#define MAPPINGS 32

static long calls = 1000000;
static unsigned int first_seed = 1;

static struct gpu_memory memory;
static int fd = -1; /* shared by both threads */

struct fuzzer {
    unsigned int seed;
    unsigned char *page;      /* one readable and writable page, with no page after it */
    unsigned char *read_only; /* one page */
    uint64_t handles[16];     /* including handles of former pins */
    struct {
        unsigned char *va;
        size_t size;
    } mappings[MAPPINGS];
    long succeeded, refused;
};

static unsigned int below(struct fuzzer *f, unsigned int end)
{
    return (unsigned int)rand_r(&f->seed) % end;
}

static uint64_t anything(struct fuzzer *f)
{
    const uint64_t edges[] = {0, 1, PAGE, GPU_PAGE, ~0ULL, 1ULL << 31, 1ULL << 32, 1ULL << 63, ~0ULL >> 12, ~0ULL >> 1};

    if (below(f, 2))
        return edges[below(f, sizeof(edges) / sizeof(edges[0]))] + below(f, 3) - 1;
    return (uint64_t)rand_r(&f->seed) << 33 ^ (uint64_t)rand_r(&f->seed) << 11 ^ (uint64_t)rand_r(&f->seed);
}

static uint64_t handle(struct fuzzer *f)
{
    return below(f, 4) ? f->handles[below(f, 16)] : anything(f);
}

static uint64_t address(struct fuzzer *f)
{
    if (below(f, 8) == 0)
        return anything(f);
    return memory.va + (uint64_t)below(f, MEMORY_PAGES) * GPU_PAGE + (below(f, 3) ? 0 : below(f, GPU_PAGE));
}

static uint64_t length(struct fuzzer *f)
{
    return below(f, 8) ? below(f, 6) * GPU_PAGE + (below(f, 3) ? 0 : below(f, GPU_PAGE)) : anything(f);
}

static unsigned long number(struct fuzzer *f)
{
    const unsigned long known[] = {
        GDRDRV_IOC_PIN_BUFFER,    GDRDRV_IOC_UNPIN_BUFFER,     GDRDRV_IOC_GET_CB_FLAG,
        GDRDRV_IOC_GET_INFO,      GDRDRV_IOC_GET_INFO_V2,      GDRDRV_IOC_GET_ATTR,
        GDRDRV_IOC_PIN_BUFFER_V2, GDRDRV_IOC_REQ_MAPPING_TYPE, GDRDRV_IOC_GET_VERSION,
        GDRDRV_IOC_UNPIN_BUFFER, /* more often than pins, so that memory does not run out */
        GDRDRV_IOC_UNPIN_BUFFER,
    };
    unsigned long n = known[below(f, sizeof(known) / sizeof(known[0]))];

    switch (below(f, 16)) {
    case 0:
        return n ^ 1UL << below(f, 32);
    case 1:
        return (unsigned long)rand_r(&f->seed);
    default:
        return n;
    }
}

/* Returns an address to pass to ioctl. Usually the address is valid, and the bytes of `valid` are copied there. */
static void *pointer(struct fuzzer *f, const void *valid, size_t size)
{
    void *at;

    switch (below(f, 16)) {
    case 0:
        return NULL;
    case 1:
        return (void *)anything(f);
    case 2:
        return f->page + PAGE - below(f, 64);
    case 3:
        return f->read_only + below(f, 64);
    case 4: /* GPU memory, which may be unmapped at the same time */
        at = f->mappings[below(f, MAPPINGS)].va;
        return at ? at : f->page;
    case 5:
        return f->page + PAGE;
    default:
        at = f->page + below(f, 128) * 8;
        return memcpy(at, valid, size);
    }
}

static int random_command(struct fuzzer *f)
{
    unsigned long n = number(f);
    union {
        struct gdrdrv_pin_buffer pin;
        struct gdrdrv_pin_buffer_v2 pin_v2;
        struct gdrdrv_req_mapping_type type;
        struct gdrdrv_get_attr attribute;
        uint64_t handle;
        unsigned char bytes[64];
    } a = {.bytes = {0}};
    void *at;
    int result;

    switch (n) {
    case GDRDRV_IOC_PIN_BUFFER:
        a.pin.addr = address(f);
        a.pin.size = length(f);
        a.pin.p2p_token = below(f, 8) ? 0 : anything(f);
        break;
    case GDRDRV_IOC_PIN_BUFFER_V2:
        a.pin_v2.addr = address(f);
        a.pin_v2.size = length(f);
        a.pin_v2.flags = below(f, 8) ? 0 : (uint32_t)anything(f);
        break;
    case GDRDRV_IOC_GET_ATTR:
        a.attribute.attr = below(f, 4);
        break;
    case GDRDRV_IOC_REQ_MAPPING_TYPE:
        a.type.mapping_type = below(f, 5);
        /* fallthrough */
    default:
        a.handle = handle(f);
        break;
    }
    at = pointer(f, &a, sizeof(a));
    result = ioctl(fd, n, at);
    if (result == 0 && at >= (void *)f->page && at < (void *)(f->page + PAGE - sizeof(a))) {
        memcpy(&a, at, sizeof(a));
        if (n == GDRDRV_IOC_PIN_BUFFER)
            f->handles[below(f, 16)] = a.pin.handle;
        if (n == GDRDRV_IOC_PIN_BUFFER_V2)
            f->handles[below(f, 16)] = a.pin_v2.handle;
    }
    return result;
}

static int random_mmap(struct fuzzer *f)
{
    const int flags[] = {MAP_SHARED, MAP_SHARED, MAP_SHARED | MAP_POPULATE, MAP_PRIVATE};
    size_t size = below(f, 8) ? (below(f, 64) + 1) * PAGE : anything(f) % (1ULL << 40);
    unsigned int i = below(f, MAPPINGS);
    int protection = below(f, 4) ? PROT_READ | PROT_WRITE : (int)below(f, 8);

    if (f->mappings[i].va)
        return -1;
    void *va = mmap(NULL, size, protection, flags[below(f, 4)], fd, (off_t)(handle(f) * PAGE + (below(f, 16) ? 0 : 1)));
    if (va == MAP_FAILED)
        return -1;
    f->mappings[i].va = va;
    f->mappings[i].size = size;
    return 0;
}

/*
 * Accesses or changes part of a mapping. After a munmap or mremap of a part, unmaps the rest and forgets the mapping,
 * so that an address that may be reused is never accessed.
 */
static int random_change(struct fuzzer *f)
{
    unsigned int i = below(f, MAPPINGS);
    unsigned char *va = f->mappings[i].va, *place, value;
    size_t size = f->mappings[i].size;

    if (!va)
        return -1;
    size_t pages = size / PAGE + (size % PAGE != 0);
    unsigned char *part = va + below(f, (unsigned int)pages) * PAGE;
    size_t length = (1 + below(f, (unsigned int)(pages - (size_t)(part - va) / PAGE))) * PAGE;
    switch (below(f, 6)) {
    case 0:
        (void)touch(part, &value);
        return 0;
    case 1:
        return mprotect(part, length, (int)below(f, 4));
    case 2:
        return madvise(part, length, (int)below(f, 24));
    case 3:
        place = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* A failed mremap may have unmapped `place`, and the other thread may use it now. So do not unmap it again. */
        if (place == MAP_FAILED || mremap(part, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED)
            return -1;
        (void)touch(place, &value);
        munmap(place, length);
        break;
    case 4:
        munmap(part, length);
        break;
    case 5:
        return mremap(part, length, length + PAGE, MREMAP_MAYMOVE) != MAP_FAILED;
    }
    munmap(va, size);
    f->mappings[i].va = NULL;
    return 0;
}

static void *fuzz(void *fuzzer)
{
    struct fuzzer *f = fuzzer;

    for (long call = 0; call < calls / THREADS; call++) {
        unsigned int choice = below(f, 1000);
        int result;

        if (choice < 800)
            result = random_command(f);
        else if (choice < 880)
            result = random_mmap(f);
        else
            result = random_change(f);
        if (choice == 999) {
            /* While the other thread uses the device, dup2 closes it and puts a new one in its place. */
            int next = driver_open();

            CHECK(dup2(next, fd) == fd);
            CHECK(close(next) == 0);
        }
        result == 0 ? f->succeeded++ : f->refused++;
    }
    return NULL;
}

static void fuzz_all(void)
{
    static struct fuzzer fuzzers[THREADS];
    pthread_t threads[THREADS];
    long succeeded = 0, refused = 0;

    memory = gpu_alloc(MEMORY_PAGES * GPU_PAGE);
    fd = driver_open();
    for (int i = 0; i < THREADS; i++) {
        struct fuzzer *f = &fuzzers[i];

        f->seed = first_seed + (unsigned int)i;
        f->page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        f->read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(f->page != MAP_FAILED && f->read_only != MAP_FAILED);
        CHECK(mprotect(f->page + PAGE, PAGE, PROT_NONE) == 0);
        threads[i] = start_thread(fuzz, f);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        succeeded += fuzzers[i].succeeded;
        refused += fuzzers[i].refused;
        for (int j = 0; j < MAPPINGS; j++)
            if (fuzzers[i].mappings[j].va)
                munmap(fuzzers[i].mappings[j].va, fuzzers[i].mappings[j].size);
    }
    printf("seed %u: %ld calls succeeded, %ld were refused\n", first_seed, succeeded, refused);
    /* If this fails, nearly all calls succeeded, or nearly all failed. */
    CHECK(succeeded > calls / 20 && refused > calls / 20);
    CHECK(close(fd) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        calls = atol(argv[1]);
    if (argc > 2)
        first_seed = (unsigned int)strtoul(argv[2], NULL, 0);
    handle_faults();
    in_child(fuzz_all);
    CHECK_EQUAL(page_tables(), 0);
    return passed("fuzz");
}
