/* Tests that the library logs to stderr only if GDRCOPY_ENABLE_LOGGING is set, and only the level GDRCOPY_LOG_LEVEL and
   more severe ones. */

#include "kit/library.h"
#include "logged.h"

#include <dlfcn.h>
#include <sys/stat.h>

/* True if the dma-buf backend is in use. */
static int dmabuf;

enum level { DEBUG = 1, INFO, WARN, ERROR, LEVELS };

static const char *const prefixes[LEVELS] = {"", "DBG:  ", "INFO: ", "WARN: ", "ERR:  "};

/* The log of one run: the number of lines of each level, and the whole text. */
struct log {
    int lines[LEVELS];
    const char *text;
};

/* Makes the library log debug lines, warnings and errors. */
static void scenario(void)
{
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    gdr_t g = open_driver();
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, handle, GPU_PAGE_SIZE);
    CHECK_OK(gdr_copy_to_mapping(handle, va, "x", 1));
    CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
    va = map(g, handle, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unmap(g, handle, (char *)va + 4096, GPU_PAGE_SIZE)); /* a warning about the address */
    va = map(g, handle, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unmap(g, handle, va, 4096)); /* a warning about the size */
    CHECK_ERROR(gdr_pin_buffer(g, 0x1000, GPU_PAGE_SIZE, 0, 0, &handle), EINVAL); /* an error */
    CHECK_OK(gdr_close(g));
    CHECK_ERROR(gdr_close(g), EINVAL); /* another error */
    gpu_free(&buffer);
}

static const char *wanted_enable, *wanted_level;

static void scenario_with_variables(void)
{
    unsetenv("GDRCOPY_ENABLE_LOGGING");
    unsetenv("GDRCOPY_LOG_LEVEL");
    if (wanted_enable != NULL)
        setenv("GDRCOPY_ENABLE_LOGGING", wanted_enable, 1);
    if (wanted_level != NULL)
        setenv("GDRCOPY_LOG_LEVEL", wanted_level, 1);
    scenario();
}

static void scenario_in_child(void)
{
    in_child(scenario_with_variables);
}

/* Runs the scenario in a child with these values of GDRCOPY_ENABLE_LOGGING and GDRCOPY_LOG_LEVEL (NULL: unset), and
   returns its log. Each line must begin with the prefix of a level. */
static struct log lines_of(const char *enable, const char *level)
{
    wanted_enable = enable;
    wanted_level = level;
    struct log log = {{0}, log_of(scenario_in_child, "1")};

    for (const char *line = log.text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        int of = DEBUG;

        while (of < LEVELS && strncmp(line, prefixes[of], strlen(prefixes[of])) != 0)
            of++;
        if (of == LEVELS)
            fprintf(stderr, "no level: %s\n", line);
        CHECK_COMPARE(of, <, LEVELS);
        CHECK(strchr(line, '\n') != NULL);
        log.lines[of]++;
    }
    return log;
}

static void silent_by_default(void)
{
    CHECK_STRING(lines_of(NULL, NULL).text, "");
    CHECK_STRING(lines_of(NULL, "1").text, "");
}

/* Any value enables logging. By default, only errors are logged. */
static void errors_only_by_default(void)
{
    static const char *const on[] = {"1", "0", "yes", ""};

    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        struct log log = lines_of(on[i], NULL);

        CHECK(log.lines[ERROR] > 0);
        CHECK_EQUAL(log.lines[WARN] + log.lines[INFO] + log.lines[DEBUG], 0);
    }
    CHECK_EQUAL(lines_of("1", "nonsense").lines[WARN], 0);
    CHECK(lines_of("1", "nonsense").lines[ERROR] > 0);
}

/* gdr_unmap logs one warning for each wrong argument, and no other. */
static void wrong_unmap_arguments_log_warnings(void)
{
    struct log log = lines_of("1", "3");

    CHECK_EQUAL(log.lines[WARN], 2);
    CHECK_LOGGED(log.text, "gdr_unmap");
}

