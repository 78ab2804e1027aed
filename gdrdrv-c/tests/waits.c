/*
 * Tests with a call to the GPU driver that does not return, as when a GPU hangs (emugpu's parameter `held`). During the
 * call, other processes must be able to pin, close and exit, and root must be able to unbind the driver of any device,
 * even of the GPU with the memory. Only large requests may wait, and only for large requests of the same user.
 */

#include "device.h"

#include <glob.h>
#include <libgen.h>

#define SIZE (2 * GPU_PAGE)
#define LARGE (64UL << 20) /* more than vm/modules.sh's GDR_LARGE_REQUEST */
#define LARGE_AT_A_TIME 16
#define GPU_DRIVER "/sys/bus/pci/drivers/emugpu"

/* ---- Held processes, and children that must end while a process is held ---- */

/* Holds a process: until release(), the process's pins and its mmaps of GPU memory do not return. 0 holds none. */
static void hold(pid_t process)
{
    if (getuid() == 0)
        set_parameter("emugpu", "held", (unsigned int)process);
}

static void release(void)
{
    hold(0);
}

/* Returns whether the thread is inside a function of this kernel module. */
static int is_inside(pid_t thread, const char *module)
{
    char path[64], text[8192];

    snprintf(path, sizeof(path), "/proc/%d/stack", thread);
    FILE *stack = fopen(path, "r");
    if (stack == NULL)
        return 0; /* the thread has ended */
    text[fread(text, 1, sizeof(text) - 1, stack)] = '\0';
    fclose(stack);
    return strstr(text, module) != NULL;
}

/* Returns how often the thread has given up the processor, or -1 if it has ended. */
static long switches(pid_t thread)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/status", thread);
    if (access(path, F_OK) != 0)
        return -1;
    const char *line = strstr(file_text(path), "\nvoluntary_ctxt_switches:");
    return line == NULL ? -1 : atol(strchr(line, ':') + 1);
}

/* Stores the ids of a process's threads, and returns how many there are: at most LARGE_AT_A_TIME + 1. */
static int threads_of(pid_t process, pid_t *threads)
{
    char path[64];
    glob_t tasks;

    snprintf(path, sizeof(path), "/proc/%d/task/*", process);
    CHECK(glob(path, 0, NULL, &tasks) == 0 && tasks.gl_pathc <= LARGE_AT_A_TIME + 1);
    for (size_t i = 0; i < tasks.gl_pathc; i++)
        threads[i] = atoi(basename(tasks.gl_pathv[i]));
    int count = (int)tasks.gl_pathc;
    globfree(&tasks);
    return count;
}

/* Waits until `wanted` threads of the process are inside this kernel module. */
static void await_inside(pid_t process, const char *module, int wanted)
{
    for (;;) {
        pid_t threads[LARGE_AT_A_TIME + 1];
        int inside = 0, count = threads_of(process, threads);

        for (int i = 0; i < count; i++)
            inside += is_inside(threads[i], module);
        if (inside == wanted)
            return;
        CHECK(waitpid(process, NULL, WNOHANG) == 0);
        usleep(1000);
    }
}

/* Waits for a child, and returns its status. Fails if the child hangs in gdrdrv while emugpu holds another process. */
static int end_of(pid_t child)
{
    long before = -1, now;
    int status, looks = 0;

    while (waitpid(child, &status, WNOHANG) == 0) {
        usleep(10000);
        now = switches(child);
        looks = now == before && is_inside(child, "[gdrdrv]") ? looks + 1 : 0;
        before = now;
        CHECK_COMPARE(looks, <, 500);
    }
    return status;
}

