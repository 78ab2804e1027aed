/* The result of each command, and that a command which fails has done nothing. */

#include "device.h"

#include <sys/resource.h>

#define SIZE (2 * GPU_PAGE)
#define NO_GPU_MEMORY 0x100000000000ULL

static int fd;
static struct gpu_memory memory;

/* Whether pins can be forced through BAR1: persistent pins, with newer GPU drivers. */
static uint32_t can_force_pcie(void)
{
    FILE *file = fopen("/sys/module/emugpu/parameters/branch", "r");
    int branch;

    CHECK(file != NULL);
    CHECK_EQUAL(fscanf(file, "%d", &branch), 1);
    fclose(file);
    return persistent(fd) && branch >= 570;
}

static void versions_and_attributes(void)
{
    struct gdrdrv_get_version version = {0, 0};
    struct gdrdrv_get_attr attribute = {.attr = GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, .val = 77};
    char line[128] = "", wanted[64];
    FILE *params;

    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
    CHECK_EQUAL(version.gdrdrv_version, 2 << 16 | 6);
    CHECK_EQUAL(version.minimum_gdr_api_version, 2 << 16);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &attribute));
    CHECK_EQUAL(attribute.val, can_force_pcie());
    attribute.val = 77;
    for (attribute.attr = 0; attribute.attr != 6; attribute.attr += 3)
        CHECK_ERROR(command(fd, GDRDRV_IOC_GET_ATTR, &attribute), EINVAL);
    CHECK_EQUAL(attribute.val, 77);

    params = fopen("/proc/driver/gdrdrv/params", "r");
    CHECK(params != NULL);
    CHECK(fgets(line, sizeof(line), params) != NULL);
    CHECK_STRING(line, "Version: 2.6\n");
    CHECK(fgets(line, sizeof(line), params) != NULL);
    CHECK(strncmp(line, "Built for NVIDIA driver flavor: ", 32) == 0);
    CHECK(fgets(line, sizeof(line), params) != NULL);
    snprintf(wanted, sizeof(wanted), "Use persistent mapping: %s\n", persistent(fd) ? "yes" : "no");
    CHECK_STRING(line, wanted);
    CHECK(fgets(line, sizeof(line), params) != NULL);
    CHECK_STRING(line, "dbg_enabled: 0\n"); /* loaded with that value by vm/init */
    CHECK(fgets(line, sizeof(line), params) != NULL);
    CHECK(strncmp(line, "info_enabled: ", 14) == 0);
    CHECK(fgets(line, sizeof(line), params) != NULL);
    CHECK(strncmp(line, "Implementation: gdrapi gdrdrv-c ", 32) == 0);
    CHECK(fgets(line, sizeof(line), params) == NULL);
    fclose(params);
}

