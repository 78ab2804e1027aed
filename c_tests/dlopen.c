/* Loads the library with dlopen, by both of its names and repeatedly. The library must never be unmapped, and loading
   it again must take no resources. This program is not linked with the library. */

#include "loaded.h"
#include "process.h"

#include <stdatomic.h>

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

/* Opens and closes the driver through a loaded library. */
static void use(const struct loaded *gdr)
{
    int major = 0, minor = 0, value = -1;

    gdr->runtime_get_version(&major, &minor);
    CHECK_EQUAL(major, 2);
    gdr_t g = gdr->open();
    CHECK(g != NULL);
    CHECK_OK(gdr->get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr->close(g));
    CHECK_ERROR(gdr->close(g), EINVAL);
}

/* Repeated loads add no descriptor, thread, mapping or address space, except that libc may add two small mappings. */
static void loads_cost_nothing(const char *name, int mode)
{
    int descriptors = open_descriptors();
    int threads = process_threads();
    int before = mappings();
    long size = status_kib("VmSize");

    for (long i = rounds(3000); i > 0; i--) {
        struct loaded gdr = load_gdrapi(name, mode);

        use(&gdr);
        CHECK(dlclose(gdr.library) == 0);
        CHECK_EQUAL(open_descriptors(), descriptors);
    }
    CHECK(is_loaded());
    CHECK_EQUAL(process_threads(), threads);
    if (!memory_is_its_own())
        return;
    CHECK_COMPARE(mappings(), <=, before + 2);
    CHECK_COMPARE(status_kib("VmSize"), <, size + 1024);
}

/* Communication libraries in one process may load libgdrapi by different names. All must get the same library. */
static void both_names_are_one_library(void)
{
    struct loaded development = load_gdrapi("libgdrapi.so", RTLD_NOW);
    struct loaded runtime = load_gdrapi("libgdrapi.so.2", RTLD_LAZY);

    CHECK_EQUAL(development.open, runtime.open);
    CHECK(dlclose(development.library) == 0);
    use(&runtime);
    CHECK(dlclose(runtime.library) == 0);
}

/* The library's functions and handles stay valid after dlclose, because other threads may be copying. */
static void handles_outlive_dlclose(void)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so.2", RTLD_NOW);
    int value = -1;
    gdr_t g = gdr.open();

    CHECK(g != NULL);
    CHECK(dlclose(gdr.library) == 0);
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    struct loaded again = load_gdrapi("libgdrapi.so.2", RTLD_NOW);
    CHECK_OK(again.close(g));
    CHECK(dlclose(again.library) == 0);
}

static struct loaded inherited;
static atomic_int ended;

static void *call_until_ended(void *unused)
{
    while (!atomic_load(&ended))
        CHECK(inherited.close(inherited.open()) == 0);
    return unused;
}

static void child_uses_and_unloads(void)
{
    use(&inherited);
    CHECK(dlclose(inherited.library) == 0);
    use(&inherited);
}

static void forked_inside_of_calls(void)
{
    pthread_t thread;

    inherited = load_gdrapi("libgdrapi.so.2", RTLD_NOW);
    use(&inherited);
    thread = start_thread(call_until_ended, NULL);
    for (int i = 0; i < 20; i++)
        in_child(child_uses_and_unloads);
    atomic_store(&ended, 1);
    finish_thread(thread);
    CHECK(dlclose(inherited.library) == 0);
}

int main(void)
{
    CHECK(!is_loaded());
    both_names_are_one_library(); /* first, because loads_cost_nothing must not count memory of the first gdr_open */
    loads_cost_nothing("libgdrapi.so", RTLD_NOW);
    loads_cost_nothing("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
    loads_cost_nothing("libgdrapi.so", RTLD_LAZY | RTLD_GLOBAL);
    loads_cost_nothing("libgdrapi.so.2", RTLD_LAZY);
    handles_outlive_dlclose();
    if (slowness() == 1) /* Not under valgrind, which would report inherited memory as a leak of the child. */
        forked_inside_of_calls();
    return passed("dlopen");
}
