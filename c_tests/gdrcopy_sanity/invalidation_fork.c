/* A child can use nothing of its parent's and does not affect it; nor does the parent affect the child. */

#include "invalidation.h"
#include "processes.h"
#include "tables.h"

#include <signal.h>

#define SIZE (4 * GPU_PAGE_SIZE)

/* A parent with a mapped buffer and one that is only pinned. */
struct family {
    gdr_t g;
    struct buffer mapped, pinned;
};

static struct family family_of(enum gpu_memory kind)
{
    struct family family;

    gpu_init();
    family.g = open_driver();
    family.mapped = buffer_pin_and_map(family.g, kind, SIZE);
    family.pinned = buffer_pin(family.g, kind, SIZE, pin);
    put_pattern(&family.mapped, 1);
    return family;
}

static void check_parent(struct family *family)
{
    check_pattern(&family->mapped, 1);
    check_views_agree(&family->mapped, 2);
    put_pattern(&family->mapped, 1);
    buffer_map(&family->pinned);
    check_views_agree(&family->pinned, 3);
    buffer_unmap(&family->pinned);
}

static void end_family(struct family *family)
{
    buffer_drop(&family->mapped);
    buffer_unpin(&family->pinned);
    gpu_free(&family->pinned.memory);
    CHECK_OK(gdr_close(family->g));
}

static void run_child(void (*part)(int socket, void *context), struct family *family)
{
    struct process child = start_process(part, family);

    finish_process(&child);
}

/* ---- invalidation_fork_access_after_free ---- */

static void touch_before_and_after_free(int socket, void *context)
{
    const struct family *family = context;

    check_untouchable(family->mapped.va, family->mapped.memory.size, SIGSEGV);
    exchange_steps(socket);
    check_untouchable(family->mapped.va, family->mapped.memory.size, SIGSEGV);
}

static void invalidation_fork_access_after_free(enum gpu_memory kind)
{
    struct family family = family_of(kind);
    struct process child = start_process(touch_before_and_after_free, &family);

    await_step(child.socket);
    gpu_free(&family.mapped.memory);
    signal_step(child.socket);
    finish_process(&child);
    check_freed_under(&family.mapped, 1);

    CHECK_OK(gdr_unmap(family.g, family.mapped.handle, family.mapped.va, family.mapped.memory.size));
    buffer_unpin(&family.mapped);
    buffer_unpin(&family.pinned);
    gpu_free(&family.pinned.memory);
    CHECK_OK(gdr_close(family.g));
}

/* ---- invalidation_fork_after_gdr_map ---- */

static void everything_fails(int socket, void *context)
{
    struct family *family = context;
    gdr_mh_t handles[2], fresh = {0};
    gdr_info_t info;
    void *va = NULL;
    int flag;

    (void)socket;
    handles[0] = family->mapped.handle;
    handles[1] = family->pinned.handle;
    check_untouchable(family->mapped.va, family->mapped.memory.size, SIGSEGV);
    CHECK(gdr_pin_buffer(family->g, (unsigned long)family->mapped.memory.address, SIZE, 0, 0, &fresh) != 0);
    CHECK(gdr_pin_buffer_v2(family->g, (unsigned long)family->mapped.memory.address, SIZE, 0, &fresh) != 0);
    CHECK_EQUAL(fresh.h, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(gdr_get_info(family->g, handles[i], &info) != 0);
        CHECK(gdr_get_callback_flag(family->g, handles[i], &flag) != 0);
        CHECK(gdr_map(family->g, handles[i], &va, SIZE) != 0);
        gdr_unmap(family->g, handles[i], family->mapped.va, SIZE); /* nothing is mapped; some libraries return 0 */
        CHECK(gdr_unpin_buffer(family->g, handles[i]) != 0);
    }
    check_untouchable(family->mapped.va, family->mapped.memory.size, SIGSEGV);
}

static void closing_affects_the_child_only(int socket, void *context)
{
    struct family *family = context;

    (void)socket;
    gdr_close(family->g); /* some libraries refuse it after pins */
    everything_fails(socket, context);
}

static void an_own_connection_works(int socket, void *context)
{
    gdr_t own = open_driver();

    (void)socket;
    (void)context;
    driver_is_at_least(own, 2, 0);
    is_persistent(own);
    CHECK_OK(gdr_close(own));
}

static void invalidation_fork_after_gdr_map(enum gpu_memory kind)
{
    struct family family = family_of(kind);

    run_child(everything_fails, &family);
    check_parent(&family);
    run_child(closing_affects_the_child_only, &family);
    check_parent(&family);
    run_child(an_own_connection_works, &family);
    check_parent(&family);
    end_family(&family);
}

/* ---- invalidation_fork_child_gdr_map_parent ---- */

