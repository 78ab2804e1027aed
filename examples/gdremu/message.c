/* Writes a message to GPU memory through a mapping, and checks that CUDA reads it there. docs/gdremu.md says how to run
 * this program without a GPU. */

#include <gdrapi.h>

#include <stdio.h>
#include <string.h>

/* The declarations of <cuda.h>, so that the example needs no CUDA toolkit. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *address, size_t size);
int cuMemcpyDtoH_v2(void *host, unsigned long long address, size_t size);

#define CHECK(call) \
    do { \
        int error_ = (call); \
        if (error_ != 0) { \
            fprintf(stderr, "%s: error %d\n", #call, error_); \
            return 1; \
        } \
    } while (0)

int main(void)
{
    static const char message[] = "straight into GPU memory";
    char seen[sizeof(message)];
    unsigned long long address;
    void *context, *mapping;
    gdr_mh_t handle;

    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&address, GPU_PAGE_SIZE));

    gdr_t gdr = gdr_open();
    CHECK(gdr == NULL);
    CHECK(gdr_pin_buffer(gdr, address, GPU_PAGE_SIZE, 0, 0, &handle));
    CHECK(gdr_map(gdr, handle, &mapping, GPU_PAGE_SIZE));
    CHECK(gdr_copy_to_mapping(handle, mapping, message, sizeof(message)));
    CHECK(cuMemcpyDtoH_v2(seen, address, sizeof(seen)));
    CHECK(memcmp(seen, message, sizeof(seen)));
    CHECK(gdr_unmap(gdr, handle, mapping, GPU_PAGE_SIZE));
    CHECK(gdr_unpin_buffer(gdr, handle));
    CHECK(gdr_close(gdr));
    return 0;
}
