/* The tests of gdrcopy_sanity, named as in NVIDIA's gdrcopy_sanity. Most run tests of other programs (see bodies.h). */

#include "tests.h"

#include "kit/descriptor.h"
#include "kit/fault.h"

#include <signal.h>
#include <sys/socket.h>

#define SIZE (4 * GPU_PAGE_SIZE)

/* ---- Pins ---- */

static gdr_mh_t pin_with(gdr_t g, CUdeviceptr address, size_t size, uint32_t flags)
{
    gdr_mh_t handle = {0};
    int result = gdr_pin_buffer_v2(g, (unsigned long)address, size, flags, &handle);

    if (result != 0 && flags == GDR_PIN_FLAG_FORCE_PCIE)
        waive("the driver or the GPU does not support GDR_PIN_FLAG_FORCE_PCIE");
    CHECK_EQUAL(result, 0);
    CHECK(handle.h != 0);
    return handle;
}

static gdr_mh_t pin_v2(gdr_t g, CUdeviceptr address, size_t size)
{
    return pin_with(g, address, size, GDR_PIN_FLAG_DEFAULT);
}

static gdr_mh_t pin_force_pcie(gdr_t g, CUdeviceptr address, size_t size)
{
    return pin_with(g, address, size, GDR_PIN_FLAG_FORCE_PCIE);
}

/* ---- A pinned buffer that has its own connection to the driver ---- */

struct pinned {
    gdr_t g;
    struct gpu_buffer buffer;
    gdr_mh_t handle;
};

static struct pinned open_and_pin(enum gpu_memory kind, pin_function *pin)
{
    struct pinned pinned = {.g = open_driver()};

    gpu_init();
    pinned.buffer = gpu_alloc(kind, SIZE);
    pinned.handle = pin(pinned.g, pinned.buffer.address, SIZE);
    return pinned;
}

/* Checks twice that the pin can be mapped, then unpins it and closes its connection. */
static void use_and_close(const struct pinned *pinned)
{
    check_works(pinned->g, pinned->handle, SIZE);
    check_works(pinned->g, pinned->handle, SIZE);
    CHECK_OK(gdr_unpin_buffer(pinned->g, pinned->handle));
    CHECK_OK(gdr_close(pinned->g));
    gpu_free(&pinned->buffer);
}

/* Waives a test that needs gdrdrv, if the backend is dma-buf. */
static void waive_with_dmabufs(const char *why)
{
    gdr_t g = open_driver();

    if (uses_dmabuf(g))
        waive(why);
    CHECK_OK(gdr_close(g));
}

/* ---- The tests attributes_... and basic_... ---- */

static void attributes_sanity(enum gpu_memory kind)
{
    gdr_t g = open_driver();

    (void)kind;
    attributes_are_0_or_1(g);
    CHECK_OK(gdr_close(g));
}

static void open_pin_and_close(enum gpu_memory kind, pin_function *pin)
{
    int descriptors = -1;

    for (int i = 0; i < 2; i++) {
        struct pinned pinned = open_and_pin(kind, pin);

        use_and_close(&pinned);
        if (i == 0)
            descriptors = open_descriptors(); /* by now CUDA has opened all files that it keeps open */
    }
    CHECK_EQUAL(open_descriptors(), descriptors);
}

/* Returns CUDA's peer-to-peer tokens of the memory. Waives the test if there are none. */
static CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens_of(CUdeviceptr address)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {0, 0};

    if (cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, address) != CUDA_SUCCESS)
        waive("CUDA has no tokens for this memory");
    return tokens;
}

static gdr_mh_t pin_with_tokens(gdr_t g, CUdeviceptr address, size_t size)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = tokens_of(address);
    gdr_mh_t handle = {0};

    CHECK_OK(gdr_pin_buffer(g, (unsigned long)address, size, tokens.p2pToken, tokens.vaSpaceToken, &handle));
    CHECK(handle.h != 0);
    return handle;
}

static void basic_with_tokens(enum gpu_memory kind)
{
    gdr_t g = open_driver();

    if (is_persistent(g))
        waive("persistent mapping has no tokens");
    CHECK_OK(gdr_close(g));
    open_pin_and_close(kind, pin_with_tokens);
}

static void basic_unaligned_mapping(enum gpu_memory kind)
{
    (void)kind;
    unaligned_pins_are_refused_by_default();
}

