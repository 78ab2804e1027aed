/* Open, pin, map, unmap, unpin, close, by one thread and by two, of whole GPU pages and of parts. */

#include "buffer.h"
#include "kit/fault.h"
#include "tables.h"

#define SIZE (4 * GPU_PAGE_SIZE)

/* ---- basic ---- */

static void pin_map_check_unmap_unpin(enum gpu_memory kind, pin_function *pin)
{
    gdr_t g = open_driver();
    struct buffer buffer = buffer_pin(g, kind, SIZE, pin);
    struct buffer other = buffer_pin(g, kind, SIZE, pin);

    CHECK(other.handle.h != buffer.handle.h);
    buffer_unpin(&other);
    gpu_free(&other.memory);

    buffer_map(&buffer);
    buffer_unmap(&buffer);
    buffer_map(&buffer); /* a pin can be mapped again */
    check_views_agree(&buffer, 1);
    buffer_drop(&buffer);
    CHECK_OK(gdr_close(g));
}

static void open_use_close(enum gpu_memory kind, pin_function *pin)
{
    gpu_init();
    pin_map_check_unmap_unpin(kind, pin);
    int descriptors = open_descriptors(); /* after CUDA has opened all that it needs */
    pin_map_check_unmap_unpin(kind, pin);
    CHECK_EQUAL(open_descriptors(), descriptors);
}

static void basic(enum gpu_memory kind)
{
    open_use_close(kind, pin);
}

static void basic_v2(enum gpu_memory kind)
{
    open_use_close(kind, pin_v2);
}

static void basic_v2_forcepci(enum gpu_memory kind)
{
    open_use_close(kind, pin_force_pcie);
}

/* ---- basic_with_tokens ---- */

static void basic_with_tokens(enum gpu_memory kind)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {0, 0};
    gdr_t g = open_driver();

    if (is_persistent(g))
        waive("persistent mapping has no tokens");
    gpu_init();
    struct buffer buffer = {.memory = gpu_alloc(kind, SIZE), .g = g};
    if (cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, buffer.memory.address) != CUDA_SUCCESS)
        waive("CUDA has no tokens for this memory");
    say("token %#llx, address space %#x", tokens.p2pToken, tokens.vaSpaceToken);
    CHECK_OK(gdr_pin_buffer(g, (unsigned long)buffer.memory.address, buffer.memory.size, tokens.p2pToken,
                            tokens.vaSpaceToken, &buffer.handle));
    CHECK(buffer.handle.h != 0);
    buffer_map(&buffer);
    check_views_agree(&buffer, 1);
    buffer_drop(&buffer);
    CHECK_OK(gdr_close(g));
}

/* ---- basic_unaligned_mapping ---- */

static void unaligned_mapping_is_refused(gdr_t g, CUdeviceptr address)
{
    gdr_mh_t handle = pin(g, address, GPU_PAGE_SIZE);
    void *va = NULL;

    CHECK_EQUAL(info_of(g, handle).mapped, 0);
    CHECK_ERROR(gdr_map(g, handle, &va, GPU_PAGE_SIZE), EINVAL);
    CHECK(va == NULL || fault_at(va) != 0);
    CHECK_EQUAL(info_of(g, handle).mapped, 0);
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

/* Such a caller pins from the preceding page boundary, and adds the remainder to the mapping's address. */
static void works_aligned_by_hand(gdr_t g, CUdeviceptr address)
{
    size_t rest = address & GPU_PAGE_OFFSET;
    gdr_mh_t handle = pin(g, address - rest, rest + GPU_PAGE_SIZE);
    unsigned char sent[256], seen[256];
    void *va = NULL;

    CHECK_OK(gdr_map(g, handle, &va, rest + GPU_PAGE_SIZE));
    CHECK_EQUAL(address - info_of(g, handle).va, rest);
    fill(sent, sizeof(sent), (unsigned)rest);
    CHECK_OK(gdr_copy_to_mapping(handle, (unsigned char *)va + rest, sent, sizeof(sent)));
    gpu_read(seen, address, sizeof(seen));
    CHECK_BYTES(seen, sent, sizeof(seen));
    unmap_and_unpin(g, handle, va, rest + GPU_PAGE_SIZE);
}

static void basic_unaligned_mapping(enum gpu_memory kind)
{
    static const size_t rests[] = {1, 4, 520, 4097, GPU_PAGE_SIZE - 1};

    unsetenv("GDRCOPY_ALLOW_UNALIGNED_MAP"); /* which would allow it */
    gdr_t g = open_driver();
    gpu_init();
    struct gpu_buffer memory = gpu_alloc(kind, SIZE);
    for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]); i++) {
        unaligned_mapping_is_refused(g, memory.address + rests[i]);
        works_aligned_by_hand(g, memory.address + rests[i]);
    }
    gpu_free(&memory);
    CHECK_OK(gdr_close(g));
}

/* ---- basic_small_buffers_mapping ---- */

#define SMALL 4096
#define MOST_SMALL 64

/* A small piece of CUDA memory, seen through a mapping of the GPU page that contains it. */
struct small {
    CUdeviceptr address;
    gdr_mh_t handle;
    void *page;
    unsigned char *va;
};

