/* The next libgdrapi, of any maker, below an object that also has its functions. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include "gdrapi.h"
#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info); /* programs built before 2.4 */
#pragma GCC visibility pop

#define FUNCTIONS(DO)                                                                                                  \
    DO(open) DO(close) DO(pin_buffer) DO(pin_buffer_v2) DO(unpin_buffer) DO(get_callback_flag) DO(get_info)            \
    DO(get_info_v2) DO(map) DO(map_v2) DO(unmap) DO(copy_to_mapping) DO(copy_from_mapping) DO(runtime_get_version)     \
    DO(driver_get_version) DO(get_attribute) DO(get_mapping_type_string)

/* Stands for those that it lacks. */
static int missing(void)
{
    return ENOSYS;
}

/* The same for gdr_open. */
static gdr_t no_library(void)
{
    errno = ELIBACC;
    return NULL;
}

static struct {
#define DECLARE(name) __typeof__(&gdr_##name) name;
    FUNCTIONS(DECLARE)
} next;

/* By path, as the object has the library's SONAME. Returns NULL if there is none, which lacks all. */
static void *load_from(const char *path)
{
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

#define LOOK_UP(name) *(void **)&next.name = (library != NULL ? dlsym(library, "gdr_" #name) : NULL) ?: (void *)missing;
    FUNCTIONS(LOOK_UP)
    if ((void *)next.open == (void *)missing)
        next.open = no_library;
    return library;
}

static inline int next_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
    *info = (gdr_info_v2_t){0};
    int error = next.get_info_v2(g, handle, info);
    if (error == ENOSYS) {
        error = next.get_info(g, handle, info);
        if (info->mapped)
            info->mapping_type = info->wc_mapping ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
    }
    return error;
}

/* Whole pages of a mapping. A pin may begin inside a page, with GDRCOPY_ALLOW_UNALIGNED_MAP. */
static inline size_t mapping_len(unsigned long address, size_t size, const gdr_info_v2_t *info)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t head = address > info->va ? address - info->va : 0;

    return (size + head + page - 1) / page * page;
}
