/* Lists the intended differences between implementations and releases of /dev/gdrdrv. No other file states them. */
#include "contract.h"

#include <dlfcn.h>

#define ALL (GDRDRV_C | NVIDIA | GDREMU | DEFECTS)
#define EMULATED (GDREMU | DEFECTS)
#define THEIRS (NVIDIA | EMULATED)
#define DEFECTIVE (NVIDIA | DEFECTS)
#define NEWEST ~0U

static const struct difference {
    const char *what; /* the situation, as a case passes it to expected() */
    int who;
    unsigned int from, to; /* the result is that of the releases 2.`from` to 2.`to` */
    long expected;
} differences[] = {
    /* Results that only some releases have. commands.c lists since which release each command exists. */
    {"GET_CB_FLAG by another thread of the owner", ALL, 0, 0, EACCES},
    {"pins of less than a page have handles of their own", ALL, 0, 3, 0},
    {"pins are whole GPU pages", ALL, 0, 4, ANY}, /* 2.4.2 rounds sizes up, but 2.4.1 does not, and both report 2.4 */
    {"a free marks the pin unmapped", ALL, 0, 2, 0},
    {"/proc/driver/gdrdrv exists", ALL, 0, 4, 0},

    /* NVIDIA's gdrdrv has these defects. */
    {"GET_INFO of a handle that no pin has", DEFECTIVE, 0, NEWEST, 0}, /* GET_INFO reports the oldest pin */
    {"munmap after UNPIN leaves the oldest pin mapped", DEFECTIVE, 4, NEWEST, 0},
    {"a second mmap leaves the pin mapped", DEFECTIVE, 0, NEWEST, 0},
    {"UNPIN ends a mapping that mprotect has cut", NVIDIA, 0, NEWEST, 0}, /* gdremu does not emulate mprotect */

    /* Here gdrdrv-c is stricter than the other implementations. */
    {"a pin is mapped while a part of its mapping is", THEIRS, 0, NEWEST, 0},
    {"mmap with PROT_EXEC", THEIRS, 0, NEWEST, 0},
    {"pins of an owner that has exited", THEIRS, 0, NEWEST, 1}, /* the pins end with the last copy of the descriptor */
    {"open of other minors", THEIRS, 0, NEWEST, ANY},

    /* Here gdrdrv-c is more lenient than the other implementations. */
    {"PIN_BUFFER with tokens that no process has", THEIRS, 0, NEWEST, ANY}, /* the GPU driver chooses the error */

    /* NVIDIA's gdrdrv also differs in these results. */
    {"ioctl of another type", NVIDIA, 0, NEWEST, EINVAL},
    {"mmap with MAP_PRIVATE", NVIDIA, 0, NEWEST, ANY}, /* 0 for one contiguous run of pages, EAGAIN for several */
    {"mode of nv_get_pages_refcount", NVIDIA, 0, NEWEST, 0440},

    /* gdremu cannot emulate these results, or they depend on its options. */
    {"GET_VERSION by the owner after exec", EMULATED, 0, NEWEST, EACCES},
    {"the device is no file", EMULATED, 0, NEWEST, 0},
    {"first handle", EMULATED, 0, NEWEST, ANY},                /* depends on --handle-base */
    {"default mapping type on x86", EMULATED, 0, NEWEST, ANY}, /* depends on --platform */
};

static unsigned int minor(void)
{
    static unsigned int minor = NEWEST;
    struct gdrdrv_get_version version;

    if (minor == NEWEST) {
        int fd = driver_open();

        CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
        CHECK(close(fd) == 0);
        CHECK_EQUAL(version.gdrdrv_version >> 16, 2);
        minor = version.gdrdrv_version & 0xffff;
    }
    return minor;
}

bool since(unsigned int wanted)
{
    return minor() >= wanted;
}

static bool is_gdrdrv_c(void)
{
    return access(PARAMS, F_OK) == 0 && strstr(file_text(PARAMS), "gdrdrv-c") != NULL;
}

/* Returns the name of the provider that gdremu's option --provider has chosen, or NULL without gdremu. */
static const char *gdremu_provider(void)
{
    const char *(*provider)(void);

    *(void **)&provider = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return provider == NULL ? NULL : provider();
}

void waive_over_bar1(const char *why)
{
    const char *provider = gdremu_provider();

    if (provider != NULL && strcmp(provider, "nvidia") == 0)
        waive(why);
}

static enum implementation detected(void)
{
    static const struct {
        const char *name;
        enum implementation is;
    } names[] = {{"gdrdrv-c", GDRDRV_C}, {"nvidia", NVIDIA}, {"gdremu", GDREMU}, {"gdremu-defects", DEFECTS}};
    const char *set = getenv("GDRDRV_IMPLEMENTATION"), *provider = gdremu_provider();

    for (size_t i = 0; set != NULL && i < COUNT(names); i++)
        if (strcmp(set, names[i].name) == 0)
            return names[i].is;
    CHECK(set == NULL); /* GDRDRV_IMPLEMENTATION must be gdrdrv-c, nvidia, gdremu or gdremu-defects */
    if (provider != NULL && strcmp(provider, "emugpu") != 0)
        return GDREMU;
    return is_gdrdrv_c() ? GDRDRV_C : NVIDIA;
}

enum implementation implementation(void)
{
    static enum implementation is;

    if (is == 0)
        is = detected();
    return is;
}

long expected(const char *what, long contract)
{
    bool known = false;

    for (size_t i = 0; i < COUNT(differences); i++) {
        const struct difference *d = &differences[i];

        if (strcmp(d->what, what) != 0)
            continue;
        known = true;
        if (d->who & implementation() && minor() >= d->from && minor() <= d->to)
            return d->expected;
    }
    CHECK(known); /* if this fails, the table has no line for `what` */
    return contract;
}
