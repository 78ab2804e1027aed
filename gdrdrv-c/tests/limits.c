/*
 * Tests of the module's limits. The parameters max_pins and max_pinned_mib limit each process, over all its opens of
 * the device. max_pins_per_user and max_pinned_mib_per_user limit each user. A pin beyond a limit fails with ENOMEM,
 * and /proc/driver/gdrdrv/params counts it. Whatever ends a pin makes room for another.
 *
 * usage: limits [rounds]
 */

#include "device.h"

#define LIMIT 5
#define MIB (1ULL << 20)

static struct gpu_memory memory; /* 1 MiB */
static int fd;
static long rounds_wanted;

static void set_limits(unsigned int pins, unsigned int mib, unsigned int pins_per_user, unsigned int mib_per_user)
{
    set_parameter("gdrdrv", "max_pins", pins);
    set_parameter("gdrdrv", "max_pinned_mib", mib);
    set_parameter("gdrdrv", "max_pins_per_user", pins_per_user);
    set_parameter("gdrdrv", "max_pinned_mib_per_user", mib_per_user);
}

static void remove_limits(void)
{
    if (getuid() != 0)
        return;
    set_limits(0, 0, 0, 0);
    set_parameter("emugpu", "bar1_pages", 0);
}

static void begin(uint64_t bytes)
{
    memory = gpu_alloc(bytes);
    fd = driver_open();
}

/* Returns the number of pins that limits have refused. */
static long refused(void)
{
    const char *line = strstr(file_text(PARAMS), "\nPins refused by limits: ");

    CHECK(line != NULL);
    return atol(strchr(line, ':') + 1);
}

/* Makes `count` pins, of one GPU page each. */
static void pin_pages(int file, uint64_t *handles, int count)
{
    for (int i = 0; i < count; i++)
        CHECK_OK(pin(file, memory.va + (uint64_t)i * GPU_PAGE, GPU_PAGE, &handles[i]));
}

static void check_full(int file)
{
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = memory.va, .size = GPU_PAGE, .handle = 77};
    long before = page_tables();
    uint64_t none = 77;

    CHECK_ERROR(pin(file, memory.va, GPU_PAGE, &none), ENOMEM);
    CHECK_ERROR(command(file, GDRDRV_IOC_PIN_BUFFER_V2, &v2), ENOMEM);
    CHECK(none == 77 && v2.handle == 77);
    CHECK_EQUAL(page_tables(), before);
}

static void check_room_for_one(void)
{
    uint64_t handle;

    pin_pages(fd, &handle, 1);
    check_full(fd);
    CHECK_OK(unpin(fd, handle));
}

static void opens_share_the_limit(void)
{
    uint64_t handles[LIMIT];

    begin(MIB);
    int other = driver_open();
    pin_pages(fd, handles, 2);
    pin_pages(other, handles + 2, LIMIT - 2);
    check_full(fd);
    check_full(other);
    CHECK_OK(unpin(fd, handles[0]));
    check_room_for_one();

    /* While a mapping exists, its file stays open even without a descriptor, and the pins of the file stay, too. */
    unsigned char *va = mapped(fd, handles[1], GPU_PAGE);
    CHECK(close(fd) == 0);
    fd = driver_open();
    check_room_for_one();
    CHECK(close(other) == 0);
    pin_pages(fd, handles, LIMIT - 1);
    check_full(fd);
    CHECK(close(fd) == 0);
    CHECK(munmap(va, GPU_PAGE) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

/* Pins that fail do not count: neither those that the GPU driver refuses, nor those whose handle cannot be returned. */
static void failed_pins_do_not_count(void)
{
    struct gdrdrv_pin_buffer *argument = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t handles[LIMIT], handle;

    begin(MIB);
    CHECK(argument != MAP_FAILED);
    argument->addr = memory.va;
    argument->size = GPU_PAGE;
    CHECK(mprotect(argument, PAGE, PROT_READ) == 0);
    for (int i = 0; i < 2 * LIMIT; i++) {
        CHECK_ERROR(pin(fd, memory.va - GPU_PAGE, GPU_PAGE, &handle), EINVAL);
        CHECK_ERROR(pin(fd, memory.va, 1ULL << 63, &handle), EINVAL);
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, NULL), EFAULT);
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, argument), EFAULT);
        gpu_inject((struct emugpu_inject){.nth = 1, .error = EIO});
        CHECK_ERROR(pin(fd, memory.va, GPU_PAGE, &handle), EIO);
        CHECK_ERROR(unpin(fd, 12345), EINVAL);
    }
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
}