/* Two small buffers are in one GPU page. The test pins each from the start of the page to the end of the buffer. */
static void basic_small_buffers_mapping(enum gpu_memory kind)
{
    enum { SMALL = 4096, MOST = 64 };
    struct gpu_buffer buffers[MOST];
    gdr_t g = open_driver();
    gdr_mh_t handles[2];
    char *va[2];
    int last = 0;

    (void)kind;
    gpu_init();
    buffers[0] = gpu_alloc_small(SMALL);
    do {
        if (++last == MOST)
            waive("CUDA puts no two small buffers into one GPU page");
        buffers[last] = gpu_alloc_small(SMALL);
    } while (buffers[last].address / GPU_PAGE_SIZE != buffers[last - 1].address / GPU_PAGE_SIZE);

    CUdeviceptr page = round_down(buffers[last].address, GPU_PAGE_SIZE);
    for (int i = 0; i < 2; i++) {
        CUdeviceptr address = buffers[last - i].address;
        size_t size = address + SMALL - page;

        handles[i] = pin(g, page, size);
        va[i] = map(g, handles[i], size);
        check_shows(handles[i], va[i] + (address - page), address, SMALL);
    }
    CHECK(handles[0].h != handles[1].h && va[0] != va[1]);
    CHECK_OK(gdr_unpin_buffer(g, handles[1]));
    check_shows(handles[0], va[0] + (buffers[last].address - page), buffers[last].address, SMALL);
    CHECK_OK(gdr_close(g));
}

static void *pin_in_thread(void *argument)
{
    struct pinned *pinned = argument;

    gpu_init();
    pinned->handle = pin(pinned->g, pinned->buffer.address, SIZE);
    return NULL;
}

static void basic_child_thread_pins_buffer(enum gpu_memory kind)
{
    struct pinned pinned = {.g = open_driver()};

    if (!driver_is_at_least(pinned.g, 2, 1))
        waive("gdrdrv 2.0 serves only the thread that opened it");
    gpu_init();
    pinned.buffer = gpu_alloc(kind, SIZE);
    in_thread(pin_in_thread, &pinned);
    use_and_close(&pinned);
}

/* ---- The tests data_validation... ---- */

static void every_7th_copy_arrives(enum gpu_memory kind, pin_function *pin)
{
    copies_arrive(kind, pin, 7);
}

static void every_copy_arrives(enum gpu_memory kind, pin_function *pin)
{
    copies_arrive(kind, pin, 1);
}

static void data_validation_mix_mappings(enum gpu_memory kind)
{
    if (mappings_of_all_types_show_the_same_memory(kind) == 0)
        waive("the platform has only one mapping type; two mappings of that type see each other's writes");
}

/* ---- Two processes. The child is forked before CUDA starts, so that both processes can use CUDA ---- */

static enum gpu_memory child_kind;
static int to_child[2], to_parent[2];

static pid_t start_with_pipes(void (*part)(void), enum gpu_memory kind)
{
    child_kind = kind;
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = start_child(part);
    CHECK(close(to_parent[1]) == 0); /* so that await() in the parent fails if the child has ended */
    return child;
}

/* Each of two processes calls this function. It maps a buffer, and then frees a second buffer while the other process
   has a buffer mapped. */
static void map_and_free(enum gpu_memory kind, int from, int to, int is_first)
{
    struct pinned kept = open_and_pin(kind, pin);
    void *va = map(kept.g, kept.handle, SIZE);

    say(to);
    await(from); /* now the other process has a buffer mapped, too */
    if (!is_first)
        await(from);
    freeing_one_buffer_does_not_affect_another(kind);
    say(to);
    if (is_first)
        await(from);
    check_shows(kept.handle, va, kept.buffer.address, SIZE);
    CHECK_OK(gdr_unmap(kept.g, kept.handle, va, SIZE));
    use_and_close(&kept);
}

static void map_and_free_first(void)
{
    map_and_free(child_kind, to_child[0], to_parent[1], 1);
}

static void invalidation_fork_map_and_free(enum gpu_memory kind)
{
    pid_t child = start_with_pipes(map_and_free_first, kind);

    map_and_free(kind, to_parent[0], to_child[1], 0);
    finish_child(child);
}