static void ends(void (*part)(void))
{
    int status = end_of(start_child(part));

    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Devices ---- */

static char drivers_file[96], device_name[32];

/* Chooses the driver's device whose file `what` in sysfs has this text. The functions below use the device. */
static void choose(const char *driver, const char *what, const char *text)
{
    char pattern[96];
    glob_t devices;
    size_t at = 0;

    snprintf(pattern, sizeof(pattern), "%s/*:*/%s", driver, what);
    CHECK(glob(pattern, 0, NULL, &devices) == 0);
    while (at < devices.gl_pathc && strcmp(file_text(devices.gl_pathv[at]), text) != 0)
        at++;
    CHECK_COMPARE(at, <, devices.gl_pathc); /* vm/run.sh must have added the device */
    snprintf(drivers_file, sizeof(drivers_file), "%s", driver);
    snprintf(device_name, sizeof(device_name), "%s", basename(dirname(devices.gl_pathv[at])));
    globfree(&devices);
}

static void write_name(const char *file)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", drivers_file, file);
    write_text(path, device_name);
}

static void give_up(void)
{
    write_name("unbind");
}

static void take_back(void)
{
    write_name("bind");
}

/* ---- Processes that must not wait ---- */

static void use_all(void)
{
    drop_privileges();
    struct gpu_memory memory = gpu_alloc(SIZE);
    int fd = driver_open();
    memset(memory.view, 0x5a, SIZE);
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, SIZE);
    CHECK_PAGES(va, SIZE, 0x5a);
    CHECK_OK(unpin(fd, handle));
    CHECK(munmap(va, SIZE) == 0);
    handle = pinned(fd, memory);
    CHECK(close(fd) == 0);
}

static void open_and_close(void)
{
    drop_privileges();
    CHECK(close(driver_open()) == 0);
}

static void exit_with_pins(void)
{
    drop_privileges();
    struct gpu_memory memory = gpu_alloc(SIZE);
    (void)pinned(driver_open(), memory);
}

static void others_go_on(void)
{
    ends(open_and_close);
    ends(use_all);
    ends(exit_with_pins);
}

/* ---- Cases ---- */

static struct gpu_memory memory;
static int fd, expected_error;

static void *pin_once(void *unused)
{
    uint64_t handle;

    CHECK_ERROR(pin(fd, memory.va, SIZE, &handle), expected_error);
    return unused;
}

/* Pins in a second thread, which emugpu holds inside the call. The main thread answers the parent. */
static void pin_and_be_held(void)
{
    drop_privileges();
    memory = gpu_alloc(SIZE);
    fd = driver_open();
    next_step();
    pthread_t thread = start_thread(pin_once, NULL);
    next_step();
    finish_thread(thread);
}

static pid_t start_held(void (*part)(void), int threads)
{
    pid_t child = start_steps(part);

    await(steps[0]);
    hold(child);
    say(steps[0]);
    await(steps[0]);
    await_inside(child, "[emugpu]", threads);
    return child;
}

static void finish_held(pid_t child)
{
    release();
    say(steps[0]);
    finish_steps(child);
    CHECK_EQUAL(page_tables(), 0);
}

/* Returns how often the GPU driver was asked for a pin. Computes it from bytes, so all pins must have SIZE bytes. */
static uint64_t requests(void)
{
    return gpu_status().unchecked_bytes / (SIZE / GPU_PAGE * 16);
}

/*
 * A device's driver is unbound while the GPU driver makes a pin. If the device may be a GPU, gdrdrv then asks the GPU
 * driver for the pin again. `wanted` is the number of requests in all.
 */
static void device_that_leaves_waits_for_no_pin(const char *driver, const char *what, const char *text, uint64_t wanted)
{
    uint64_t before = requests();

    expected_error = 0;
    choose(driver, what, text);
    pid_t child = start_held(pin_and_be_held, 1);
    ends(give_up);
    ends(take_back);
    finish_held(child);
    CHECK_EQUAL(requests() - before, wanted);
}