static void freed_memory_makes_room_by_unpin(void)
{
    uint64_t handles[LIMIT];

    begin(MIB);
    pin_pages(fd, handles, LIMIT);
    gpu_renew(memory);
    for (int i = 0; i < LIMIT; i++)
        CHECK_OK(unpin(fd, handles[i]));
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
}

static void fill_up(void)
{
    uint64_t handles[LIMIT];

    begin(MIB);
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
}

static void processes_are_limited_separately(void)
{
    fill_up();
    for (int i = 0; i < 3; i++)
        in_child(fill_up);
    check_full(fd);
}

/* A round pins until a limit refuses a pin, and then unpins all. Adds rounds if none of those wanted has made a pin. */
static void *pinner(void *unused)
{
    uint64_t handles[2 * LIMIT];
    int count, error = 0, most = 0;

    (void)unused;
    for (long round = 0; round < rounds_wanted || most == 0; round++) {
        for (count = 0; count < 2 * LIMIT; count++) {
            error = pin(fd, memory.va, GPU_PAGE, &handles[count]);
            if (error)
                break;
        }
        CHECK_ERROR(error, ENOMEM);
        CHECK(page_tables() <= LIMIT);
        most = count > most ? count : most;
        while (count > 0)
            CHECK_OK(unpin(fd, handles[--count]));
    }
    return NULL;
}

static void threads_share_the_limit(void)
{
    uint64_t handles[LIMIT];

    begin(MIB);
    run_on(0);
    pthread_t thread = started_on(1, pinner, NULL);
    (void)pinner(NULL);
    finish_thread(thread);
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
}

static void limited_number(void)
{
    drop_privileges();
    in_child(failed_pins_do_not_count);
    in_child(freed_memory_makes_room_by_unpin);
    in_child(processes_are_limited_separately);
    in_child(threads_share_the_limit);
    in_child(opens_share_the_limit);
}

/* The limit counts whole GPU pages, and counts a page each time that it is pinned. */
static void limited_memory(void)
{
    uint64_t handles[MIB / GDRDRV_GPU_PAGE_SIZE], whole;
    unsigned int pages = MIB / GDRDRV_GPU_PAGE_SIZE;

    drop_privileges();
    begin(2 * MIB);
    CHECK_ERROR(pin(fd, memory.va, MIB + 1, &whole), ENOMEM);
    CHECK_OK(pin(fd, memory.va, MIB, &whole));
    check_full(fd);
    CHECK_OK(unpin(fd, whole));
    for (unsigned int i = 0; i < pages; i++)
        CHECK_OK(pin(fd, memory.va + 8, 16, &handles[i]));
    check_full(fd);
    CHECK_OK(unpin(fd, handles[0]));
    CHECK_ERROR(pin(fd, memory.va, 2 * GPU_PAGE, &whole), ENOMEM);
    check_room_for_one();
    CHECK(close(fd) == 0);
    fd = driver_open();
    CHECK_OK(pin(fd, memory.va, MIB, &whole));
}

static void limited_by_both(void)
{
    uint64_t handle;

    drop_privileges();
    begin(MIB);
    check_room_for_one();
    CHECK_OK(pin(fd, memory.va, MIB, &handle));
    check_full(fd);
}

/* If BAR1 is full, the GPU driver answers ENOMEM, which does not count as refused by a limit. */
static void full_bar1_is_no_limit(void)
{
    uint64_t handles[LIMIT], failed;
    long before = refused();

    begin(MIB);
    pin_pages(fd, handles, LIMIT);
    CHECK_ERROR(pin(fd, memory.va, GPU_PAGE, &failed), ENOMEM);
    CHECK_EQUAL(refused(), before);
    CHECK_OK(unpin(fd, handles[0]));
    pin_pages(fd, handles, 1);
    CHECK_EQUAL(refused(), before);
}

static int go_on[2];

/* Pins memory, and exits while a child still has copies of the descriptors of gdrdrv and of the GPU. */
static void leave_pins(void)
{
    uint64_t handles[LIMIT];

    drop_privileges();
    begin(MIB);
    pin_pages(fd, handles, LIMIT);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(go_on[1]) == 0);
        await(go_on[0]);
        _exit(0);
    }
    CHECK(close(fd) == 0);
}

