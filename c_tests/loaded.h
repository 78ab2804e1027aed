/* Loads a libgdrapi at run time by name, and looks up its functions one by one, as communication libraries do. */
#ifndef LOADED_H
#define LOADED_H

#include "functions.h"
#include "kit/library.h"

#include <dlfcn.h>

struct loaded {
    void *library;
    FUNCTIONS(FUNCTION_POINTER) /* get_info is the old function gdr_get_info, not gdrapi.h's macro */
};

static inline void *loaded_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);

    CHECK(symbol != NULL);
    return symbol;
}

static inline struct loaded load_gdrapi(const char *name, int flags)
{
    struct loaded gdr;

    gdr.library = dlopen(name, flags);
    if (gdr.library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define LOAD(result, field, parameters) *(void **)&gdr.field = loaded_symbol(gdr.library, "gdr_" #field);
    FUNCTIONS(LOAD)
#undef LOAD
    return gdr;
}

static inline void close_and_unload(const struct loaded *gdr, gdr_t g)
{
    CHECK_OK(gdr->close(g));
    CHECK(dlclose(gdr->library) == 0);
}

#endif