/* When emugpu lets the delayed pin go on, the pin fails, because the device with its memory has no driver any more. */
static void gpu_that_leaves_waits_for_no_pin_of_its_memory(void)
{
    expected_error = EINVAL;
    choose(GPU_DRIVER, "device", "0x1110\n");
    pid_t child = start_held(pin_and_be_held, 1);
    ends(give_up);
    ends(open_and_close);
    finish_held(child);
    take_back();
}

static void *map_gpu_memory(void *unused)
{
    CHECK(munmap(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, gpu(), (off_t)EMUGPU_OFFSET(memory.object)), SIZE) == 0);
    return unused;
}

static void pin_and_be_held_in_mmap(void)
{
    drop_privileges();
    memory = gpu_alloc(SIZE);
    fd = driver_open();
    (void)pinned(fd, memory);
    next_step();
    pthread_t thread = start_thread(map_gpu_memory, NULL);
    next_step();
    finish_thread(thread);
}

/* A thread that is held in mmap keeps its process's mmap_lock, like one whose page fault waits for a file system. */
static void gpu_that_leaves_waits_for_no_mmap(void)
{
    choose(GPU_DRIVER, "device", "0x1110\n");
    pid_t child = start_held(pin_and_be_held_in_mmap, 1);
    ends(give_up);
    ends(open_and_close);
    take_back();
    ends(use_all);
    finish_held(child);
}

static void *pin_too_much(void *unused)
{
    uint64_t handle;

    CHECK_ERROR(pin(fd, memory.va, LARGE, &handle), EINVAL);
    return unused;
}

static void pin_too_much_often(void)
{
    pthread_t threads[LARGE_AT_A_TIME];

    CHECK(setuid(UNPRIVILEGED) == 0);
    memory = gpu_alloc(SIZE);
    fd = driver_open();
    next_step();
    for (int i = 0; i < LARGE_AT_A_TIME; i++)
        threads[i] = start_thread(pin_too_much, NULL);
    next_step();
    for (int i = 0; i < LARGE_AT_A_TIME; i++)
        finish_thread(threads[i]);
}

static void pin_too_much_as(uid_t user)
{
    CHECK(setuid(user) == 0);
    memory = gpu_alloc(SIZE);
    fd = driver_open();
    (void)pin_too_much(NULL);
}

static void pin_too_much_as_the_same_user(void)
{
    pin_too_much_as(UNPRIVILEGED);
}

static void pin_too_much_as_another_user(void)
{
    pin_too_much_as(UNPRIVILEGED - 1);
}

/*
 * The GPU driver allocates much memory for a large request, so gdrdrv makes only a few of each user at a time. Further
 * large requests wait. A process that waits can be killed.
 */
static void large_requests_wait_only_for_the_same_user(void)
{
    pid_t child = start_held(pin_too_much_often, LARGE_AT_A_TIME);

    ends(pin_too_much_as_another_user);
    pid_t waiting = start_child(pin_too_much_as_the_same_user);
    await_inside(waiting, "[gdrdrv]", 1);
    CHECK(!is_inside(waiting, "[emugpu]"));
    CHECK(kill(waiting, SIGKILL) == 0);
    CHECK(WIFSIGNALED(end_of(waiting)));
    ends(use_all);
    finish_held(child);
}

int main(void)
{
    handle_faults();
    atexit(release);
    expected_error = 0;
    pid_t child = start_held(pin_and_be_held, 1);
    others_go_on();
    finish_held(child);
    if (strstr(file_text(PARAMS), "flavor: opensource") != NULL) { /* else gdrdrv does not notice unbound devices */
        device_that_leaves_waits_for_no_pin("/sys/bus/pci/drivers/serial", "vendor", "0x1b36\n", 1);
        device_that_leaves_waits_for_no_pin("/sys/bus/pci/drivers/virtio-pci", "device", "0x1005\n", 2);
        gpu_that_leaves_waits_for_no_pin_of_its_memory();
        gpu_that_leaves_waits_for_no_mmap();
    }
    large_requests_wait_only_for_the_same_user();
    return passed("waits");
}
