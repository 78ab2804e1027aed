/* The library loaded with dlopen, by both of its names and repeatedly. It leaves nothing behind. Not linked with it. */

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

/* Opens and closes the driver through a library that was just loaded. */
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

/* The table of handles takes 128 MiB of address space. */
static void loads_and_unloads(const char *name, int mode)
{
    int descriptors = open_descriptors(), threads = process_threads();
    long size = status_kib("VmSize");

    for (int i = 0; i < 20; i++) {
        struct loaded gdr = load_gdrapi(name, mode);

        CHECK(is_loaded());
        use(&gdr);
        CHECK_EQUAL(process_threads(), threads);
        CHECK(dlclose(gdr.library) == 0);
        CHECK(!is_loaded());
        CHECK_EQUAL(open_descriptors(), descriptors);
    }
    CHECK(status_kib("VmSize") < size + 1024 * 1024);
}

/* Communication libraries in one process load the same file by different names. */
static void both_names_are_one_library(void)
{
    struct loaded development = load_gdrapi("libgdrapi.so", RTLD_NOW);
    struct loaded runtime = load_gdrapi("libgdrapi.so.2", RTLD_LAZY);

    CHECK_EQUAL(development.open, runtime.open);
    CHECK(dlclose(development.library) == 0);
    use(&runtime);
    CHECK(dlclose(runtime.library) == 0);
    CHECK(!is_loaded());
}

static struct loaded inherited;
static atomic_int ended;

static void *call_until_ended(void *unused)
{
    while (!atomic_load(&ended))
        CHECK(inherited.close(inherited.open()) == 0);
    return unused;
}

static void child_frees_what_it_made(void)
{
    long before = status_kib("VmSize");

    use(&inherited);
    CHECK(status_kib("VmSize") > before + 64 * 1024);
    CHECK(dlclose(inherited.library) == 0);
    CHECK(status_kib("VmSize") < before + 64 * 1024);
}

/* Calls that other threads of the parent process were in at the fork are none of the child's. */
static void forked_inside_of_calls(void)
{
    pthread_t thread;

    inherited = load_gdrapi("libgdrapi.so.2", RTLD_NOW);
    use(&inherited);
    thread = start_thread(call_until_ended, NULL);
    for (int i = 0; i < 20; i++)
        in_child(child_frees_what_it_made);
    atomic_store(&ended, 1);
    finish_thread(thread);
    CHECK(dlclose(inherited.library) == 0);
}

/* A program may unload the library before it has closed everything. */
static void a_connection_outlives_its_library(void)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so.2", RTLD_NOW);

    CHECK(gdr.open() != NULL);
    int held = open_descriptors();
    CHECK(dlclose(gdr.library) == 0);
    CHECK(!is_loaded());
    CHECK_EQUAL(open_descriptors(), held);
    _exit(0); /* before a leak checker looks */
}

int main(void)
{
    CHECK(!is_loaded());
    loads_and_unloads("libgdrapi.so", RTLD_NOW);
    loads_and_unloads("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
    loads_and_unloads("libgdrapi.so", RTLD_LAZY | RTLD_GLOBAL);
    loads_and_unloads("libgdrapi.so.2", RTLD_LAZY);
    both_names_are_one_library();
    if (slowness() == 1) { /* Under valgrind, what the child inherits and cannot free counts as leaked. */
        forked_inside_of_calls();
        in_child(a_connection_outlives_its_library);
    }
    return passed("dlopen");
}
