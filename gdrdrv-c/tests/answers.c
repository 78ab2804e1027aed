/*
 * Tests of results and access rights that only this module has, or that need a GPU driver which fails on demand. The
 * results of all commands are tested in gdrdrv-c/contract.
 */

#include "device.h"
#include "process.h"

#include <sys/resource.h>
#include <sys/stat.h>

#define SIZE (2 * GPU_PAGE)
#define OURS 0x11

static int fd;
static struct gpu_memory memory;

/* Returns whether pins can be forced through BAR1: only persistent ones can, since branch 570 of the GPU driver. */
static uint32_t can_force_pcie(void)
{
    return persistent(fd) && atoi(parameter("emugpu", "branch")) >= 570;
}

/*
 * Once a non-persistent pin has succeeded, the module stays loaded, and this test would show nothing. So run.sh begins
 * with this program.
 */
static void failed_pins_do_not_keep_the_module(void)
{
    int references = atoi(file_text("/sys/module/gdrdrv/refcnt"));
    uint64_t handle;

    CHECK_ERROR(pin(fd, memory.va - GPU_PAGE, GPU_PAGE, &handle), EINVAL);
    CHECK_EQUAL(atoi(file_text("/sys/module/gdrdrv/refcnt")), references);
}

/* Checks lines that gdrdrv-c/contract ignores, because other modules do not have them. */
static void params_name_the_implementation(void)
{
    const char *text = file_text(PARAMS);

    CHECK(strstr(text, "\ndbg_enabled: 0\n") != NULL); /* vm/init sets it to 0 after loading the module */
    CHECK(strstr(text, "\nImplementation: gdrapi gdrdrv-c ") != NULL);
}

static unsigned int rights_of_others;

static void open_unprivileged(void)
{
    drop_privileges();
    int fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);
    CHECK_EQUAL(fd < 0 ? errno : 0, (rights_of_others & 06) == 06 ? 0 : EACCES);
}

/* The mode decides whether unprivileged users can open the device. */
static void node_has_the_mode_of_the_parameter(void)
{
    struct stat node;

    CHECK(stat(GDRDRV_DEVICE, &node) == 0);
    CHECK_EQUAL(node.st_mode & 07777, atoi(parameter("gdrdrv", "mode")));
    CHECK_EQUAL(node.st_uid, 0);
    rights_of_others = node.st_mode & 07;
    in_child(open_unprivileged);
}

/* Also checks the other flags of a mapping: the kernel must not grow it, share it with children, or dump it. */
static void nothing_is_executable(void)
{
    const int executable[] = {PROT_EXEC, PROT_READ | PROT_EXEC, PROT_WRITE | PROT_EXEC,
                              PROT_READ | PROT_WRITE | PROT_EXEC};
    const char *const has[] = {"rd", "wr", "sh", "mr", "mw", "io", "pf", "dc", "de", "dd"};
    uint64_t handle = pinned(fd, memory);
    struct gdrdrv_get_info_v2 i;

    memset(memory.view, OURS, SIZE);
    for (size_t at = 0; at < sizeof(executable) / sizeof(executable[0]); at++) {
        CHECK(mmap(NULL, SIZE, executable[at], MAP_SHARED, fd, (off_t)(handle * PAGE)) == MAP_FAILED);
        CHECK_EQUAL(errno, EACCES);
        CHECK_OK(info(fd, handle, &i));
        CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    }

    unsigned char *va = mapped(fd, handle, SIZE);
    for (size_t at = 0; at < sizeof(has) / sizeof(has[0]); at++)
        CHECK(has_flag(va, has[at]));
    CHECK(!has_flag(va, " ex") && !has_flag(va, " me"));
    for (size_t at = 0; at < sizeof(executable) / sizeof(executable[0]); at++) {
        CHECK(mprotect(va, SIZE, executable[at]) != 0);
        CHECK_EQUAL(errno, EACCES);
        CHECK(mprotect(va + GPU_PAGE, PAGE, executable[at]) != 0);
        CHECK_EQUAL(errno, EACCES);
    }
    CHECK_PAGES(va, SIZE, OURS);
    CHECK(mprotect(va, SIZE, PROT_NONE) == 0);
    CHECK(mprotect(va, SIZE, PROT_READ | PROT_WRITE) == 0);
    va[SIZE - 1] = OURS + 1;
    CHECK_EQUAL(memory.view[SIZE - 1], OURS + 1);
    CHECK_OK(unpin(fd, handle));
    CHECK(munmap(va, SIZE) == 0);
}