static void each_level_includes_the_more_severe_ones(void)
{
    static const char *const names[LEVELS] = {"", "1", "2", "3", "4"};

    for (int level = DEBUG; level <= ERROR; level++) {
        struct log log = lines_of("1", names[level]);

        for (int shown = DEBUG; shown <= ERROR; shown++) {
            if (shown < level)
                CHECK_EQUAL(log.lines[shown], 0);
            else if (shown != INFO) /* the scenario logs nothing at INFO */
                CHECK(log.lines[shown] > 0);
        }
    }
}

static void errors_name_the_call_and_the_cause(void)
{
    struct log log = lines_of("1", "4");

    CHECK_LOGGED(log.text, "gdr_pin_buffer");
    CHECK_LOGGED(log.text, "gdr_close");
    CHECK_LOGGED(log.text, dmabuf ? "CUDA_ERROR_INVALID_VALUE" : "EINVAL");
    CHECK_NOT_LOGGED(log.text, "flags = 0"); /* this advice is logged only after a pin with flags */
}

static void debug_level_logs_backend_version_and_mapping_type(void)
{
    struct log log = lines_of("1", "1");

    CHECK_LOGGED(log.text, dmabuf ? "backend dma-buf" : "backend gdrdrv 2.");
    CHECK_LOGGED(log.text, dmabuf ? "CUDA 1" : "2."); /* the driver's version */
    CHECK_LOGGED(log.text, " at 0x"); /* the address of a mapping */
    CHECK(strstr(log.text, "Write Combining") != NULL || strstr(log.text, "Caching") != NULL ||
          strstr(log.text, "Device") != NULL);
}

static struct gpu_buffer buffer;
static gdr_t of_parent;
static gdr_mh_t handle;

static void use_the_parents_pin(void)
{
    CHECK_ERROR(gdr_unpin_buffer(of_parent, handle), EACCES);
}

static void pin_and_fork(void)
{
    of_parent = open_driver();
    handle = pin(of_parent, buffer.address, GPU_PAGE_SIZE);
    in_child(use_the_parents_pin);
    CHECK_ERROR(gdr_copy_to_mapping(handle, &handle, &handle, 1), EINVAL);
    CHECK_ERROR(gdr_unpin_buffer((gdr_t)handle.h, (gdr_mh_t){1}), EINVAL);
    CHECK_OK(gdr_close(of_parent));
}

static int refusal; /* the error of a pin with FORCE_PCIE, or 0 */

static void pin_over_pcie(void)
{
    gdr_t g = open_driver();

    refusal = gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    if (driver_is_at_least(g, 2, 5) && refusal == EINVAL)
        refusal = 0; /* EINVAL can also have other reasons, so the log does not advise against the flag */
    CHECK_OK(gdr_close(g));
}

/* The remedies in the log also use gdrapi.h's names of functions and arguments, not only those of the Rust crate. */
static void remedies_name_functions_and_arguments(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    const char *log = log_of(pin_and_fork, "4");
    CHECK_LOGGED(log, "in C gdr_open, gdr_pin_buffer)\n");
    CHECK_LOGGED(log, "is not mapped: call gdr_map");
    CHECK_LOGGED(log, "gdr_unpin_buffer: `g` is not a live handle");
    log = log_of(pin_over_pcie, "4");
    if (refusal != 0)
        CHECK_LOGGED(log, "in C flags = 0)");
}

static void open_and_close(void)
{
    CHECK_OK(gdr_close(gdr_open()));
}

/*
 * Sets GDRCOPY_ISA to a copy routine that every CPU supports. This is too late to have an effect, because the library
 * has selected a routine. The library must not log that it does not know the routine.
 */
static void known_isa_logs_no_warning(void)
{
    unsetenv("GDRCOPY_ISA");
    open_and_close();
    setenv("GDRCOPY_ISA", "portable", 1);
    CHECK_STRING(log_of(open_and_close, "3"), "");
}

static void a_routine_is_selected_once(void)
{
    static const char selected[] = "copy routine for write-combined mappings: portable\n";

    setenv("GDRCOPY_ISA", "portable", 1);
    CHECK_LOGGED(log_of(open_and_close, "1"), selected);
    CHECK_NOT_LOGGED(log_of(open_and_close, "1"), selected);
}

