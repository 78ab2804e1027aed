/* Tests of gdr_map, gdr_map_v2 and gdr_unmap. */

#include "bodies.h"
#include "kit/fault.h"

#include <sys/mman.h>

#define SIZE (4 * GPU_PAGE_SIZE)
#define UNTOUCHED ((void *)0x5a5a5a5a)

static gdr_t g;
static struct gpu_buffer buffer;
static gdr_mh_t handle;

/* Checks that the pin can still be mapped, which shows that failed calls have left nothing behind. */
static void still_maps(void)
{
    check_works(g, handle, SIZE);
}

static void refused(size_t size, int flags, int error)
{
    void *va = UNTOUCHED;

    CHECK_ERROR(gdr_map_v2(g, handle, &va, size, flags), error);
    CHECK_EQUAL(va, UNTOUCHED);
    CHECK_EQUAL(info_of(g, handle).mapped, 0);
    still_maps();
}

/* ---- Mapping ---- */

static void the_default_mapping(void)
{
    void *va = map(g, handle, SIZE);

    CHECK_EQUAL((uintptr_t)va % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    CHECK_EQUAL(info_of(g, handle).mapped, 1);
    CHECK_READABLE((char *)va + SIZE - 1);
    check_shows(handle, va, buffer.address, SIZE);
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    CHECK_EQUAL(info_of(g, handle).mapped, 0);
    CHECK_UNMAPPED(va);
}

static void a_part_can_be_mapped(void)
{
    static const size_t sizes[] = {1, 4096, 4097, GPU_PAGE_SIZE, SIZE - 1};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *va = map(g, handle, sizes[i]);

        check_shows(handle, va, buffer.address, sizes[i]);
        CHECK_READABLE(va + round_up(sizes[i], page) - 1);
        CHECK_OK(gdr_unmap(g, handle, va, sizes[i]));
        CHECK_UNMAPPED(va);
        CHECK_UNMAPPED(va + round_up(sizes[i], page) - 1);
    }
}

static void wrong_sizes_are_refused(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    refused(0, GDR_MAP_FLAG_DEFAULT, EINVAL);
    refused(SIZE + 1, GDR_MAP_FLAG_DEFAULT, EINVAL);
    refused(SIZE + GPU_PAGE_SIZE, GDR_MAP_FLAG_DEFAULT, EINVAL);
    refused(SIZE_MAX, GDR_MAP_FLAG_DEFAULT, EINVAL);
    /* With gdrdrv, mmap refuses this size (ENOMEM). With dma-bufs, the library refuses it as larger than the pin. */
    refused(SIZE_MAX - page + 1, GDR_MAP_FLAG_DEFAULT, uses_dmabuf(g) ? EINVAL : ENOMEM);
}

static void unknown_flags_are_refused(void)
{
    refused(SIZE, 4, EINVAL);
    refused(SIZE, -1, EINVAL);
    refused(SIZE, INT32_MAX, EINVAL);
}

static void a_second_mapping_is_refused(void)
{
    void *va = map(g, handle, SIZE);
    void *second = UNTOUCHED;

    CHECK_ERROR(gdr_map(g, handle, &second, SIZE), EAGAIN);
    for (int flag = GDR_MAP_FLAG_DEFAULT; flag <= GDR_MAP_FLAG_REQ_DEVICE_MAPPING; flag++)
        CHECK_ERROR(gdr_map_v2(g, handle, &second, SIZE, flag), EAGAIN);
    CHECK_EQUAL(second, UNTOUCHED);
    check_shows(handle, va, buffer.address, SIZE);
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    still_maps();
}

static void null_is_refused(void)
{
    CHECK_ERROR(gdr_map(g, handle, NULL, SIZE), EINVAL);
    CHECK_ERROR(gdr_map_v2(g, handle, NULL, SIZE, GDR_MAP_FLAG_REQ_WC_MAPPING), EINVAL);
    still_maps();
}

static void pins_are_mapped_side_by_side(void)
{
    enum { PINS = 4 };
    gdr_mh_t pins[PINS];
    uint32_t *va[PINS], value;
    uint32_t i;

    for (i = 0; i < PINS; i++) {
        pins[i] = pin(g, buffer.address + i * GPU_PAGE_SIZE, GPU_PAGE_SIZE);
        va[i] = map(g, pins[i], GPU_PAGE_SIZE);
    }
    for (i = 0; i < PINS; i++)
        CHECK_OK(gdr_copy_to_mapping(pins[i], va[i], &i, sizeof(i)));
    for (i = 0; i < PINS; i++) {
        gpu_read(&value, buffer.address + i * GPU_PAGE_SIZE, sizeof(value));
        CHECK_EQUAL(value, i);
        CHECK_OK(gdr_unpin_buffer(g, pins[i]));
    }
}

