/* A libgdrapi loaded at run time, as communication libraries do, by name, one function at a time. */
#ifndef LOADED_H
#define LOADED_H

#include "kit/library.h"

#include <dlfcn.h>

#undef gdr_get_info

struct loaded {
    void *library;
    gdr_t (*open)(void);
    int (*close)(gdr_t);
    int (*pin_buffer)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *);
    int (*pin_buffer_v2)(gdr_t, unsigned long, size_t, uint32_t, gdr_mh_t *);
    int (*unpin_buffer)(gdr_t, gdr_mh_t);
    int (*get_info)(gdr_t, gdr_mh_t, void *); /* the old one, by its symbol */
    int (*get_info_v2)(gdr_t, gdr_mh_t, gdr_info_v2_t *);
    int (*map)(gdr_t, gdr_mh_t, void **, size_t);
    int (*map_v2)(gdr_t, gdr_mh_t, void **, size_t, gdr_map_flags_t);
    int (*unmap)(gdr_t, gdr_mh_t, void *, size_t);
    int (*copy_to_mapping)(gdr_mh_t, void *, const void *, size_t);
    int (*copy_from_mapping)(gdr_mh_t, void *, const void *, size_t);
    void (*runtime_get_version)(int *, int *);
    int (*driver_get_version)(gdr_t, int *, int *);
    int (*get_attribute)(gdr_t, gdr_attr_t, int *);
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
#define LOAD(field) *(void **)&gdr.field = loaded_symbol(gdr.library, "gdr_" #field)
    LOAD(open);
    LOAD(close);
    LOAD(pin_buffer);
    LOAD(pin_buffer_v2);
    LOAD(unpin_buffer);
    LOAD(get_info);
    LOAD(get_info_v2);
    LOAD(map);
    LOAD(map_v2);
    LOAD(unmap);
    LOAD(copy_to_mapping);
    LOAD(copy_from_mapping);
    LOAD(runtime_get_version);
    LOAD(driver_get_version);
    LOAD(get_attribute);
#undef LOAD
    return gdr;
}

#endif
