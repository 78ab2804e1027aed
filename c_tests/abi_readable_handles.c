/*
 * The test suite of NVIDIA's libgdrapi 2.6 reads the memory that handles point to. It expects the driver's descriptor
 * at the address in a gdr_t, and the driver's handle of the pin 24 bytes after the address in a gdr_mh_t. It also
 * copies this memory to its stack, and expects that functions refuse the addresses of the copies.
 */

#include "kit/library.h"

#include <fcntl.h>

int main(void)
{
    unsigned char g_copy[128] __attribute__((aligned(128))), handle_copy[128] __attribute__((aligned(128)));
    gdr_mh_t forged;
    uint32_t number, other_number;
    int descriptor, using_dmabuf;
    void *va = NULL;
    gdr_t g = open_driver();

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &using_dmabuf));
    memcpy(&descriptor, g, sizeof(descriptor));
    if (using_dmabuf)
        CHECK_EQUAL(descriptor, -1);
    else
        CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, 2 * GPU_PAGE_SIZE);
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    gdr_mh_t other = pin(g, buffer.address + GPU_PAGE_SIZE, GPU_PAGE_SIZE);
    memcpy(&number, (char *)handle.h + 24, sizeof(number));
    memcpy(&other_number, (char *)other.h + 24, sizeof(other_number));
    CHECK(number != other_number);

    memcpy(g_copy, g, 64);
    memcpy(handle_copy, (void *)handle.h, 128);
    forged.h = (unsigned long)handle_copy;
    for (int i = 0; i < 2; i++) {
        gdr_mh_t refused;

        CHECK_ERROR(gdr_pin_buffer((gdr_t)(void *)g_copy, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &refused),
                    EINVAL);
        CHECK_ERROR(gdr_map(g, forged, &va, GPU_PAGE_SIZE), EINVAL);
        CHECK_ERROR(gdr_unpin_buffer(g, forged), EINVAL);
        descriptor = -1; /* in the second round, the copy of *g contains an invalid descriptor */
        memcpy(g_copy, &descriptor, sizeof(descriptor));
    }
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("abi_readable_handles");
}
