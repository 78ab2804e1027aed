/*
 * GDRCOPY_SUSPEND=1: what is pinned and mapped is taken out of the driver's hands on request, and comes back at the same
 * addresses.
 */

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"
#include "newer_driver.h"
#include "suspension.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define PINS 8
#define SIZE (3 * GPU_PAGE_SIZE)

static gdr_t g;
static struct gpu_buffer buffers[PINS];

/* A buffer, and what the program expects of it. */
static struct mapped {
    gdr_mh_t handle;
    unsigned char *va;
    CUdeviceptr address; /* of the first mapped byte */
    size_t size;
    gdr_mapping_type_t type;
} pins[PINS];

/* Makes pins of both kinds of memory, mapped in whole and in part, unaligned, and with a type that is asked for. */
static void pin_all(void)
{
    g = open_driver();
    for (int i = 0; i < PINS; i++) {
        struct mapped *it = &pins[i];
        size_t offset = i % 4 == 3 ? GPU_PAGE_SIZE + 100 : 0;
        gdr_map_flags_t flag = GDR_MAP_FLAG_DEFAULT;
        void *va;

        buffers[i] = gpu_alloc(i % 2 == 0 ? MEM_ALLOC : MEM_CREATE, SIZE);
        it->handle = pin(g, buffers[i].address + offset, SIZE - GPU_PAGE_SIZE - offset);
        it->size = i % 4 == 1 ? 100 : SIZE - 2 * GPU_PAGE_SIZE - 100;
        if (i % 4 == 2 && driver_is_at_least(g, 2, 5))
            flag = GDR_MAP_FLAG_REQ_WC_MAPPING; /* not the default where that is cached */
        if (gdr_map_v2(g, it->handle, &va, it->size, flag) != 0)
            CHECK_OK(gdr_map_v2(g, it->handle, &va, it->size, GDR_MAP_FLAG_DEFAULT));
        it->va = va;
        it->address = info_of(g, it->handle).va;
        it->type = info_of(g, it->handle).mapping_type;
    }
}

static void unpin_all(void)
{
    CHECK_OK(gdr_close(g));
    for (int i = 0; i < PINS; i++)
        gpu_free(&buffers[i]);
}

/* Writes through the mapping arrive at the GPU, and the other way round. */
static void check_contents(const struct mapped *it, unsigned seed)
{
    unsigned char data[1000], seen[1000];
    size_t size = it->size < sizeof(data) ? it->size : sizeof(data);

    fill(data, size, seed);
    CHECK_OK(gdr_copy_to_mapping(it->handle, it->va, data, size));
    CHECK_OK(gdr_copy_from_mapping(it->handle, seen, it->va, size)); /* it has arrived */
    gpu_read(seen, it->address, size);
    CHECK_BYTES(seen, data, size);
    fill(data, size, seed + 1);
    gpu_write(it->address, data, size);
    CHECK_OK(gdr_copy_from_mapping(it->handle, seen, it->va, size));
    CHECK_BYTES(seen, data, size);
}

static void check_pins(unsigned seed)
{
    for (int i = 0; i < PINS; i++) {
        CHECK_EQUAL(info_of(g, pins[i].handle).mapping_type, pins[i].type);
        CHECK_EQUAL(info_of(g, pins[i].handle).va, pins[i].address);
        check_contents(&pins[i], seed + 2 * (unsigned)i);
    }
}

/* The signals that this thread of the process blocks. */
static unsigned long long blocked_by(const char *thread)
{
    unsigned long long blocked = 0;
    char line[300];

    snprintf(line, sizeof(line), "/proc/self/task/%s/status", thread);
    FILE *file = fopen(line, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "SigBlk: %llx", &blocked);
    fclose(file);
    return blocked;
}

/* The number of threads that may run a handler of these signals. */
static int threads_that_handle_signals(void)
{
    const unsigned long long all = 1ULL << (SIGTERM - 1) | 1ULL << (SIGINT - 1) | 1ULL << (SIGUSR1 - 1) | 1ULL << (SIGALRM - 1);
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL)
        count += entry->d_name[0] != '.' && (blocked_by(entry->d_name) & all) != all;
    closedir(tasks);
    return count;
}

/* ThreadSanitizer refuses a thread in a child that has the number of one of the parent's. */
#ifdef __SANITIZE_THREAD__
static const int threads_in_children = 0;
#else
static const int threads_in_children = 1;
#endif