/* ---- gdr_unmap removes the whole mapping, whatever range it is passed ---- */

static void unmaps_all_with(void *wrong_va, size_t wrong_size, size_t wrong_offset)
{
    char *va = map(g, handle, SIZE);

    CHECK_OK(gdr_unmap(g, handle, wrong_va != NULL ? wrong_va : va + wrong_offset, wrong_size));
    CHECK_UNMAPPED(va);
    CHECK_UNMAPPED(va + SIZE - 1);
    CHECK_EQUAL(info_of(g, handle).mapped, 0);
    CHECK_ERROR(gdr_unmap(g, handle, va, SIZE), EINVAL);
    still_maps();
}

static void unmap_accepts_any_range(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *others = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(others != MAP_FAILED);
    unmaps_all_with(NULL, SIZE, 1);        /* unaligned address */
    unmaps_all_with(NULL, SIZE, page);     /* address inside */
    unmaps_all_with(NULL, 0, 0);           /* size 0 */
    unmaps_all_with(NULL, SIZE / 2, 0);    /* half the size */
    unmaps_all_with(NULL, SIZE_MAX, 0);    /* too large a size */
    unmaps_all_with(others, SIZE, 0);      /* memory that is not the library's */
    unmaps_all_with((void *)(uintptr_t)buffer.address, SIZE, 0); /* the device address, as DPDK passes it */
    memset(others, 1, SIZE);               /* this memory is still mapped */
    CHECK(munmap(others, SIZE) == 0);

    char *va = map(g, handle, SIZE);
    CHECK_OK(gdr_unmap(g, handle, NULL, SIZE));
    CHECK_UNMAPPED(va);
    still_maps();
}