/* The log must name the copy routines that the CPU supports. Every CPU supports `portable`. */
static void unknown_isa_logs_the_names_that_exist(void)
{
    static const char *const unknown[] = {"abacus", "sse4.1", "plain", ""};

    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        char begin[32];

        snprintf(begin, sizeof(begin), "GDRCOPY_ISA=%s: ", unknown[i]);
        setenv("GDRCOPY_ISA", unknown[i], 1);
        const char *log = log_of(open_and_close, "3");
        CHECK_LOGGED(log, begin);
        CHECK_LOGGED(log, "portable");
        CHECK_EQUAL(strchr(log, '\n') - log, (long)strlen(log) - 1);
    }
}

/* A line of the log has at most 1,024 bytes. The line here contains the value of GDRCOPY_ISA, which may be longer. */
static void a_long_line_is_cut_off(void)
{
    enum { MOST = 1024 };
    static char name[MOST + 1];
    size_t others = 0;

    for (size_t size = 1; size <= MOST; size += size == 1 ? 799 : 1) {
        memset(name, 'x', size);
        setenv("GDRCOPY_ISA", name, 1);
        const char *log = log_of(open_and_close, "3");
        if (size == 1)
            others = strlen(log) - size;
        int is_cut = others + size > MOST - strlen("...");
        CHECK_EQUAL(strlen(log), is_cut ? MOST : others + size);
        CHECK_EQUAL(strchr(log, '\n') - log, (long)strlen(log) - 1);
        CHECK_EQUAL(strcmp(log + strlen(log) - 4, "...\n") == 0, is_cut);
    }
}

/* If a variable is set that only earlier versions read, the library logs one line that says what to use instead. */
static void variables_that_are_gone_log_a_warning(void)
{
    static const char *const gone[][2] = {
        {"GDRCOPY_DMA_READ", "cuMemcpy"},
        {"GDRCOPY_THREADS", "cuMemcpy"},
    };

    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        setenv(gone[i][0], "1", 1);
        const char *log = log_of(open_and_close, "3");
        CHECK_LOGGED(log, gone[i][0]);
        CHECK_LOGGED(log, gone[i][1]);
        CHECK_EQUAL(strchr(log, '\n') - log, (long)strlen(log) - 1);
        unsetenv(gone[i][0]);
    }
}

/* Returns whether the path, which ends at the end of the line, names the file of the loaded library. */
static int is_this_library(const char *path)
{
    char name[4096] = "";
    struct stat named, loaded;
    Dl_info info;

    CHECK(sscanf(path, "%4095[^\n]", name) == 1);
    CHECK(dladdr((void *)(uintptr_t)gdr_open, &info) != 0);
    CHECK(stat(name, &named) == 0 && stat(info.dli_fname, &loaded) == 0);
    return named.st_dev == loaded.st_dev && named.st_ino == loaded.st_ino;
}

/* Each gdr_open logs one line at debug level. */
static void the_library_logs_its_version_and_file(void)
{
    static const char start[] = "DBG:  libgdrapi 2.6", from[] = " from /";
    const char *log = log_of(open_and_close, "1");

    CHECK_LOGGED(log, start);
    const char *line = strstr(log, start);
    CHECK_LOGGED(line, from);
    const char *path = strstr(line, from);
    CHECK_COMPARE(path, <, strchr(line, '\n'));
    CHECK(is_this_library(path + strlen(from) - 1));
    CHECK_NOT_LOGGED(path, start);
    CHECK_NOT_LOGGED(log_of(open_and_close, "2"), start);
}

int main(void)
{
    dmabuf = access("/dev/gdrdrv", R_OK | W_OK) != 0; /* not by gdr_open: tests check what its first call logs */
    in_child(known_isa_logs_no_warning);
    in_child(a_routine_is_selected_once);
    in_child(unknown_isa_logs_the_names_that_exist);
    in_child(a_long_line_is_cut_off);
    in_child(variables_that_are_gone_log_a_warning);
    in_child(the_library_logs_its_version_and_file);
    in_child(remedies_name_functions_and_arguments);
    silent_by_default();
    errors_only_by_default();
    each_level_includes_the_more_severe_ones();
    wrong_unmap_arguments_log_warnings();
    errors_name_the_call_and_the_cause();
    debug_level_logs_backend_version_and_mapping_type();
    return passed("logging");
}