/* Before the listener was started. */
static int handling_threads;

static void without_the_variable_no_one_listens(void)
{
    int before = open_descriptors(), threads_before = process_threads();

    unsetenv("GDRCOPY_SUSPEND");
    g = open_driver();
    CHECK_EQUAL(connect_to_listener(getpid()) == -1, 1);
    CHECK_EQUAL(process_threads(), threads_before);
    handling_threads = threads_that_handle_signals();
    CHECK_OK(gdr_close(g));
    CHECK_EQUAL(open_descriptors(), before);
    setenv("GDRCOPY_SUSPEND", "1", 1);
}

static void a_process_with_nothing_open_can_be_suspended(void)
{
    CHECK_OK(gdr_close(open_driver()));
    RESUME(); /* has no effect */
    SUSPEND();
    CHECK_STRING(request(getpid(), "suspend"), "suspended already");
    CHECK(gdr_open() == NULL);
    CHECK_EQUAL(errno, EBUSY);
    RESUME();
    RESUME();
    CHECK_OK(gdr_close(open_driver()));
}

static void the_listener_handles_no_signals(void)
{
    CHECK_EQUAL(threads_that_handle_signals(), handling_threads);
}

static void other_requests_are_refused(void)
{
    CHECK(strstr(request(getpid(), "suspended"), "update one of") != NULL);
    CHECK(strstr(request(getpid(), "a word that is longer than any"), "update one of") != NULL);
    CHECK_OK(gdr_close(open_driver()));
}

/* The descriptor of the socket of the listener of this process, which may have inherited another. */
static int listening_descriptor(void)
{
    struct sockaddr_un address;
    char name[30];
    int descriptor;

    snprintf(name, sizeof(name), "gdrcopy-suspend-%d-", (int)getpid());
    for (descriptor = 0;; descriptor++) {
        socklen_t len = sizeof(address);

        CHECK(descriptor < 1000);
        if (getsockname(descriptor, (struct sockaddr *)&address, &len) == 0 && address.sun_family == AF_UNIX &&
            len > sizeof(sa_family_t) && strncmp(address.sun_path + 1, name, strlen(name)) == 0)
            return descriptor;
    }
}