static void pin_by_the_parents_tokens(void)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    gdr_t g = open_driver();
    gdr_mh_t handle = {0};
    CUdeviceptr address;

    CHECK(read(to_child[0], &address, sizeof(address)) == sizeof(address));
    CHECK(read(to_child[0], &tokens, sizeof(tokens)) == sizeof(tokens));
    CHECK(gdr_pin_buffer(g, (unsigned long)address, SIZE, tokens.p2pToken, tokens.vaSpaceToken, &handle) != 0);
    CHECK(gdr_pin_buffer(g, (unsigned long)address, SIZE, 0, 0, &handle) != 0);
    CHECK_EQUAL(handle.h, 0);
    CHECK_OK(gdr_close(g));
}

static void invalidation_fork_child_gdr_pin_parent_with_tokens(enum gpu_memory kind)
{
    pid_t child = start_with_pipes(pin_by_the_parents_tokens, kind);
    struct pinned pinned = open_and_pin(kind, pin);
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = tokens_of(pinned.buffer.address);

    CHECK(write(to_child[1], &pinned.buffer.address, sizeof(pinned.buffer.address)) > 0);
    CHECK(write(to_child[1], &tokens, sizeof(tokens)) > 0);
    finish_child(child);
    use_and_close(&pinned);
}

/* ---- A process sends its descriptor of the driver to another process, which uses it in place of its own one ---- */

static int sockets[2];

static int *descriptor_of(gdr_t g)
{
    return (int *)(void *)g; /* the descriptor is the first field */
}

static struct pinned pin_and_take_the_senders_descriptor(void)
{
    struct pinned own = open_and_pin(child_kind, pin);
    int received = receive_descriptor(sockets[1]);

    CHECK(dup2(received, *descriptor_of(own.g)) >= 0);
    return own;
}

static void pin_by_received_descriptor(void)
{
    struct pinned own = pin_and_take_the_senders_descriptor();
    gdr_mh_t handle = {0};

    CHECK_ERROR(gdr_pin_buffer(own.g, (unsigned long)own.buffer.address, SIZE, 0, 0, &handle), EACCES);
    CHECK_ERROR(gdr_pin_buffer_v2(own.g, (unsigned long)own.buffer.address, SIZE, 0, &handle), EACCES);
    CHECK_EQUAL(handle.h, 0);
}

static void map_by_received_descriptor(void)
{
    struct pinned own = pin_and_take_the_senders_descriptor();
    void *va = NULL;

    CHECK_ERROR(gdr_map(own.g, own.handle, &va, SIZE), EACCES);
    CHECK(va == NULL);
    CHECK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *descriptor_of(own.g), 0) == MAP_FAILED);
    CHECK_EQUAL(errno, EACCES);
}

static void send_to(void (*receiver)(void), enum gpu_memory kind)
{
    waive_with_dmabufs("with dma-bufs there is no driver descriptor to send");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    child_kind = kind;
    pid_t child = start_child(receiver);
    struct pinned pinned = open_and_pin(kind, pin);
    CHECK(send_descriptor(sockets[0], *descriptor_of(pinned.g)));
    finish_child(child);
    use_and_close(&pinned);
}

static void invalidation_unix_sock_shared_fd_gdr_pin_buffer(enum gpu_memory kind)
{
    send_to(pin_by_received_descriptor, kind);
}

static void invalidation_unix_sock_shared_fd_gdr_map(enum gpu_memory kind)
{
    send_to(map_by_received_descriptor, kind);
}

/* ---- The test leakage_... Pins end with the process that made them, however it ends. Other programs must not pin at
   the same time, because the driver's count includes all pins of all processes ---- */

static gdr_t inherited;

static void close_inherited(void)
{
    await(to_child[0]);
    CHECK_OK(gdr_close(inherited));
}

/* The parent pins after the fork. Then its child closes the inherited connection, which must not end the pins. */
static void close_by_a_child_ends_no_pin(enum gpu_memory kind, long unpinned)
{
    inherited = open_driver();
    pid_t child = start_with_pipes(close_inherited, kind);
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(kind, SIZE);
    gdr_mh_t handle = pin(inherited, buffer.address, SIZE);
    gdr_mh_t other = pin(inherited, buffer.address, SIZE);
    map(inherited, handle, SIZE);
    CHECK_EQUAL(all_page_tables(), unpinned + 2);
    say(to_child[1]);
    finish_child(child);
    CHECK_EQUAL(all_page_tables(), unpinned + 2);
    CHECK_OK(gdr_unpin_buffer(inherited, other));
    CHECK_EQUAL(all_page_tables(), unpinned + 1);
    CHECK_OK(gdr_close(inherited));
    CHECK_EQUAL(all_page_tables(), unpinned);
    gpu_free(&buffer);
}