static void user_has_no_room(void)
{
    drop_privileges();
    begin(MIB);
    check_full(fd);
}

/* Returns how many lines about this user's refused pins the kernel has logged since `log` was opened. */
static int lines_about(int log, uid_t user)
{
    char line[8192], wanted[32];
    ssize_t length;
    int lines = 0;

    snprintf(wanted, sizeof(wanted), "uid %u, may not pin", user);
    while ((length = read(log, line, sizeof(line) - 1)) > 0) {
        line[length] = '\0';
        lines += strstr(line, wanted) != NULL;
    }
    return lines;
}

static uid_t refused_user;

static void refused_often(void)
{
    uint64_t handle;

    CHECK(setuid(refused_user) == 0);
    begin(2 * MIB);
    for (int i = 0; i < 100; i++)
        CHECK_ERROR(pin(fd, memory.va, MIB + 1, &handle), ENOMEM);
}

/* A user's refused pins have a line in the log, but not one line each. Other users' refused pins do not hide it. */
static void refusals_are_logged_for_each_user(void)
{
    for (refused_user = 4001; refused_user <= 4003; refused_user++) {
        int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);

        CHECK(log >= 0 && lseek(log, 0, SEEK_END) == 0);
        in_child(refused_often);
        int lines = lines_about(log, refused_user);
        CHECK(lines > 0);
        CHECK_COMPARE(lines, <, 100);
        CHECK(close(log) == 0);
    }
}

static void user_has_room(void)
{
    drop_privileges();
    fill_up();
}

static void pins_of_ended_processes_count_for_their_user(void)
{
    CHECK(pipe2(go_on, O_CLOEXEC) == 0);
    in_child(leave_pins);
    CHECK_EQUAL(page_tables(), LIMIT);
    long before = refused();
    in_child(user_has_no_room);
    CHECK_EQUAL(refused(), before + 2);
    in_child(fill_up); /* root can still pin, because the limit counts each user's pins separately */
    say(go_on[1]);
    while (page_tables() > 0)
        usleep(1000);
    in_child(user_has_room);
    CHECK(close(go_on[0]) == 0 && close(go_on[1]) == 0);
}

/* Makes pins, while the parent process changes the limit max_pins. */
static void limit_that_changes(void)
{
    uint64_t handles[LIMIT];

    drop_privileges();
    begin(MIB);
    pin_pages(fd, handles, LIMIT); /* there is no limit */
    next_step(); /* now the limit is 3 pins */
    check_full(fd);
    for (int i = 0; i < 3; i++)
        CHECK_OK(unpin(fd, handles[i]));
    check_room_for_one();
    next_step(); /* there is no limit again */
    pin_pages(fd, handles, LIMIT);
    CHECK_ERROR(pin(fd, memory.va, MIB + 1, handles), EINVAL); /* this is the GPU driver's error */
}

static void limits_change_while_a_process_has_pins(void)
{
    pid_t child = start_steps(limit_that_changes);
    await(steps[0]);
    set_parameter("gdrdrv", "max_pins", 3);
    say(steps[0]);
    await(steps[0]);
    set_parameter("gdrdrv", "max_pins", 0);
    say(steps[0]);
    finish_steps(child);
}

int main(int argc, char **argv)
{
    rounds_wanted = argc > 1 ? atol(argv[1]) : 500;
    atexit(remove_limits);
    remove_limits();
    limits_change_while_a_process_has_pins();
    set_limits(LIMIT, 0, 0, 0);
    in_child(limited_number);
    set_limits(0, 1, 0, 0);
    in_child(limited_memory);
    set_limits(1, 64, 0, 0); /* two limits at once */
    in_child(limited_by_both);
    set_limits(0, 0, LIMIT, 0);
    pins_of_ended_processes_count_for_their_user();
    set_limits(0, 0, 0, 1);
    in_child(limited_memory);
    refusals_are_logged_for_each_user();
    remove_limits();
    set_parameter("emugpu", "bar1_pages", LIMIT);
    in_child(full_bar1_is_no_limit);
    CHECK_EQUAL(page_tables(), 0);
    return passed("limits");
}