static void mapping_the_parents_pin_fails(int socket, void *context)
{
    struct family *family = context;
    gdr_t own = open_driver();
    gdr_mh_t fresh = {0};
    void *va = NULL;

    (void)socket;
    CHECK(gdr_map(family->g, family->pinned.handle, &va, SIZE) != 0);
    CHECK(gdr_map_v2(family->g, family->pinned.handle, &va, SIZE, GDR_MAP_FLAG_DEFAULT) != 0);
    /* Nor does it work through a connection of the child's own, from the handle or from the address. */
    CHECK(gdr_map(own, family->pinned.handle, &va, SIZE) != 0);
    CHECK(gdr_pin_buffer(own, (unsigned long)family->pinned.memory.address, SIZE, 0, 0, &fresh) != 0);
    CHECK(va == NULL);
    CHECK_OK(gdr_close(own));
}

static void invalidation_fork_child_gdr_map_parent(enum gpu_memory kind)
{
    struct family family = family_of(kind);

    run_child(mapping_the_parents_pin_fails, &family);
    check_parent(&family);
    end_family(&family);
}

/* ---- invalidation_fork_map_and_free ---- */

/* One of two processes that run this at the same time. Each frees its buffer while the other's is mapped. */
static void map_and_free(int socket, enum gpu_memory kind, int frees_first)
{
    gdr_t g = open_driver();
    unsigned seed = frees_first ? 10 : 20;

    gpu_init();
    struct buffer kept = buffer_pin_and_map(g, kind, SIZE);
    struct buffer freed = buffer_pin_and_map(g, kind, SIZE);
    put_pattern(&kept, seed);
    put_pattern(&freed, seed + 1);
    exchange_steps(socket);

    if (!frees_first)
        await_step(socket);
    gpu_free(&freed.memory);
    check_freed_under(&freed, seed + 1);
    CHECK_OK(gdr_unmap(g, freed.handle, freed.va, freed.memory.size));
    buffer_unpin(&freed);
    signal_step(socket);
    if (frees_first)
        await_step(socket);

    check_pattern(&kept, seed);
    check_views_agree(&kept, seed + 2);
    buffer_drop(&kept);
    CHECK_OK(gdr_close(g));
}

static void map_and_free_first(int socket, void *context)
{
    map_and_free(socket, *(enum gpu_memory *)context, 1);
}

static void invalidation_fork_map_and_free(enum gpu_memory kind)
{
    struct process child = start_process(map_and_free_first, &kind);

    map_and_free(child.socket, kind, 0);
    finish_process(&child);
}

/* ---- invalidation_fork_child_gdr_pin_parent_with_tokens ---- */

struct offer {
    CUdeviceptr address;
    size_t size;
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
};

static void pin_fails(gdr_t g, const struct offer *offer, unsigned long long token, unsigned int va_space)
{
    gdr_mh_t handle = {0};

    CHECK(gdr_pin_buffer(g, (unsigned long)offer->address, offer->size, token, va_space, &handle) != 0);
    CHECK_EQUAL(handle.h, 0);
}

static void pin_what_is_offered(int socket, void *context)
{
    gdr_t g = open_driver();
    CUmemorytype type;
    struct offer offer;

    (void)context;
    receive_bytes(socket, &offer, sizeof(offer));
    pin_fails(g, &offer, offer.tokens.p2pToken, offer.tokens.vaSpaceToken);
    pin_fails(g, &offer, 0, 0);

    /* Nor with its own GPU address space, unless CUDA happens to use the address in it too. */
    gpu_init();
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, offer.address) != CUDA_SUCCESS) {
        pin_fails(g, &offer, offer.tokens.p2pToken, offer.tokens.vaSpaceToken);
        pin_fails(g, &offer, 0, 0);
    }
    CHECK_OK(gdr_close(g));
    exchange_steps(socket);
}

static void invalidation_fork_child_gdr_pin_parent_with_tokens(enum gpu_memory kind)
{
    struct process child = start_process(pin_what_is_offered, NULL);
    gdr_t g = open_driver();
    struct offer offer;

    gpu_init();
    struct buffer buffer = buffer_pin_and_map(g, kind, SIZE);
    memset(&offer, 0, sizeof(offer));
    offer.address = buffer.memory.address;
    offer.size = buffer.memory.size;
    if (cuPointerGetAttribute(&offer.tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, offer.address) != CUDA_SUCCESS)
        waive("CUDA has no tokens for this memory");
    send_bytes(child.socket, &offer, sizeof(offer));
    await_step(child.socket);
    check_views_agree(&buffer, 1);
    signal_step(child.socket);
    finish_process(&child);
    buffer_drop(&buffer);
    CHECK_OK(gdr_close(g));
}

const struct test fork_tests[] = {
    {"invalidation_fork_access_after_free", invalidation_fork_access_after_free, BOTH_KINDS, 0},
    {"invalidation_fork_after_gdr_map", invalidation_fork_after_gdr_map, BOTH_KINDS, 0},
    {"invalidation_fork_child_gdr_map_parent", invalidation_fork_child_gdr_map_parent, BOTH_KINDS, 0},
    {"invalidation_fork_map_and_free", invalidation_fork_map_and_free, BOTH_KINDS, 0},
    {"invalidation_fork_child_gdr_pin_parent_with_tokens", invalidation_fork_child_gdr_pin_parent_with_tokens,
     ONE_KIND, 0},
    END_OF_TESTS,
};