static void ranges(void)
{
    const struct {
        uint64_t addr, size;
        uint64_t va_offset, mapped_size; /* 0: EINVAL */
    } cases[] = {
        {0, SIZE, 0, 0},
        {memory.va, 0, 0, 0},
        {memory.va, 1, 0, GPU_PAGE},
        {memory.va, GPU_PAGE + 1, 0, SIZE},
        {memory.va + 5, 0, 0, GPU_PAGE},
        {memory.va + 5, GPU_PAGE - 5, 0, GPU_PAGE},
        {memory.va + 5, GPU_PAGE - 4, 0, SIZE},
        {memory.va + GPU_PAGE, GPU_PAGE, GPU_PAGE, GPU_PAGE},
        {memory.va, SIZE + 1, 0, 0},
        {memory.va - 1, 2, 0, 0},
        {memory.va, ~0ULL, 0, 0},
        {memory.va + 1, ~0ULL - 1, 0, 0},
        {memory.va + 5, ~0ULL - 4, 0, 0},
        {~0ULL, 1, 0, 0},
        {~0ULL, ~0ULL, 0, 0},
        {1ULL << 63, 1ULL << 63, 0, 0},
        {NO_GPU_MEMORY, SIZE, 0, 0},
        {(uint64_t)(uintptr_t)&fd, SIZE, 0, 0},
    };
    struct gdrdrv_get_info_v2 v2;
    struct gdrdrv_get_info v1;
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t handle = 77;
        int error = pin(fd, cases[i].addr, cases[i].size, &handle);

        if (error != (cases[i].mapped_size ? 0 : EINVAL)) {
            fprintf(stderr, "pin of case %zu: %s\n", i, strerror(error));
            exit(1);
        }
        if (error) {
            CHECK_EQUAL(handle, 77);
            CHECK_EQUAL(page_tables(), 0);
            continue;
        }
        CHECK_OK(info(fd, handle, &v2));
        CHECK_EQUAL(v2.va, memory.va + cases[i].va_offset);
        CHECK_EQUAL(v2.mapped_size, cases[i].mapped_size);
        CHECK_EQUAL(v2.page_size, GPU_PAGE);
        CHECK(v2.tsc_khz > 0 && v2.tm_cycles > 0);
        CHECK_EQUAL(v2.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
        v1 = (struct gdrdrv_get_info){.handle = handle, .mapped = 77, .wc_mapping = 77};
        CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &v1));
        CHECK_EQUAL(v1.va, v2.va);
        CHECK_EQUAL(v1.mapped_size, v2.mapped_size);
        CHECK_EQUAL(v1.page_size, v2.page_size);
        CHECK_EQUAL(v1.tsc_khz, v2.tsc_khz);
        CHECK_EQUAL(v1.tm_cycles, v2.tm_cycles);
        CHECK_EQUAL(v1.mapped, 0);
        CHECK_EQUAL(v1.wc_mapping, 0);
        CHECK_OK(unpin(fd, handle));
    }
}

static void flags(void)
{
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = memory.va, .size = SIZE, .handle = 77};

    for (v2.flags = 2; v2.flags != 0; v2.flags <<= 1)
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), EINVAL);
    v2.flags = GDRDRV_PIN_FLAG_FORCE_PCIE;
    if (can_force_pcie() && gpu_has("coherent")) {
        CHECK_OK(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2));
        CHECK_ERROR(request_type(fd, v2.handle, GDRDRV_MAPPING_TYPE_CACHING), EOPNOTSUPP);
        CHECK_OK(unpin(fd, v2.handle));
    } else {
        /* The GPU driver's result, where it is called: a GPU without a coherent link has only PCIe. */
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), can_force_pcie() ? 524 : EINVAL);
        CHECK_EQUAL(v2.handle, 77);
    }
    CHECK_EQUAL(page_tables(), 0);
    v2.flags = 0;
    CHECK_OK(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2));
    CHECK_OK(unpin(fd, v2.handle));
}

