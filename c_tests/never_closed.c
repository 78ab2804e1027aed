/*
 * A connection and pins for the life of the process, as DPDK and TensorRT-LLM keep them: a leak checker finds what the
 * library holds for them, without a word of where to look.
 */

#include "gpu.h"

enum { PINS = 300 };

static gdr_t g;
static gdr_mh_t handles[PINS];

int main(void)
{
    struct gpu_buffer buffer;
    int i;

    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    g = gdr_open();
    CHECK(g != NULL);
    for (i = 0; i < PINS; i++)
        handles[i] = pin(g, buffer.address, GPU_PAGE_SIZE);
    (void)map(g, handles[0], GPU_PAGE_SIZE);
    for (i = 1; i < PINS; i += 2)
        CHECK_OK(gdr_unpin_buffer(g, handles[i]));
    return passed("never_closed");
}