static void another_takes_names(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int taken[100], i;

    for (i = 0; i < 100; i++) {
        int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "gdrcopy-suspend-%d-%d", (int)getpid(), i);

        taken[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(bind(taken[i], (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0);
    }
    CHECK_OK(gdr_close(open_driver()));
    for (i = 0; i < 100; i++)
        close(taken[i]);
    CHECK(listening_descriptor() >= 0);
    end_child();
}

static void names_that_are_taken_are_no_obstacle(void)
{
    in_child(another_takes_names);
}

/* Clients wait for one another. */
static void clients_that_have_gone_are_not_served(void)
{
    gdr_info_t info;
    int first, second;

    pin_all();
    first = connect_to_listener(getpid());
    second = connect_to_listener(getpid());
    CHECK_EQUAL(write(second, "suspend", 7), 7);
    close(second);
    close(first);
    CHECK(strstr(request(getpid(), "the word after it"), "update one of") != NULL);
    CHECK_OK(gdr_get_info(g, pins[0].handle, &info));
    unpin_all();
}

static void waits(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause();
}

/* Connects, until it is accepted. */
static int connect_and_wait(void)
{
    int client;

    while (served_connections() > 0)
        ;
    client = connect_to_listener(getpid());
    while (served_connections() == 0)
        ;
    return client;
}

/* A forked child has the connection as well. */
static void children_do_not_keep_the_answer(void)
{
    struct pollfd ended = {.events = POLLIN};
    pid_t child;

    CHECK_OK(gdr_close(open_driver()));
    RESUME();
    ended.fd = connect_and_wait();
    child = start_child(waits);
    CHECK_EQUAL(write(ended.fd, "resume", 6), 6);
    CHECK_EQUAL(poll(&ended, 1, -1), 1);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    close(ended.fd);
}

static int pair[2];

static void closes_all_descriptors(void)
{
    CHECK_OK(gdr_close(open_driver()));
    RESUME();
    usleep(10000); /* The listener waits again. */
    CHECK(dup2(pair[0], listening_descriptor()) >= 0);
    exit(0);
}

/* Programs that close all descriptors go on with the same numbers, and end. */
static void another_file_with_the_number_of_the_socket_stays_as_it_is(void)
{
    char byte = 0;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    in_child(closes_all_descriptors);
    CHECK_EQUAL(write(pair[1], "a", 1), 1);
    CHECK_EQUAL(read(pair[0], &byte, 1), 1);
    close(pair[0]);
    close(pair[1]);
}

static void *pins_one(void *address)
{
    gdr_mh_t handle;

    gdr_pin_buffer(g, *(CUdeviceptr *)address, GPU_PAGE_SIZE, 0, 0, &handle);
    return NULL;
}

static void ends_while_a_suspension_waits(void)
{
    static CUdeviceptr address = GPU_PAGE_SIZE;
    int client;

    g = open_driver();
    is_stuck = 1;
    start_thread(pins_one, &address);
    while (is_stuck != 2)
        ;
    client = connect_to_listener(getpid());
    CHECK_EQUAL(write(client, "suspend", 7), 7);
    usleep(100000); /* The listener waits for the call. */
    exit(0);
}

static void the_end_of_a_process_does_not_wait_for_calls(void)
{
    gdr_t own = open_driver();
    int is_driver = !uses_dmabuf(own);

    CHECK_OK(gdr_close(own));
    if (is_driver)
        in_child(ends_while_a_suspension_waits);
}

static pid_t target;

static void another_user(void)
{
    CHECK_EQUAL(setuid(65534), 0);
    CHECK(strstr(request(target, "suspend"), "belongs to another user") != NULL);
}

static void other_users_are_refused(void)
{
    target = getpid();
    if (geteuid() == 0)
        in_child(another_user);
    CHECK_OK(gdr_close(open_driver()));
}

static void from_outside(void)
{
    char byte;

    CHECK_EQUAL(setuid(1), 0);
    CHECK_EQUAL(read(pair[0], &byte, 1), 1);
    CHECK(strstr(request(getppid(), "suspend"), "belongs to another user") != NULL);
    _exit(0);
}

/* There the process and all other users have the same number. */
static void in_a_user_namespace(void)
{
    pid_t other;
    int status;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0)
        from_outside();
    if (unshare(CLONE_NEWUSER) == 0) {
        gdr_t own = open_driver();

        CHECK_EQUAL(write(pair[1], "a", 1), 1);
        CHECK(waitpid(other, &status, 0) == other);
        CHECK_EQUAL(status, 0);
        CHECK_OK(gdr_close(own));
    } else {
        kill(other, SIGKILL);
    }
    end_child();
}

static void users_outside_of_the_namespace_are_refused(void)
{
    if (geteuid() == 0)
        in_child(in_a_user_namespace);
}

/* With gdrdrv 2.0, which changes nothing. */
static int a_thread_is_refused(void)
{
    pin_all();
    int is_refused = !uses_dmabuf(g) && !driver_is_at_least(g, 2, 1);
    if (is_refused) {
        CHECK(strstr(request(getpid(), "suspend"), "serves only") != NULL);
        check_pins(1);
    }
    unpin_all();
    return is_refused;
}

static void suspended_mappings_fault_and_come_back(void)
{
    pin_all();
    check_pins(1);
    while (served_connections() > 0)
        ;
    int before = open_descriptors();
    int held = driver_descriptors();
    for (long round = 0; round < rounds(100); round++) {
        unsigned char last;

        fill(&last, 1, (unsigned)round);
        gpu_write(pins[0].address, &last, 1);
        SUSPEND();
        CHECK_EQUAL(driver_descriptors(), 0);
        for (int i = 0; i < PINS; i++) {
            CHECK_EQUAL(fault_at(pins[i].va), SIGSEGV);
            CHECK_EQUAL(fault_at(pins[i].va + pins[i].size - 1), SIGSEGV);
            check_new_mappings_avoid(pins[i].va);
        }
        if (round == 0)
            CHECK_STRING(request(getpid(), "suspend"), "suspended already");
        RESUME();
        if (round == 0)
            RESUME();
        CHECK_EQUAL(*(volatile unsigned char *)pins[0].va, last);
        check_pins((unsigned)round);
    }
    while (served_connections() > 0)
        ;
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_EQUAL(driver_descriptors(), held);
    unpin_all();
}

static void calls_while_suspended(void)
{
    int major, minor, value, flag;
    gdr_mh_t handle = {0};
    gdr_info_t info;
    void *va;

    pin_all();
    CHECK_OK(gdr_unmap(g, pins[7].handle, pins[7].va, pins[7].size));
    SUSPEND();
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffers[0].address, GPU_PAGE_SIZE, 0, 0, &handle), EBUSY);
    CHECK_ERROR(gdr_map(g, pins[7].handle, &va, 1), EBUSY);
    CHECK_ERROR(gdr_get_info(g, pins[0].handle, &info), EBUSY);
    CHECK_ERROR(gdr_get_callback_flag(g, pins[0].handle, &flag), EBUSY);
    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
    CHECK_EQUAL(driver_descriptors(), 0);
    CHECK(gdr_open() == NULL);
    CHECK_EQUAL(errno, EBUSY);

    /* Calls that release need no driver. */
    CHECK_OK(gdr_unmap(g, pins[0].handle, pins[0].va, pins[0].size));
    CHECK_UNMAPPED(pins[0].va);
    CHECK_OK(gdr_unpin_buffer(g, pins[1].handle));
    CHECK_GONE(pins[1].va);
    CHECK_OK(gdr_unpin_buffer(g, pins[7].handle));
    CHECK_EQUAL(driver_descriptors(), 0);

    RESUME();
    CHECK_OK(gdr_map(g, pins[0].handle, &va, pins[0].size));
    pins[0].va = va;
    check_contents(&pins[0], 1);
    check_contents(&pins[2], 1);
    CHECK_ERROR(gdr_get_info(g, pins[1].handle, &info), EINVAL);

    SUSPEND();
    CHECK_OK(gdr_close(g));
    CHECK_GONE(pins[2].va);
    RESUME();
    CHECK_GONE(pins[2].va);
    g = open_driver();
    unpin_all();
}

