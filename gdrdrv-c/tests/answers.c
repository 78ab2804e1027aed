/*
 * Answers of only this module, or only with a GPU driver that fails on demand. tests/gdrdrv has the results of
 * all commands.
 */

#include "device.h"

#include <sys/resource.h>

#define SIZE (2 * GPU_PAGE)

static int fd;
static struct gpu_memory memory;

/* Returns whether pins can be forced through BAR1, as persistent pins can with newer GPU drivers. */
static uint32_t can_force_pcie(void)
{
    return persistent(fd) && atoi(parameter("emugpu", "branch")) >= 570;
}

/* Lines that tests/gdrdrv ignores, because other modules have fewer. */
static void params_name_the_implementation(void)
{
    char text[512] = "";
    FILE *params = fopen("/proc/driver/gdrdrv/params", "r");

    CHECK(params != NULL);
    CHECK(fread(text, 1, sizeof(text) - 1, params) > 0);
    fclose(params);
    CHECK(strstr(text, "\ndbg_enabled: 0\n") != NULL); /* loaded with that value by vm/init */
    CHECK(strstr(text, "\nImplementation: gdrapi gdrdrv-c ") != NULL);
}

/* The GPU driver's result, where it is called. A GPU without a coherent link has only PCIe. */
static void force_pcie_is_passed_on(void)
{
    struct gdrdrv_get_attr attribute = {.attr = GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE};
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = memory.va, .size = SIZE, .flags = GDRDRV_PIN_FLAG_FORCE_PCIE};
    int error = !can_force_pcie() ? EINVAL : gpu_has("coherent") ? 0 : 524;

    CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &attribute));
    CHECK_EQUAL(attribute.val, can_force_pcie());
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), error);
    if (error == 0)
        CHECK_OK(unpin(fd, v2.handle));
    CHECK_EQUAL(page_tables(), 0);
}

/* GET_VERSION has no input, so a page of its own is written, not read first, which would be one fault more. */
static void get_version_only_writes_its_argument(void)
{
    unsigned char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rusage before, after;

    CHECK(pages != MAP_FAILED);
    CHECK(madvise(pages, 2 * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, pages)); /* whatever else is touched for the first time */
    CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, pages + PAGE));
    CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
    CHECK_EQUAL(after.ru_minflt, before.ru_minflt + 1);
    CHECK(munmap(pages, 2 * PAGE) == 0);
}

/* An unpin that fails in the GPU driver. The process loses the pin, and the table is freed with the memory. */
static void failed_unpin_ends_the_pin_for_the_process(void)
{
    struct gpu_memory mine = gpu_alloc(SIZE);
    uint64_t handle = pinned(fd, mine);
    unsigned char *va = mapped(fd, handle, SIZE);

    gpu_fail_put(ENOMEM);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
    CHECK_EQUAL(page_tables(), 1);
    gpu_free(mine);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(munmap(va, SIZE) == 0);
}

static void dbg_enabled_logs_every_command(void)
{
    struct gdrdrv_get_version version;
    char line[8192];
    int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK), calls = 200, traced = 0;
    ssize_t length;

    CHECK(log >= 0 && lseek(log, 0, SEEK_END) == 0);
    set_parameter("dbg_enabled", 1);
    for (int i = 0; i < calls; i++)
        CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
    set_parameter("dbg_enabled", 0);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
    while ((length = read(log, line, sizeof(line) - 1)) > 0) {
        line[length] = '\0';
        traced += strstr(line, "gdrdrv: command 0xc008daff: 0") != NULL;
    }
    CHECK_EQUAL(traced, calls);
    CHECK(close(log) == 0);
}

static void errors_of_the_gpu_driver_are_passed_on(void)
{
    const int errors[] = {ENOMEM, EIO, EINVAL, 524};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        uint64_t handle = pinned(fd, memory), failed = 77;

        CHECK_OK(unpin(fd, handle));
        gpu_inject((struct emugpu_inject){.nth = 2, .error = errors[i]});
        CHECK_OK(pin(fd, memory.va, SIZE, &handle));
        CHECK_ERROR(pin(fd, memory.va, SIZE, &failed), errors[i]);
        CHECK_EQUAL(failed, 77);
        CHECK_OK(unpin(fd, handle));
        CHECK_EQUAL(page_tables(), 0);
    }
}

int main(void)
{
    handle_faults();
    fd = driver_open();
    memory = gpu_alloc(SIZE);
    params_name_the_implementation();
    force_pcie_is_passed_on();
    get_version_only_writes_its_argument();
    if (!persistent(fd)) /* persistent pins have no callback, and keep their memory */
        failed_unpin_ends_the_pin_for_the_process();
    dbg_enabled_logs_every_command();
    errors_of_the_gpu_driver_are_passed_on();
    CHECK_EQUAL(page_tables(), 0);
    return passed("answers");
}
