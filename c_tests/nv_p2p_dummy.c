/*
 * nv-p2p-dummy is a kernel module that only serves to build gdrdrv without the GPU driver. If gdrdrv uses its symbols,
 * /dev/gdrdrv opens, but refuses every pin. Then gdr_open uses dma-bufs, or returns NULL and logs what to do. gdremu
 * emulates such a system.
 */

#include "logged.h"
#include "kit/library.h"

static int maps_dmabufs(void)
{
    int version;

    CUDA(cuDriverGetVersion(&version));
    return version >= 13030;
}

static void open_once(void)
{
    gdr_t g = gdr_open();

    CHECK_EQUAL(g != NULL, maps_dmabufs());
    if (g != NULL) {
        CHECK(uses_dmabuf(g));
        CHECK_OK(gdr_close(g));
    }
}

int main(void)
{
    int before = open_descriptors();

    CHECK(access("/dev/gdrdrv", R_OK | W_OK) == 0);
    CHECK(access("/sys/module/nv_p2p_dummy/holders/gdrdrv", F_OK) == 0);
    const char *log = log_of(open_once, maps_dmabufs() ? "1" : "4");
    CHECK_LOGGED(log, "nv-p2p-dummy");
    CHECK_EQUAL(open_descriptors(), before);

    if (maps_dmabufs()) {
        gpu_init();
        struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
        gdr_t g = open_driver();
        gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
        CHECK_OK(gdr_unmap(g, handle, map(g, handle, GPU_PAGE_SIZE), GPU_PAGE_SIZE));
        CHECK_OK(gdr_close(g));
        gpu_free(&buffer);
    }
    return passed("nv_p2p_dummy");
}
