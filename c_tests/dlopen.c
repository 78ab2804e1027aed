/* The library loaded with dlopen, by both of its names and repeatedly. It leaves nothing behind. Not linked with it. */

#include "kit/check.h"
#include "gdrapi.h"
#include "suspension.h"

#include <dlfcn.h>

static const char *const public_functions[] = {
    "gdr_open",
    "gdr_close",
    "gdr_pin_buffer",
    "gdr_pin_buffer_v2",
    "gdr_unpin_buffer",
    "gdr_get_callback_flag",
    "gdr_get_info",
    "gdr_get_info_v2",
    "gdr_map",
    "gdr_map_v2",
    "gdr_unmap",
    "gdr_copy_to_mapping",
    "gdr_copy_from_mapping",
    "gdr_runtime_get_version",
    "gdr_driver_get_version",
    "gdr_get_attribute",
    "gdr_get_mapping_type_string",
};

/* Returns whether a libgdrapi is mapped into this process. */
static int is_loaded(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL)
        found |= strstr(line, "/libgdrapi.so") != NULL;
    fclose(maps);
    return found;
}

static void find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name);
    CHECK(*(void **)function != NULL);
}

/* Opens and closes the driver through a library that was just loaded. */
static void use(void *library)
{
    gdr_t (*open_driver)(void);
    int (*close_driver)(gdr_t);
    int (*get_attribute)(gdr_t, gdr_attr_t, int *);
    void (*get_version)(int *, int *);
    int major = 0, minor = 0, value = -1;
    gdr_t g;

    find(library, "gdr_open", &open_driver);
    find(library, "gdr_close", &close_driver);
    find(library, "gdr_get_attribute", &get_attribute);
    find(library, "gdr_runtime_get_version", &get_version);
    get_version(&major, &minor);
    CHECK_EQUAL(major, 2);
    g = open_driver();
    CHECK(g != NULL);
    CHECK_OK(get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(close_driver(g));
    CHECK_ERROR(close_driver(g), EINVAL);
}

static void loads_and_unloads(const char *name, int mode)
{
    int descriptors = open_descriptors(), threads = process_threads(), i;

    for (i = 0; i < 20; i++) {
        void *library = dlopen(name, mode);
        size_t f;

        if (library == NULL)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(library != NULL);
        CHECK(is_loaded());
        for (f = 0; f < sizeof(public_functions) / sizeof(public_functions[0]); f++)
            CHECK(dlsym(library, public_functions[f]) != NULL);
        use(library);
        if (getenv("GDRCOPY_SUSPEND") == NULL)
            CHECK_EQUAL(process_threads(), threads);
        else
            RESUME();
        CHECK(dlclose(library) == 0);
        CHECK(!is_loaded());
        CHECK_EQUAL(connect_to_listener(getpid()) == -1, 1);
        CHECK_EQUAL(open_descriptors(), descriptors);
    }
}

/* Communication libraries in one process load the same file by different names. */
static void both_names_are_one_library(void)
{
    void *development = dlopen("libgdrapi.so", RTLD_NOW), *runtime = dlopen("libgdrapi.so.2", RTLD_LAZY);

    CHECK(development != NULL && runtime != NULL);
    CHECK(dlsym(development, "gdr_open") == dlsym(runtime, "gdr_open"));
    CHECK(dlclose(development) == 0);
    use(runtime);
    CHECK(dlclose(runtime) == 0);
    CHECK(!is_loaded());
}

int main(void)
{
    CHECK(!is_loaded());
    loads_and_unloads("libgdrapi.so", RTLD_NOW);
    loads_and_unloads("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
    loads_and_unloads("libgdrapi.so", RTLD_LAZY | RTLD_GLOBAL);
    loads_and_unloads("libgdrapi.so.2", RTLD_LAZY);
    both_names_are_one_library();
    setenv("GDRCOPY_SUSPEND", "1", 1); /* unloading ends the listener */
    loads_and_unloads("libgdrapi.so", RTLD_NOW);
    both_names_are_one_library();
    return passed("dlopen");
}