static void what_cannot_be_restored_fails_by_itself(void)
{
    gdr_info_t info;
    unsigned char *own;
    void *va;
    int flag;

    pin_all();
    SUSPEND();
    gpu_free(&buffers[5]); /* its addresses are unmapped, while CUDA may keep those of cuMemAlloc */
    CHECK_OK(gdr_unmap(g, pins[2].handle, pins[2].va, 1)); /* its addresses are free */
    CHECK(munmap(host_page_of(pins[4].va), pins[4].size) == 0);
    own = mmap(pins[4].va, pins[4].size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(own == pins[4].va);
    memset(own, 7, pins[4].size);
    CHECK(strncmp(request(getpid(), "resume"), "2 pins could not be restored", 28) == 0);
    for (int i = 4; i <= 5; i++) {
        CHECK_ERROR(gdr_get_info(g, pins[i].handle, &info), EIO);
        CHECK_ERROR(gdr_get_callback_flag(g, pins[i].handle, &flag), EIO);
    }
    CHECK_EQUAL(fault_at(pins[5].va), SIGSEGV);
    CHECK_EQUAL(own[0] + own[pins[4].size - 1], 14);
    CHECK_OK(gdr_map(g, pins[2].handle, &va, pins[2].size));
    pins[2].va = va;
    for (int i = 0; i < PINS; i++)
        if (i != 4 && i != 5)
            check_contents(&pins[i], (unsigned)i);

    /* Such a pin can only be released. */
    CHECK_OK(gdr_unmap(g, pins[5].handle, pins[5].va, 1));
    CHECK_ERROR(gdr_map(g, pins[5].handle, &va, 1), EIO);
    CHECK_OK(gdr_unpin_buffer(g, pins[5].handle));
    SUSPEND();
    RESUME();
    check_contents(&pins[1], 1);
    buffers[5] = gpu_alloc(MEM_CREATE, SIZE);
    unpin_all();
}

/* A step that fails leaves everything as it was. */
static void a_suspension_that_fails_changes_nothing(void)
{
    static const char *const failures[] = {"UNPIN_BUFFER:EIO@5", "MMAP_FIXED:ENOMEM@3"};

    if (!driver_is_emulated())
        return;
    struct emulator emulator = find_emulator();
    pin_all();
    for (size_t i = 0; i < 2 - (size_t)uses_dmabuf(g); i++) {
        CHECK_EQUAL(emulator.faults_set(failures[i + (size_t)uses_dmabuf(g)]), 0);
        CHECK(strcmp(request(getpid(), "suspend"), "") != 0);
        check_pins(3);
    }
    CHECK_EQUAL(emulator.faults_set(NULL), 0);
    unpin_all();
}

/* It reports the number of pins that it could not restore. */
static void a_suspension_that_fails_may_lose_freed_memory(void)
{
    if (!driver_is_emulated())
        return;
    struct emulator emulator = find_emulator();
    pin_all();
    gpu_free(&buffers[1]); /* its addresses are unmapped */
    CHECK_EQUAL(emulator.faults_set(uses_dmabuf(g) ? "MMAP_FIXED:ENOMEM@3" : "UNPIN_BUFFER:EIO@5"), 0);
    CHECK(strstr(request(getpid(), "suspend"), "but 1 pins could not be restored") != NULL);
    CHECK_EQUAL(emulator.faults_set(NULL), 0);
    buffers[1] = gpu_alloc(MEM_CREATE, SIZE);
    unpin_all();
}

/* Where neither the unpin nor a new mapping works. */
static void a_pin_that_cannot_be_put_back_is_lost(void)
{
    gdr_info_t info;

    if (!driver_is_emulated())
        return;
    struct emulator emulator = find_emulator();
    pin_all();
    if (!uses_dmabuf(g)) {
        CHECK_EQUAL(emulator.faults_set("UNPIN_BUFFER:EIO@1,MMAP:ENOMEM"), 0);
        CHECK(strstr(request(getpid(), "suspend"), "but 1 pins could not be restored") != NULL);
        CHECK_EQUAL(emulator.faults_set(NULL), 0);
        CHECK_ERROR(gdr_get_info(g, pins[0].handle, &info), EIO);
        CHECK_EQUAL(fault_at(pins[0].va), SIGSEGV);
    }
    unpin_all();
}

static void *resumes(void *argument)
{
    RESUME();
    return argument;
}

static void *asks_for_the_first(void *is_answered)
{
    gdr_info_t info;

    CHECK_OK(gdr_get_info(g, pins[0].handle, &info));
    *(atomic_int *)is_answered = 1;
    return NULL;
}

/* Programs continue when a call succeeds. */
static void info_waits_until_all_pins_are_resumed(void)
{
    static atomic_int is_answered;
    pthread_t resuming, asking;
    int was_answered;

    pin_all();
    SUSPEND();
    if (uses_dmabuf(g)) {
        RESUME();
    } else {
        holds_pins = 1;
        resuming = start_thread(resumes, NULL);
        while (holds_pins != 3)
            usleep(1000);
        asking = start_thread(asks_for_the_first, &is_answered);
        usleep(100000);
        was_answered = is_answered;
        holds_pins = 0;
        CHECK(!was_answered);
        finish_thread(asking);
        finish_thread(resuming);
    }
    check_pins(1);
    unpin_all();
}

/* Everything stays suspended until the driver of before is there. */
static void a_resumption_without_the_driver_can_be_repeated(void)
{
    gdr_info_t info;

    if (!driver_is_emulated())
        return;
    struct emulator emulator = find_emulator();
    pin_all();
    SUSPEND();
    if (!uses_dmabuf(g)) {
        CHECK_EQUAL(emulator.faults_set("OPEN:ENOENT"), 0);
        CHECK(strstr(request(getpid(), "resume"), "ENOENT") != NULL);
        CHECK_EQUAL(emulator.faults_set(NULL), 0);
        newer = 1;
        CHECK(strstr(request(getpid(), "resume"), "not the version, that was opened first") != NULL);
        newer = 0;
        CHECK_ERROR(gdr_get_info(g, pins[0].handle, &info), EBUSY);
        CHECK_EQUAL(driver_descriptors(), 0);
    }
    RESUME();
    check_pins(13);
    unpin_all();
}

/* The addresses of mappings are checked by a file. */
static void a_resumption_without_descriptors_can_be_repeated(void)
{
    struct rlimit limit, low;
    int taken[256], client, count = 0;
    char answer[300] = "";

    pin_all();
    SUSPEND();
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    client = connect_and_wait();
    low = limit;
    low.rlim_cur = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    while ((taken[count] = dup(0)) >= 0)
        count++;
    if (!uses_dmabuf(g))
        close(taken[--count]); /* for the driver */
    CHECK_EQUAL(write(client, "resume", 6), 6);
    CHECK(read(client, answer, sizeof(answer) - 1) > 0);
    CHECK(strstr(answer, "/proc/self/maps cannot be read (EMFILE") != NULL);
    while (count > 0)
        close(taken[--count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    close(client);
    RESUME();
    check_pins(15);
    unpin_all();
}

/* Its addresses may have other memory. */
static void memory_that_was_freed_before_does_not_come_back(void)
{
    int persistent;
    gdr_info_t info;

    pin_all();
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &persistent));
    if (!persistent) {
        gpu_free(&buffers[0]);
        buffers[0] = gpu_alloc(MEM_ALLOC, SIZE);
        SUSPEND();
        CHECK(strncmp(request(getpid(), "resume"), "1 pins could not be restored", 28) == 0);
        CHECK_EQUAL(fault_at(pins[0].va), SIGSEGV);
        CHECK_ERROR(gdr_get_info(g, pins[0].handle, &info), EIO);
    }
    unpin_all();
}

static void in_a_child(void)
{
    gdr_info_t info;

    CHECK_EQUAL(connect_to_listener(getpid()) == -1, 1);
    CHECK_ERROR(gdr_get_info(g, pins[0].handle, &info), EACCES);
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EACCES);
    CHECK_OK(gdr_close(g));
    gdr_t own = open_driver(); /* The child is not suspended. */
    SUSPEND();
    RESUME();
    CHECK_OK(gdr_close(own));
    end_child();
}

