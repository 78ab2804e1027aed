/*
 * A program that exits without closing its connection and its pins, as DPDK and TensorRT-LLM do. A leak checker must
 * find that the library's memory for the connection and the pins is still reachable.
 */

#include "kit/library.h"

enum { PINS = 300 };

static gdr_t g;
static gdr_mh_t handles[PINS];

int main(void)
{
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    g = open_driver();
    for (int i = 0; i < PINS; i++)
        handles[i] = pin(g, buffer.address, GPU_PAGE_SIZE);
    (void)map(g, handles[0], GPU_PAGE_SIZE);
    for (int i = 1; i < PINS; i += 2)
        CHECK_OK(gdr_unpin_buffer(g, handles[i]));
    return passed("never_closed");
}