/* Makes a PIN_BUFFER and a PIN_BUFFER_V2, which must fail. Returns how many bytes the GPU driver allocated for both. */
static uint64_t allocated(uint64_t addr, uint64_t size)
{
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = addr, .size = size};
    uint64_t before = gpu_status().unchecked_bytes, handle;

    CHECK_ERROR(pin(fd, addr, size, &handle), EINVAL);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), EINVAL);
    return gpu_status().unchecked_bytes - before;
}

/*
 * The module refuses sizes larger than the largest BAR of any GPU (here, of the emulated one) before it calls the GPU
 * driver. emugpu counts the bytes that it allocates before it checks a range: 16 for each 64 KiB. So a call of the GPU
 * driver would change the count.
 */
static void larger_sizes_than_any_bar_allocate_nothing(void)
{
    const uint64_t largest = gpu_status().bytes;
    const uint64_t sizes[] = {
        largest + 1,   largest + GPU_PAGE, 2 * largest, 1ULL << 40, 0x32000000000,
        1ULL << 48,    (1ULL << 48) + GPU_PAGE, 1ULL << 62,  1ULL << 63, ~0ULL - (1ULL << 47),
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        CHECK_EQUAL(allocated(memory.va, sizes[i]), 0);
    CHECK_EQUAL(allocated(memory.va + 1, largest), 0); /* rounded out, the range has one GPU page more */
    CHECK_EQUAL(allocated(memory.va, 3 * GPU_PAGE), 2 * 3 * 16);
    CHECK_EQUAL(allocated(memory.va, largest), 2 * largest / GPU_PAGE * 16);
}

/* The module returns the error of the GPU driver, which is 524 (Linux's ENOTSUPP) for a GPU that has only PCIe. */
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

/* GET_VERSION has no input. If it read its argument before writing it, a new page would take two page faults. */
static void get_version_only_writes_its_argument(void)
{
    unsigned char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rusage before, after;

    CHECK(pages != MAP_FAILED);
    CHECK(madvise(pages, 2 * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, pages)); /* a first call may have page faults in the code, too */
    CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, pages + PAGE));
    CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
    CHECK_EQUAL(after.ru_minflt, before.ru_minflt + 1);
    CHECK(munmap(pages, 2 * PAGE) == 0);
}

static void dbg_enabled_logs_every_command(void)
{
    struct gdrdrv_get_version version;
    char line[8192];
    int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK), calls = 200, traced = 0;
    ssize_t length;

    CHECK(log >= 0 && lseek(log, 0, SEEK_END) == 0);
    set_parameter("gdrdrv", "dbg_enabled", 1);
    for (int i = 0; i < calls; i++)
        CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
    set_parameter("gdrdrv", "dbg_enabled", 0);
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
    failed_pins_do_not_keep_the_module();
    params_name_the_implementation();
    node_has_the_mode_of_the_parameter();
    nothing_is_executable();
    larger_sizes_than_any_bar_allocate_nothing();
    force_pcie_is_passed_on();
    get_version_only_writes_its_argument();
    dbg_enabled_logs_every_command();
    errors_of_the_gpu_driver_are_passed_on();
    CHECK_EQUAL(page_tables(), 0);
    return passed("answers");
}
