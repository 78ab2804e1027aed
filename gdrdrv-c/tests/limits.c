/*
 * The module's parameters max_pins and max_pinned_mib limit each process, over all its opens of the device, and
 * max_pins_per_user and max_pinned_mib_per_user each user. A pin beyond a limit fails with ENOMEM, and is counted in
 * `params`; whatever ends a pin makes room for another.
 *
 * usage: limits [rounds]
 */

#include "device.h"

#define LIMIT 5
#define MIB (1ULL << 20)

static struct gpu_memory memory; /* 1 MiB */
static int fd;
static long rounds_wanted;

static void remove_limits(void)
{
    if (getuid() != 0)
        return;
    set_parameter("max_pins", 0);
    set_parameter("max_pinned_mib", 0);
    set_parameter("max_pins_per_user", 0);
    set_parameter("max_pinned_mib_per_user", 0);
    set_parameter_of("emugpu", "bar1_pages", 0);
}

/* The number of pins that limits have refused. */
static long refused(void)
{
    FILE *params = fopen("/proc/driver/gdrdrv/params", "r");
    char line[128];
    long number = -1;

    CHECK(params != NULL);
    while (number < 0 && fgets(line, sizeof(line), params) != NULL)
        (void)sscanf(line, "Pins refused by limits: %ld", &number);
    CHECK(number >= 0 && fclose(params) == 0);
    return number;
}

/* Pins one GPU page `count` times. */
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
    int other = driver_open();

    pin_pages(fd, handles, 2);
    pin_pages(other, handles + 2, LIMIT - 2);
    check_full(fd);
    check_full(other);
    CHECK_OK(unpin(fd, handles[0]));
    check_room_for_one();

    /* A mapping keeps the file of a closed descriptor, and its pins. */
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
    fd = driver_open();
}

static void failed_pins_do_not_count(void)
{
    uint64_t handles[LIMIT], handle;

    for (int i = 0; i < 2 * LIMIT; i++) {
        CHECK_ERROR(pin(fd, memory.va - GPU_PAGE, GPU_PAGE, &handle), EINVAL);
        CHECK_ERROR(pin(fd, memory.va, 1ULL << 63, &handle), EINVAL);
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, NULL), EFAULT);
        gpu_inject((struct emugpu_inject){.nth = 1, .error = EIO});
        CHECK_ERROR(pin(fd, memory.va, GPU_PAGE, &handle), EIO);
    }
    for (int i = 0; i < 2 * LIMIT; i++)
        CHECK_ERROR(unpin(fd, 12345), EINVAL);
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
    CHECK(close(fd) == 0);
    fd = driver_open();
}

/* A pin whose handle cannot be returned is undone. */
static void undone_pins_do_not_count(void)
{
    struct gdrdrv_pin_buffer *argument = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(argument != MAP_FAILED);
    argument->addr = memory.va;
    argument->size = GPU_PAGE;
    CHECK(mprotect(argument, PAGE, PROT_READ) == 0);
    for (int i = 0; i < 2 * LIMIT; i++)
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, argument), EFAULT);
    CHECK(munmap(argument, PAGE) == 0);
}

static void freed_memory_makes_room_by_unpin(void)
{
    uint64_t handles[LIMIT];

    pin_pages(fd, handles, LIMIT);
    gpu_renew(memory);
    for (int i = 0; i < LIMIT; i++)
        CHECK_OK(unpin(fd, handles[i]));
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
    for (int i = 0; i < LIMIT; i++)
        CHECK_OK(unpin(fd, handles[i]));
}

static void child_has_its_own_limit(void)
{
    uint64_t handles[LIMIT];

    memory = gpu_alloc(MIB);
    fd = driver_open();
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
}

static void processes_are_limited_separately(void)
{
    uint64_t handles[LIMIT];

    pin_pages(fd, handles, LIMIT);
    for (int i = 0; i < 3; i++)
        in_child(child_has_its_own_limit);
    check_full(fd);
    for (int i = 0; i < LIMIT; i++)
        CHECK_OK(unpin(fd, handles[i]));
}

/* Pins as much as possible, at least one pin once. */
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

    run_on(0);
    pthread_t thread = started_on(1, pinner, NULL);
    (void)pinner(NULL);
    finish_thread(thread);
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
    CHECK(close(fd) == 0);
    fd = driver_open();
}

static void limited_number(void)
{
    drop_privileges();
    memory = gpu_alloc(MIB);
    fd = driver_open();
    failed_pins_do_not_count();
    undone_pins_do_not_count();
    freed_memory_makes_room_by_unpin();
    processes_are_limited_separately();
    threads_share_the_limit();
    opens_share_the_limit();
}

