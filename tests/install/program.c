/*
 * Writes to emulated GPU memory through a mapping, and reads it back through the mapping and by CUDA. With -DWITH_gdrx,
 * it also writes and reads by libgdrx. The sample projects beside this file build it.
 */

#include <gdrapi.h>
#include <gdrconfig.h>
#ifdef WITH_gdrx
#include <gdrx.h>
#endif

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            return 1; \
        } \
    } while (0)

typedef int init_t(unsigned);
typedef int retain_t(void **context, int device);
typedef int set_t(void *context);
typedef int alloc_t(unsigned long long *address, size_t size);
typedef int read_t(void *host, unsigned long long address, size_t size);

int main(void)
{
    static const char text[] = "installed";
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    void *context, *mapping;
    unsigned long long address;
    char copy[sizeof(text)];
    gdr_mh_t handle;
    int major, minor;

    CHECK(GPU_PAGE_SIZE % PAGE_SIZE == 0);
    gdr_runtime_get_version(&major, &minor);
    CHECK(major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION);

    CHECK(libcuda != NULL);
    CHECK(((init_t *)dlsym(libcuda, "cuInit"))(0) == 0);
    CHECK(((retain_t *)dlsym(libcuda, "cuDevicePrimaryCtxRetain"))(&context, 0) == 0);
    CHECK(((set_t *)dlsym(libcuda, "cuCtxSetCurrent"))(context) == 0);
    CHECK(((alloc_t *)dlsym(libcuda, "cuMemAlloc_v2"))(&address, GPU_PAGE_SIZE) == 0);

    gdr_t gdr = gdr_open();
    CHECK(gdr != NULL);
    CHECK(gdr_pin_buffer(gdr, address, GPU_PAGE_SIZE, 0, 0, &handle) == 0);
    CHECK(gdr_map(gdr, handle, &mapping, GPU_PAGE_SIZE) == 0);
    CHECK(gdr_copy_to_mapping(handle, mapping, text, sizeof(text)) == 0);
    memset(copy, 0, sizeof(copy));
    CHECK(gdr_copy_from_mapping(handle, copy, mapping, sizeof(copy)) == 0);
    CHECK(memcmp(copy, text, sizeof(copy)) == 0);
    memset(copy, 0, sizeof(copy));
    CHECK(((read_t *)dlsym(libcuda, "cuMemcpyDtoH_v2"))(copy, address, sizeof(copy)) == 0);
    CHECK(memcmp(copy, text, sizeof(copy)) == 0);
#ifdef WITH_gdrx
    {
        uint32_t read = 0, word = 0x67647278;
        struct gdrx_copy one = {sizeof(word), &word, sizeof(word)};
        struct gdrx_map map;

        CHECK(gdrx_version() >> MAJOR_VERSION_SHIFT == GDRX_MAJOR_VERSION);
        CHECK(gdrx_attach(&map, gdr, handle, mapping, GPU_PAGE_SIZE) == 0);
        CHECK(gdrx_write_many(&map, &one, 1) == 0);
        gdrx_store_u32(&map, 0, gdrx_load_u32(&map, one.offset));
        CHECK(((read_t *)dlsym(libcuda, "cuMemcpyDtoH_v2"))(&read, address, sizeof(read)) == 0);
        CHECK(read == word);
    }
#endif
    CHECK(gdr_unmap(gdr, handle, mapping, GPU_PAGE_SIZE) == 0);
    CHECK(gdr_unpin_buffer(gdr, handle) == 0);
    CHECK(gdr_close(gdr) == 0);
    return 0;
}
