#include "next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

struct next next;

static int missing(void)
{
    return ENOSYS;
}

static gdr_t no_library(void)
{
    errno = ELIBACC;
    return NULL;
}

/* Returns the function of the library, or NULL if there is no such function or no library. */
static void *look_up(void *library, const char *name)
{
    if (library == NULL)
        return NULL;
    return dlsym(library, name);
}

void *next_load(const char *path)
{
    static const struct {
        const char *name;
        void **function;
    } functions[] = {
#define FUNCTION(result, name, parameters) {"gdr_" #name, (void **)&next.name},
        FUNCTIONS(FUNCTION)
    };
    void *library = NULL;

    if (path != NULL)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = look_up(library, functions[i].name);

        if (function == NULL && functions[i].function == (void **)&next.open)
            function = (void *)no_library;
        if (function == NULL)
            function = (void *)missing;
        *functions[i].function = function; /* Several threads may do this at once, but all store the same value. */
    }
    return library;
}

int next_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
    *info = (gdr_info_v2_t){0};
    int error = next.get_info_v2(g, handle, info);
    if (error != ENOSYS)
        return error;

    error = next.get_info(g, handle, info);
    if (info->mapped && info->wc_mapping)
        info->mapping_type = GDR_MAPPING_TYPE_WC;
    else if (info->mapped)
        info->mapping_type = GDR_MAPPING_TYPE_CACHING;
    return error;
}