/* Whole GPU pages count, each time that they are pinned. */
static void limited_memory(void)
{
    uint64_t handles[MIB / GDRDRV_GPU_PAGE_SIZE], whole;
    unsigned int pages = MIB / GDRDRV_GPU_PAGE_SIZE;

    drop_privileges();
    memory = gpu_alloc(2 * MIB);
    fd = driver_open();
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
    memory = gpu_alloc(MIB);
    fd = driver_open();
    check_room_for_one();
    CHECK_OK(pin(fd, memory.va, MIB, &handle));
    check_full(fd);
}

/* The GPU driver also answers ENOMEM. */
static void full_bar1_is_no_limit(void)
{
    uint64_t handles[LIMIT], failed;
    long before = refused();

    memory = gpu_alloc(MIB);
    fd = driver_open();
    pin_pages(fd, handles, LIMIT);
    CHECK_ERROR(pin(fd, memory.va, GPU_PAGE, &failed), ENOMEM);
    CHECK_EQUAL(refused(), before);
    CHECK_OK(unpin(fd, handles[0]));
    pin_pages(fd, handles, 1);
    CHECK_EQUAL(refused(), before);
}

static int done[2], go_on[2];

/* A child has the last descriptor when the process that pinned has ended. */
static void leave_pins(void)
{
    uint64_t handles[LIMIT];

    drop_privileges();
    memory = gpu_alloc(MIB);
    fd = driver_open();
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

static void root_has_room(void)
{
    uint64_t handles[LIMIT];

    memory = gpu_alloc(MIB);
    fd = driver_open();
    pin_pages(fd, handles, LIMIT);
    check_full(fd);
}

static void user_has_no_room(void)
{
    drop_privileges();
    memory = gpu_alloc(MIB);
    fd = driver_open();
    check_full(fd);
}

static void user_has_room(void)
{
    drop_privileges();
    root_has_room();
}

static void pins_of_ended_processes_count_for_their_user(void)
{
    CHECK(pipe2(go_on, O_CLOEXEC) == 0);
    in_child(leave_pins);
    CHECK_EQUAL(page_tables(), LIMIT);
    long before = refused();
    in_child(user_has_no_room);
    CHECK_EQUAL(refused(), before + 2);
    in_child(root_has_room);
    say(go_on[1]);
    while (page_tables() > 0)
        usleep(1000);
    in_child(user_has_room);
    CHECK(close(go_on[0]) == 0 && close(go_on[1]) == 0);
}

/* Waits as the parent changes the limit. */
static void limit_that_changes(void)
{
    uint64_t handles[LIMIT];

    drop_privileges();
    memory = gpu_alloc(MIB);
    fd = driver_open();
    pin_pages(fd, handles, LIMIT); /* without a limit */
    say(done[1]);
    await(go_on[0]); /* below what is pinned */
    check_full(fd);
    for (int i = 0; i < 3; i++)
        CHECK_OK(unpin(fd, handles[i]));
    check_room_for_one();
    say(done[1]);
    await(go_on[0]); /* none again */
    pin_pages(fd, handles, LIMIT);
    CHECK_ERROR(pin(fd, memory.va, MIB + 1, handles), EINVAL); /* the GPU driver's result */
}

static void limits_change_while_a_process_has_pins(void)
{
    CHECK(pipe(done) == 0 && pipe(go_on) == 0);
    pid_t child = start_child(limit_that_changes);
    CHECK(close(done[1]) == 0);
    await(done[0]);
    set_parameter("max_pins", 3);
    say(go_on[1]);
    await(done[0]);
    set_parameter("max_pins", 0);
    say(go_on[1]);
    finish_child(child);
}

int main(int argc, char **argv)
{
    rounds_wanted = argc > 1 ? atol(argv[1]) : 500;
    atexit(remove_limits);
    remove_limits();
    limits_change_while_a_process_has_pins();
    set_parameter("max_pins", LIMIT);
    in_child(limited_number);
    set_parameter("max_pins", 0);
    set_parameter("max_pinned_mib", 1);
    in_child(limited_memory);
    set_parameter("max_pins", 1); /* both limits hold */
    set_parameter("max_pinned_mib", 64);
    in_child(limited_by_both);
    remove_limits();
    set_parameter("max_pins_per_user", LIMIT);
    pins_of_ended_processes_count_for_their_user();
    set_parameter("max_pins_per_user", 0);
    set_parameter("max_pinned_mib_per_user", 1);
    in_child(limited_memory);
    remove_limits();
    set_parameter_of("emugpu", "bar1_pages", LIMIT);
    in_child(full_bar1_is_no_limit);
    CHECK_EQUAL(page_tables(), 0);
    return passed("limits");
}