static void own_a_mapped_pin(void)
{
    struct pinned pinned = open_and_pin(child_kind, pin);

    map(pinned.g, pinned.handle, SIZE);
    say(to_parent[1]);
    await(to_child[0]);
}

static void leakage_pin_pages_fork(enum gpu_memory kind)
{
    waive_with_dmabufs("dma-bufs are not counted");
    long unpinned = all_page_tables();
    if (unpinned < 0)
        waive("nv_get_pages_refcount cannot be read; load gdrdrv with dbg_enabled=1");
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        pid_t child = start_with_pipes(own_a_mapped_pin, kind);

        await(to_parent[0]);
        CHECK_EQUAL(all_page_tables(), unpinned + 1);
        if (is_killed) {
            CHECK(kill(child, SIGKILL) == 0);
            CHECK(waitpid(child, NULL, 0) == child);
        } else {
            say(to_child[1]);
            finish_child(child);
        }
        CHECK_EQUAL(all_page_tables(), unpinned);
    }
    close_by_a_child_ends_no_pin(kind, unpinned);
}

/* ---- All tests ---- */

const struct test tests[] = {
    {"attributes_sanity", ONE_KIND, .run = attributes_sanity},
    {"basic", BOTH_KINDS, .run_with = open_pin_and_close, .pin = pin},
    {"basic_v2", BOTH_KINDS, .run_with = open_pin_and_close, .pin = pin_v2},
    {"basic_v2_forcepci", BOTH_KINDS, .run_with = open_pin_and_close, .pin = pin_force_pcie},
    {"basic_with_tokens", ONE_KIND, .run = basic_with_tokens},
    {"basic_unaligned_mapping", ONE_KIND, .run = basic_unaligned_mapping},
    {"basic_small_buffers_mapping", ONE_KIND, .run = basic_small_buffers_mapping},
    {"basic_child_thread_pins_buffer", BOTH_KINDS, .run = basic_child_thread_pins_buffer},
    {"data_validation", BOTH_KINDS, .run_with = every_7th_copy_arrives, .pin = pin},
    {"data_validation_v2", BOTH_KINDS, .run_with = every_7th_copy_arrives, .pin = pin_v2},
    {"data_validation_v2_forcepci", BOTH_KINDS, .run_with = every_7th_copy_arrives, .pin = pin_force_pcie},
    {"data_validation_exhaustive", BOTH_KINDS, .run_with = every_copy_arrives, .pin = pin, .extended = 1},
    {"data_validation_mix_mappings", ONE_KIND, .run = data_validation_mix_mappings},
    {"invalidation_access_after_gdr_close", BOTH_KINDS, .run = close_unmaps_and_unpins},
    {"invalidation_access_after_free", BOTH_KINDS, .run = freed_memory_keeps_or_loses_its_mapping},
    {"invalidation_two_mappings", BOTH_KINDS, .run = freeing_one_buffer_does_not_affect_another},
    {"invalidation_fork_access_after_free", BOTH_KINDS, .run = a_child_faults_before_and_after_a_free},
    {"invalidation_fork_after_gdr_map", BOTH_KINDS, .run = children_can_use_nothing_inherited},
    {"invalidation_fork_child_gdr_map_parent", BOTH_KINDS, .run = a_child_cannot_map_its_parents_pin},
    {"invalidation_fork_map_and_free", BOTH_KINDS, .run = invalidation_fork_map_and_free},
    {"invalidation_fork_child_gdr_pin_parent_with_tokens", ONE_KIND,
     .run = invalidation_fork_child_gdr_pin_parent_with_tokens},
    {"invalidation_unix_sock_shared_fd_gdr_pin_buffer", BOTH_KINDS,
     .run = invalidation_unix_sock_shared_fd_gdr_pin_buffer},
    {"invalidation_unix_sock_shared_fd_gdr_map", BOTH_KINDS, .run = invalidation_unix_sock_shared_fd_gdr_map},
    {"leakage_pin_pages_fork", BOTH_KINDS, .run = leakage_pin_pages_fork},
    {NULL, ONE_KIND, .run = NULL},
};