static void handles_are_page_offsets(void)
{
    int mine = driver_open();
    uint64_t handle, failed;

    CHECK_OK(pin(mine, memory.va, SIZE, &handle));
    CHECK_EQUAL(handle, 0);
    CHECK_ERROR(pin(mine, NO_GPU_MEMORY, SIZE, &failed), EINVAL);
    CHECK_OK(pin(mine, memory.va, 1, &handle));
    CHECK_EQUAL(handle, SIZE / PAGE);
    CHECK_OK(unpin(mine, handle));
    CHECK_OK(pin(mine, memory.va, 1, &handle));
    CHECK_EQUAL(handle, (SIZE + GPU_PAGE) / PAGE);
    CHECK(close(mine) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

static void mapping(void)
{
    uint64_t handle = pinned(fd, memory), unaligned;
    struct gdrdrv_get_info_v2 v2;
    struct gdrdrv_get_info v1 = {.handle = handle};
    unsigned char *va, *other = NULL;
    off_t offset = (off_t)(handle * PAGE);
    int read_only;

    CHECK_ERROR(request_type(fd, handle, 4), EINVAL);
    CHECK_ERROR(request_type(fd, handle, ~0U), EINVAL);
    /* Not on x86, even if the GPU driver allows the CPU to cache the pages (emugpu's parameter coherent). */
    CHECK_ERROR(request_type(fd, handle, GDRDRV_MAPPING_TYPE_CACHING), EOPNOTSUPP);
    CHECK_ERROR(request_type(fd, handle, GDRDRV_MAPPING_TYPE_DEVICE), EOPNOTSUPP);
    CHECK_OK(request_type(fd, handle, GDRDRV_MAPPING_TYPE_WC));
    CHECK_OK(request_type(fd, handle, GDRDRV_MAPPING_TYPE_NONE));

    CHECK_ERROR(map(fd, handle, SIZE + 1, &other), EINVAL);
    CHECK_ERROR(map(fd, handle, ~(size_t)0, &other), ENOMEM);
    CHECK_ERROR(map(fd, handle, 0, &other), EINVAL);
    CHECK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, offset) == MAP_FAILED);
    CHECK_EQUAL(errno, EINVAL);
    CHECK_OK(info(fd, handle, &v2));
    CHECK_EQUAL(v2.mapping_type, GDRDRV_MAPPING_TYPE_NONE);

    va = mapped(fd, handle, SIZE);
    CHECK_OK(info(fd, handle, &v2));
    CHECK_EQUAL(v2.mapping_type, GDRDRV_MAPPING_TYPE_WC);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &v1));
    CHECK_EQUAL(v1.mapped, 1);
    CHECK_EQUAL(v1.wc_mapping, 1);
    CHECK_ERROR(request_type(fd, handle, GDRDRV_MAPPING_TYPE_WC), EBUSY);
    CHECK_ERROR(request_type(fd, handle, 4), EINVAL);
    CHECK_ERROR(map(fd, handle, SIZE, &other), EINVAL);
    CHECK_ERROR(map(fd, handle, SIZE, &other), EINVAL);
    CHECK_OK(unpin(fd, handle));
    CHECK_GONE(va, SIZE);
    CHECK(munmap(va, SIZE) == 0);

    CHECK_OK(pin(fd, memory.va + 8, 16, &unaligned));
    CHECK_ERROR(map(fd, unaligned, PAGE, &other), EINVAL);
    CHECK_OK(unpin(fd, unaligned));

    read_only = open(GDRDRV_DEVICE, O_RDONLY | O_CLOEXEC);
    handle = pinned(read_only, memory);
    CHECK_ERROR(map(read_only, handle, SIZE, &other), EACCES);
    va = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, read_only, (off_t)(handle * PAGE));
    CHECK(va != MAP_FAILED);
    CHECK(mprotect(va, SIZE, PROT_READ | PROT_WRITE) != 0);
    CHECK(munmap(va, SIZE) == 0);
    CHECK(close(read_only) == 0);
}

/* Arguments that cannot be read or written: a pin whose handle cannot be returned is undone. */
static void inaccessible_arguments_fail_with_efault(void)
{
    const unsigned long commands[] = {
        GDRDRV_IOC_PIN_BUFFER,    GDRDRV_IOC_UNPIN_BUFFER,     GDRDRV_IOC_GET_CB_FLAG,
        GDRDRV_IOC_GET_INFO,      GDRDRV_IOC_GET_INFO_V2,      GDRDRV_IOC_GET_ATTR,
        GDRDRV_IOC_PIN_BUFFER_V2, GDRDRV_IOC_REQ_MAPPING_TYPE, GDRDRV_IOC_GET_VERSION,
    };
    unsigned char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct gdrdrv_pin_buffer *v1 = (struct gdrdrv_pin_buffer *)page;
    struct gdrdrv_pin_buffer_v2 *v2 = (struct gdrdrv_pin_buffer_v2 *)(page + 256);
    size_t i;

    CHECK(page != MAP_FAILED);
    CHECK(munmap(page + PAGE, PAGE) == 0);
    for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        CHECK_ERROR(command(fd, commands[i], NULL), EFAULT);
        CHECK_ERROR(command(fd, commands[i], page + PAGE - 1), EFAULT);
        CHECK_ERROR(command(fd, commands[i], page + PAGE), EFAULT);
        CHECK_ERROR(command(fd, commands[i], (void *)~0xfffUL), EFAULT);
    }
    v1->addr = v2->addr = memory.va;
    v1->size = v2->size = SIZE;
    CHECK(mprotect(page, PAGE, PROT_READ) == 0);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, v1), EFAULT);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, v2), EFAULT);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(munmap(page, PAGE) == 0);
}