static void unmap_without_mapping_is_refused(void)
{
    gdr_mh_t never_mapped = pin(g, buffer.address, GPU_PAGE_SIZE);
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK_ERROR(gdr_unmap(g, never_mapped, NULL, 0), EINVAL);
    CHECK_ERROR(gdr_unmap(g, never_mapped, memory, SIZE), EINVAL);
    memset(memory, 1, SIZE);
    CHECK(munmap(memory, SIZE) == 0);
    CHECK_OK(gdr_unpin_buffer(g, never_mapped));

    void *va = map(g, handle, SIZE);
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    /* Other memory that is now mapped at the address must stay. */
    memory = mmap(va, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK_EQUAL(memory, va);
    CHECK_ERROR(gdr_unmap(g, handle, va, SIZE), EINVAL);
    memset(memory, 1, SIZE);
    CHECK(munmap(memory, SIZE) == 0);
}

/* A stale pointer must not reach other memory, so accesses raise SIGSEGV, and the range stays reserved. */
static void unpin_unmaps(void)
{
    gdr_mh_t mapped = pin(g, buffer.address, SIZE);
    char *va = map(g, mapped, SIZE);

    CHECK_OK(gdr_unpin_buffer(g, mapped));
    CHECK_GONE(va);
    CHECK_GONE(va + SIZE - 1);
    check_new_mappings_avoid(va);
    check_new_mappings_avoid(va + SIZE - 1);
    char *memory = mmap(va, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK_EQUAL(memory, va);
    CHECK_ERROR(gdr_unpin_buffer(g, mapped), EINVAL);
    CHECK_ERROR(gdr_unmap(g, mapped, va, SIZE), EINVAL);
    memset(memory, 1, SIZE);
    CHECK(munmap(memory, SIZE) == 0);
    still_maps();
}

/* Pins and maps, unmaps the mapping by munmap, and maps other memory in its place, as a faulty program might. */
static char *other_memory_in_place_of_a_mapping(gdr_t of, gdr_mh_t *mapped)
{
    *mapped = pin(of, buffer.address, SIZE);
    char *va = map(of, *mapped, SIZE);
    CHECK(munmap(va, SIZE) == 0);
    char *memory = mmap(va, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK_EQUAL(memory, va);
    return memory;
}

/* gdr_unmap, gdr_unpin_buffer and gdr_close unmap the range of a mapping even if the program has mapped other memory
   there. gdrapi.h warns of this. */
static void calls_act_on_the_addresses_whatever_is_mapped_there(void)
{
    gdr_t another = gdr_open();
    gdr_mh_t mapped;
    char *memory = other_memory_in_place_of_a_mapping(g, &mapped);

    CHECK_OK(gdr_unmap(g, mapped, memory, SIZE));
    CHECK_UNMAPPED(memory);
    CHECK_OK(gdr_unpin_buffer(g, mapped));
    memory = other_memory_in_place_of_a_mapping(g, &mapped);
    CHECK_OK(gdr_unpin_buffer(g, mapped));
    CHECK_GONE(memory);
    CHECK(another != NULL);
    memory = other_memory_in_place_of_a_mapping(another, &mapped);
    CHECK_OK(gdr_close(another));
    CHECK_GONE(memory);
    still_maps();
}

/* ---- Types ---- */

static const struct request {
    gdr_pin_flags_t pin_flag;
    gdr_map_flags_t map_flag;
    gdr_mapping_type_t type; /* the type of the mapping if the platform has it */
} requests[] = {
    {GDR_PIN_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAPPING_TYPE_WC},
    {GDR_PIN_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_CACHE_MAPPING, GDR_MAPPING_TYPE_CACHING},
    {GDR_PIN_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_DEVICE_MAPPING, GDR_MAPPING_TYPE_DEVICE},
    {GDR_PIN_FLAG_FORCE_PCIE, GDR_MAP_FLAG_DEFAULT, GDR_MAPPING_TYPE_WC},
};

/*
 * Makes another pin of the buffer, and maps it with a request's flags. Returns the mapping type, or NONE if refused.
 * gdrdrv 2.5 and later refuses a type with EOPNOTSUPP. Earlier drivers and dma-bufs refuse it with EINVAL. A requested
 * mapping type holds only for one mapping, so the next mapping of the pin has the usual type again.
 */
static gdr_mapping_type_t map_by_request(const struct request *request, gdr_mapping_type_t usual)
{
    gdr_mh_t other = {0};
    void *va = UNTOUCHED;

    if (gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, request->pin_flag, &other) != 0) {
        CHECK_EQUAL(request->pin_flag, GDR_PIN_FLAG_FORCE_PCIE);
        return GDR_MAPPING_TYPE_NONE;
    }
    CHECK(other.h != handle.h);
    int result = gdr_map_v2(g, other, &va, SIZE, request->map_flag);
    if (result != 0) {
        CHECK(request->type != usual); /* a request of the usual type must succeed */
        CHECK_EQUAL(result, driver_is_at_least(g, 2, 5) && !uses_dmabuf(g) ? EOPNOTSUPP : EINVAL);
        CHECK_EQUAL(va, UNTOUCHED);
        check_works(g, other, SIZE);
        CHECK_OK(gdr_unpin_buffer(g, other));
        return GDR_MAPPING_TYPE_NONE;
    }
    CHECK_EQUAL(info_of(g, other).mapping_type, request->type);
    check_shows(other, va, buffer.address, SIZE);
    CHECK_OK(gdr_unmap(g, other, va, SIZE));
    va = map(g, other, SIZE);
    CHECK_EQUAL(info_of(g, other).mapping_type, request->pin_flag == GDR_PIN_FLAG_DEFAULT ? usual : request->type);
    unmap_and_unpin(g, other, va, SIZE);
    return request->type;
}

static void begin(enum gpu_memory kind)
{
    gpu_init();
    buffer = gpu_alloc(kind, 2 * SIZE);
    g = open_driver();
    handle = pin(g, buffer.address, SIZE);
}

static void end(void)
{
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

/* Maps the buffer with the usual type, and also with the flags of each of `requests`. Returns how many of the latter
   mappings have another type. */
int mappings_of_all_types_show_the_same_memory(enum gpu_memory kind)
{
    int others = 0;

    begin(kind);
    void *va = map(g, handle, SIZE);
    gdr_mapping_type_t usual = info_of(g, handle).mapping_type;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        gdr_mapping_type_t type = map_by_request(&requests[i], usual);

        others += type != GDR_MAPPING_TYPE_NONE && type != usual;
        check_shows(handle, va, buffer.address, SIZE);
    }
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    end();
    return others;
}

static void run(enum gpu_memory kind)
{
    begin(kind);
    the_default_mapping();
    a_part_can_be_mapped();
    wrong_sizes_are_refused();
    unknown_flags_are_refused();
    a_second_mapping_is_refused();
    null_is_refused();
    pins_are_mapped_side_by_side();
    unmap_accepts_any_range();
    unmap_without_mapping_is_refused();
    unpin_unmaps();
    calls_act_on_the_addresses_whatever_is_mapped_there();
    end();
    mappings_of_all_types_show_the_same_memory(kind);
}

int main(void)
{
    run(MEM_ALLOC);
    run(MEM_CREATE);
    return passed("map_unmap");
}