static void children_are_not_suspended(void)
{
    pin_all();
    in_child(in_a_child);
    SUSPEND();
    in_child(in_a_child);
    CHECK_EQUAL(fault_at(pins[0].va), SIGSEGV);
    RESUME();
    check_pins(5);
    unpin_all();
}

static atomic_int ended;

static int is_ok_or_busy(int result)
{
    CHECK(result == 0 || result == EBUSY);
    return result == 0;
}

static void *pin_and_map(void *argument)
{
    const struct gpu_buffer *buffer = argument;

    while (!ended) {
        gdr_mh_t handle;
        gdr_info_t info;
        void *va;

        if (!is_ok_or_busy(gdr_pin_buffer(g, (unsigned long)buffer->address, SIZE, 0, 0, &handle)))
            continue;
        is_ok_or_busy(gdr_get_info(g, handle, &info));
        if (is_ok_or_busy(gdr_map(g, handle, &va, SIZE)))
            CHECK_OK(gdr_unmap(g, handle, va, SIZE));
        is_ok_or_busy(gdr_map(g, handle, &va, SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    return NULL;
}

static void *open_and_close(void *argument)
{
    while (!ended) {
        gdr_t own = gdr_open();

        CHECK(own != NULL || errno == EBUSY);
        if (own != NULL)
            CHECK_OK(gdr_close(own));
    }
    return argument;
}

static void threads_see_success_or_ebusy(void)
{
    pthread_t all[4];

    pin_all();
    ended = 0;
    for (long i = 0; i < 3; i++)
        all[i] = start_thread(pin_and_map, &buffers[i]);
    all[3] = start_thread(open_and_close, NULL);
    for (long i = 0; i < rounds(200); i++) {
        SUSPEND();
        CHECK_EQUAL(driver_descriptors(), 0);
        RESUME();
        check_contents(&pins[i % PINS], (unsigned)i);
    }
    ended = 1;
    for (long i = 0; i < 4; i++)
        finish_thread(all[i]);
    check_pins(9);
    unpin_all();
}

static double milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void a_thousand_pins(void)
{
    const long count = rounds(1000);
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    struct mapped *many = calloc((size_t)count, sizeof(*many));

    CHECK(many != NULL);
    g = open_driver();
    if (uses_dmabuf(g)) { /* each takes a descriptor */
        CHECK_OK(gdr_close(g));
        gpu_free(&buffer);
        free(many);
        return;
    }
    for (long i = 0; i < count; i++) {
        many[i].handle = pin(g, buffer.address, GPU_PAGE_SIZE);
        many[i].va = map(g, many[i].handle, GPU_PAGE_SIZE);
        many[i].address = buffer.address;
        many[i].size = GPU_PAGE_SIZE;
    }
    double start = milliseconds();
    SUSPEND();
    double suspended = milliseconds();
    RESUME();
    double resumed = milliseconds();
    printf("%ld pins: suspended in %.1f ms, resumed in %.1f ms\n", count, suspended - start, resumed - suspended);
    for (long i = 0; i < count; i += 97)
        check_contents(&many[i], (unsigned)i);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    free(many);
}

static void a_parked_connection_can_be_suspended(void)
{
    setenv("GDRCOPY_PARK", "1", 1);
    pin_all();
    SUSPEND();
    CHECK_EQUAL(driver_descriptors(), 0);
    RESUME();
    check_pins(11);
    unpin_all();
    g = open_driver();
    SUSPEND();
    RESUME();
    CHECK_EQUAL(driver_descriptors(), 0);
    CHECK_OK(gdr_close(g));
    unsetenv("GDRCOPY_PARK");
}

/* ---- NVIDIA's checkpoints ---- */

#define CHECKPOINTS 3

/* The CPU sees the bytes that check_pins left. */
static void check_kept(unsigned seed)
{
    unsigned char data[1000], seen[1000];

    for (int i = 0; i < PINS; i++) {
        size_t size = pins[i].size < sizeof(data) ? pins[i].size : sizeof(data);

        fill(data, size, seed + 2 * (unsigned)i + 1);
        CHECK_OK(gdr_copy_from_mapping(pins[i].handle, seen, pins[i].va, size));
        CHECK_BYTES(seen, data, size);
    }
}

static void is_checkpointed(void)
{
    char byte = 0;

    gpu_init();
    pin_all();
    for (unsigned round = 0; round < CHECKPOINTS; round++) {
        check_pins(round);
        CHECK_EQUAL(write(pair[1], &byte, 1), 1);
        CHECK_EQUAL(read(pair[1], &byte, 1), 1);
        check_kept(round);
    }
    unpin_all();
}

/* As cuda-checkpoint does it to another process. GPU memory is moved to host memory, and back to the same addresses. */
static void cuda_moves_the_memory_in_between(void)
{
    static const char *const steps[] = {"Lock", "Checkpoint", "Restore", "Unlock"};
    CUresult (*checkpoint[4])(int pid, void *no_options);
    char byte = 0;

    if (gpu_is_emulated())
        return;
    for (int i = 0; i < 4; i++) {
        char name[40];

        snprintf(name, sizeof(name), "cuCheckpointProcess%s", steps[i]);
        *(void **)&checkpoint[i] = dlsym(RTLD_DEFAULT, name);
        if (checkpoint[i] == NULL)
            return; /* before GPU driver 570 */
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = start_child(is_checkpointed);
    close(pair[1]); /* If the child fails, the next read does. */
    for (unsigned round = 0; round < CHECKPOINTS; round++) {
        CHECK_EQUAL(read(pair[0], &byte, 1), 1);
        CHECK_STRING(request(child, "suspend"), "");
        for (int i = 0; i < 4; i++)
            CUDA(checkpoint[i](child, NULL));
        CHECK_STRING(request(child, "resume"), "");
        CHECK_EQUAL(write(pair[0], &byte, 1), 1);
    }
    close(pair[0]);
    finish_child(child);
    printf("CUDA checkpointed a process %d times\n", CHECKPOINTS);
}

int main(void)
{
    setenv("GDRCOPY_ALLOW_UNALIGNED_MAP", "1", 1);
    setenv("GDRCOPY_SUSPEND", "1", 1);
    cuda_moves_the_memory_in_between(); /* CUDA serves no forked child. */
    gpu_init();
    without_the_variable_no_one_listens();
    a_process_with_nothing_open_can_be_suspended();
    the_listener_handles_no_signals();
    other_requests_are_refused();
    clients_that_have_gone_are_not_served();
    children_do_not_keep_the_answer();
    if (threads_in_children) {
        names_that_are_taken_are_no_obstacle();
        another_file_with_the_number_of_the_socket_stays_as_it_is();
        the_end_of_a_process_does_not_wait_for_calls();
    }
    other_users_are_refused();
    users_outside_of_the_namespace_are_refused();
    if (a_thread_is_refused())
        waive("gdrdrv 2.0 serves only the thread that opened it");
    suspended_mappings_fault_and_come_back();
    calls_while_suspended();
    what_cannot_be_restored_fails_by_itself();
    a_suspension_that_fails_changes_nothing();
    a_suspension_that_fails_may_lose_freed_memory();
    a_pin_that_cannot_be_put_back_is_lost();
    info_waits_until_all_pins_are_resumed();
    a_resumption_without_the_driver_can_be_repeated();
    a_resumption_without_descriptors_can_be_repeated();
    memory_that_was_freed_before_does_not_come_back();
    if (threads_in_children)
        children_are_not_suspended();
    threads_see_success_or_ebusy();
    a_thousand_pins();
    a_parked_connection_can_be_suspended();
    return passed("suspend");
}