/* Commands without output do not write their argument: they cannot fail after they are done. */
static void commands_without_output_accept_read_only_arguments(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct gdrdrv_req_mapping_type type = {pinned(fd, memory), GDRDRV_MAPPING_TYPE_WC};

    CHECK(page != MAP_FAILED);
    memcpy(page, &type, sizeof(type));
    CHECK(mprotect(page, PAGE, PROT_READ) == 0);
    CHECK_OK(command(fd, GDRDRV_IOC_REQ_MAPPING_TYPE, page));
    CHECK_OK(command(fd, GDRDRV_IOC_UNPIN_BUFFER, page)); /* its handle is also the first field */
    CHECK_EQUAL(page_tables(), 0);
    CHECK(munmap(page, PAGE) == 0);
}

/* GET_VERSION has no input: a page of its own is written, not read first, which would be one fault more. */
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

/* An unpin that fails in the GPU driver: the process loses the pin, and the table is freed with the memory. */
static void failed_unpin_ends_the_pin_for_the_process(void)
{
    struct gpu_memory mine = gpu_alloc(SIZE);
    uint64_t handle = pinned(fd, mine);
    unsigned char *va = mapped(fd, handle, SIZE);

    gpu_fail_put(ENOMEM);
    CHECK_OK(unpin(fd, handle));
    CHECK_GONE(va, SIZE);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
    CHECK_EQUAL(page_tables(), 1);
    gpu_free(mine);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(munmap(va, SIZE) == 0);
}

/* Numbers that encode the sizes of the structs, and others close to the real ones. */
static void unknown_commands(void)
{
    const unsigned long numbers[] = {
        0,
        _IOWR(GDRDRV_IOC_MAGIC, 0, void *),
        _IOWR(GDRDRV_IOC_MAGIC, 9, void *),
        _IOWR(GDRDRV_IOC_MAGIC, 254, void *),
        _IOWR(GDRDRV_IOC_MAGIC, 4, struct gdrdrv_get_info),
        _IOWR(GDRDRV_IOC_MAGIC, 1, void *),
        _IOR(GDRDRV_IOC_MAGIC, 255, void *),
        _IO(GDRDRV_IOC_MAGIC, 255),
        _IOWR(GDRDRV_IOC_MAGIC + 1, 255, void *),
    };
    unsigned char argument[64] = {0};
    size_t i;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        CHECK_ERROR(command(fd, numbers[i], argument), ENOTTY);
}

static void dbg_enabled_logs_every_command(void)
{
    struct gdrdrv_get_version version;
    char line[8192];
    int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK), calls = 200, traced = 0, i;
    ssize_t length;

    CHECK(log >= 0 && lseek(log, 0, SEEK_END) == 0);
    set_parameter("dbg_enabled", 1);
    for (i = 0; i < calls; i++)
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
    size_t i;

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
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
    catch_faults();
    fd = driver_open();
    memory = gpu_alloc(SIZE);
    versions_and_attributes();
    ranges();
    flags();
    handles_are_page_offsets();
    mapping();
    inaccessible_arguments_fail_with_efault();
    commands_without_output_accept_read_only_arguments();
    get_version_only_writes_its_argument();
    if (!persistent(fd)) /* persistent pins have no callback, and keep their memory */
        failed_unpin_ends_the_pin_for_the_process();
    unknown_commands();
    dbg_enabled_logs_every_command();
    errors_of_the_gpu_driver_are_passed_on();
    CHECK_EQUAL(page_tables(), 0);
    return passed("answers");
}