static CUdeviceptr page_of(CUdeviceptr address)
{
    return address & GPU_PAGE_MASK;
}

/* Allocates until two pieces are in one GPU page; false if that does not happen. */
static int allocate_neighbors(struct gpu_buffer *pieces, size_t *count, size_t *one, size_t *other)
{
    for (*count = 0; *count < MOST_SMALL;) {
        pieces[*count] = gpu_alloc_small(SMALL);
        *other = (*count)++;
        for (size_t i = 0; i < *other; i++)
            if (page_of(pieces[i].address) == page_of(pieces[*other].address) &&
                page_of(pieces[i].address + SMALL - 1) == page_of(pieces[*other].address + SMALL - 1)) {
                *one = i;
                return 1;
            }
    }
    return 0;
}

static struct small small_map(gdr_t g, CUdeviceptr address)
{
    struct small small;

    small.address = address;
    small.handle = pin(g, page_of(address), address - page_of(address) + SMALL);
    small.page = NULL;
    CHECK_OK(gdr_map(g, small.handle, &small.page, address - page_of(address) + SMALL));
    small.va = (unsigned char *)small.page + (address - info_of(g, small.handle).va);
    return small;
}

static void small_unmap(gdr_t g, const struct small *small)
{
    CHECK_OK(gdr_unmap(g, small->handle, small->page, (size_t)(small->va - (unsigned char *)small->page) + SMALL));
    CHECK_OK(gdr_unpin_buffer(g, small->handle));
}

/* Writes through the mapping; CUDA must see it in this piece, and nothing of it in the other. */
static void write_reaches_only(const struct small *small, CUdeviceptr other, unsigned seed)
{
    unsigned char sent[SMALL], before[SMALL], seen[SMALL];

    fill(sent, SMALL, seed);
    gpu_read(before, other, SMALL);
    CHECK_OK(gdr_copy_to_mapping(small->handle, small->va, sent, SMALL));
    gpu_read(seen, small->address, SMALL);
    CHECK_BYTES(seen, sent, SMALL);
    gpu_read(seen, other, SMALL);
    CHECK_BYTES(seen, before, SMALL);
}

static void basic_small_buffers_mapping(enum gpu_memory kind)
{
    struct gpu_buffer pieces[MOST_SMALL];
    size_t count, first, second;
    gdr_t g = open_driver();

    (void)kind;
    gpu_init();
    if (!allocate_neighbors(pieces, &count, &first, &second))
        waive("CUDA puts no two small buffers into one GPU page");
    struct small one = small_map(g, pieces[first].address);
    struct small other = small_map(g, pieces[second].address);
    CHECK(one.handle.h != other.handle.h && one.page != other.page);
    write_reaches_only(&one, other.address, 1);
    write_reaches_only(&other, one.address, 2);

    small_unmap(g, &one);
    write_reaches_only(&other, one.address, 3);
    one = small_map(g, one.address);
    small_unmap(g, &other);
    write_reaches_only(&one, other.address, 4);
    small_unmap(g, &one);
    for (size_t i = 0; i < count; i++)
        gpu_free(&pieces[i]);
    CHECK_OK(gdr_close(g));
}

/* ---- basic_child_thread_pins_buffer ---- */

struct pin_job {
    struct buffer buffer;
    int result;
};

static void *pin_in_thread(void *argument)
{
    struct pin_job *job = argument;
    struct buffer *buffer = &job->buffer;
    unsigned long address = (unsigned long)buffer->memory.address;

    gpu_init();
    job->result = gdr_pin_buffer(buffer->g, address, buffer->memory.size, 0, 0, &buffer->handle);
    return NULL;
}

static void basic_child_thread_pins_buffer(enum gpu_memory kind)
{
    gdr_t g = open_driver();

    gpu_init();
    struct pin_job job = {.buffer = {.memory = gpu_alloc(kind, SIZE), .g = g}};
    in_thread(pin_in_thread, &job);
    if (job.result == EACCES && !driver_is_at_least(g, 2, 1))
        waive("gdrdrv 2.0 serves only the thread that opened it");
    CHECK_EQUAL(job.result, 0);
    CHECK(job.buffer.handle.h != 0);
    buffer_map(&job.buffer);
    check_views_agree(&job.buffer, 1);
    buffer_drop(&job.buffer);
    CHECK_OK(gdr_close(g));
}

const struct test basic_tests[] = {
    {"basic", basic, BOTH_KINDS, 0},
    {"basic_v2", basic_v2, BOTH_KINDS, 0},
    {"basic_v2_forcepci", basic_v2_forcepci, BOTH_KINDS, 0},
    {"basic_with_tokens", basic_with_tokens, ONE_KIND, 0},
    {"basic_unaligned_mapping", basic_unaligned_mapping, ONE_KIND, 0},
    {"basic_small_buffers_mapping", basic_small_buffers_mapping, ONE_KIND, 0},
    {"basic_child_thread_pins_buffer", basic_child_thread_pins_buffer, BOTH_KINDS, 0},
    END_OF_TESTS,
};
