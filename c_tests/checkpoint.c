/* With what `gdrcopy checkpoint` preloads, `gdrcopy suspend` takes pins and mappings away, and resume returns them. */

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"
#include "newer_driver.h"
#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define PINS 6
#define SIZE (3 * GPU_PAGE_SIZE)

/* ---- Requests, as the tool makes them ---- */

/* The answer that a thread's name has, after its number and that of the request; NULL if it is no helper's, or none yet. */
static const char *answer_of(pid_t pid, pid_t thread, unsigned number)
{
    static __thread char name[20];
    char path[100], expected[10];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)thread);
    file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fgets(name, sizeof(name), file) != NULL);
    fclose(file);
    name[strcspn(name, "\n")] = '\0';
    snprintf(expected, sizeof(expected), "gdr%06x", (unsigned)thread);
    if (strncmp(name, expected, 9) != 0 || strlen(name) < 12)
        return NULL;
    unsigned answered;
    sscanf(name + 9, "%3x", &answered);
    return number == 0 || answered == number ? name + 12 : NULL;
}

/* The thread of a process that serves requests, or 0. */
static pid_t helper_of(pid_t pid)
{
    char path[100];
    struct dirent *entry;
    pid_t helper = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL)
        if (atoi(entry->d_name) > 0 && answer_of(pid, atoi(entry->d_name), 0) != NULL)
            helper = atoi(entry->d_name);
    closedir(tasks);
    return helper;
}

static unsigned send_request(pid_t pid, pid_t helper, char word)
{
    static atomic_uint requests;
    unsigned number = ++requests % 4095 + 1;
    siginfo_t info;

    memset(&info, 0, sizeof(info));
    info.si_code = SI_QUEUE;
    info.si_value.sival_int = (int)(number << 8) | word;
    CHECK(syscall(SYS_rt_tgsigqueueinfo, pid, helper, SIGRTMAX - 1, &info) == 0);
    return number;
}

static const char *request(pid_t pid, char word)
{
    const char *answer;
    pid_t helper = helper_of(pid);

    CHECK(helper != 0);
    unsigned number = send_request(pid, helper, word);
    while ((answer = answer_of(pid, helper, number)) == NULL)
        usleep(100);
    return answer;
}

#define SUSPEND() CHECK_STRING(request(getpid(), 's'), "ok")
#define RESUME() CHECK_STRING(request(getpid(), 'r'), "ok")

/* ---- Pins ---- */

static gdr_t g;
static int has_module; /* gdrdrv, not dma-bufs */
static struct gpu_buffer buffers[PINS];

static struct mapped {
    gdr_mh_t handle;
    unsigned char *va;
    CUdeviceptr address;
    size_t size;
    gdr_mapping_type_t type;
} pins[PINS];

static void pin_all(void)
{
    g = open_driver();
    has_module = !uses_dmabuf(g);
    for (int i = 0; i < PINS; i++) {
        struct mapped *it = &pins[i];
        gdr_map_flags_t flag = i == 2 && driver_is_at_least(g, 2, 5) ? GDR_MAP_FLAG_REQ_WC_MAPPING : GDR_MAP_FLAG_DEFAULT;
        void *va;

        buffers[i] = gpu_alloc(i % 2 == 0 ? MEM_ALLOC : MEM_CREATE, SIZE);
        it->handle = pin(g, buffers[i].address, SIZE - GPU_PAGE_SIZE);
        it->size = i % 3 == 1 ? 100 : SIZE - 2 * GPU_PAGE_SIZE - 100;
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

static void check_pin(const struct mapped *it)
{
    CHECK_EQUAL(info_of(g, it->handle).mapping_type, it->type);
    CHECK_EQUAL(info_of(g, it->handle).va, it->address);
    check_shows(it->handle, it->va, it->address, it->size);
}

static void check_pins(void)
{
    for (int i = 0; i < PINS; i++)
        check_pin(&pins[i]);
}

static void check_lost(const struct mapped *it)
{
    unsigned char byte = 9;
    gdr_info_t info;

    CHECK_ERROR(gdr_get_info(g, it->handle, &info), EIO);
    CHECK_ERROR(gdr_copy_to_mapping(it->handle, it->va, &byte, 1), EIO);
    CHECK_ERROR(gdr_copy_from_mapping(it->handle, &byte, it->va, 1), EIO);
}

/* Memory of the program in place of a mapping. */
static unsigned char *replace(const struct mapped *it)
{
    unsigned char *own = mmap(it->va, it->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    CHECK(own == it->va);
    memset(own, 7, it->size);
    return own;
}

static void check_own(const unsigned char *own, size_t size)
{
    for (size_t i = 0; i < size; i++)
        CHECK_EQUAL(own[i], 7);
}

/* Faults of the emulated driver, from now on. Returns 0 where it has none. */
static int set_faults(const char *faults)
{
    if (!driver_is_emulated() || !has_module)
        return 0;
    CHECK_EQUAL(find_emulator().faults_set(faults), 0);
    return 1;
}

/* ---- Tests ---- */

/* gdrdrv 2.0, which changes nothing. */
static int a_thread_is_refused(void)
{
    pin_all();
    int is_refused = has_module && !driver_is_at_least(g, 2, 1);
    if (is_refused) {
        CHECK_STRING(request(getpid(), 's'), "e0d"); /* EACCES */
        check_pins();
    }
    unpin_all();
    return is_refused;
}

static void mappings_fault_and_come_back(void)
{
    pin_all();
    int held = open_descriptors(), fd = *(int *)(void *)g;
    for (long round = 0; round < rounds(100); round++) {
        SUSPEND();
        CHECK_STRING(request(getpid(), 's'), "as");
        CHECK_EQUAL(*(int *)(void *)g, -1);
        CHECK(fd < 0 || fcntl(fd, F_GETFD) == -1);
        for (int i = 0; i < PINS; i++) {
            CHECK(fault_at(pins[i].va) != 0);
            CHECK(fault_at(pins[i].va + pins[i].size - 1) != 0);
            check_new_mappings_avoid(pins[i].va);
        }
        RESUME();
        RESUME();
        CHECK_EQUAL(open_descriptors(), held);
        check_pins();
    }
    unpin_all();
}

/* Releases what is where it was mapped first, and what has moved. */
static void moved_mappings_are_released(void)
{
    void *va;

    pin_all();
    SUSPEND();
    RESUME();
    CHECK_ERROR(gdr_map(g, pins[0].handle, &va, 1), EAGAIN);
    CHECK_OK(gdr_unmap(g, pins[0].handle, pins[0].va, pins[0].size));
    CHECK_UNMAPPED(pins[0].va);
    CHECK_ERROR(gdr_unmap(g, pins[0].handle, pins[0].va, pins[0].size), EINVAL);
    pins[0].va = map(g, pins[0].handle, pins[0].size);
    check_pin(&pins[0]);
    CHECK_OK(gdr_unpin_buffer(g, pins[1].handle));
    CHECK(fault_at(pins[1].va) != 0);
    check_new_mappings_avoid(pins[1].va);
    CHECK_ERROR(gdr_unpin_buffer(g, pins[1].handle), EINVAL);
    SUSPEND();
    RESUME();
    check_pin(&pins[0]);
    check_pin(&pins[2]);
    unpin_all();
    CHECK(fault_at(pins[2].va) != 0);
}

static void what_cannot_be_restored_fails_by_itself(void)
{
    void *va;

    pin_all();
    CHECK_OK(gdr_unmap(g, pins[3].handle, pins[3].va, pins[3].size));
    SUSPEND();
    gpu_free(&buffers[5]); /* its addresses are unmapped, while CUDA may keep those of cuMemAlloc */
    unsigned char *own = replace(&pins[4]);
    CHECK_STRING(request(getpid(), 'r'), "l02");
    check_lost(&pins[4]);
    check_lost(&pins[5]);
    check_own(own, pins[4].size);
    CHECK(fault_at(pins[5].va) != 0);
    pins[3].va = map(g, pins[3].handle, pins[3].size);
    for (int i = 0; i < 4; i++)
        check_pin(&pins[i]);
    CHECK_OK(gdr_unmap(g, pins[5].handle, pins[5].va, 1));
    CHECK_ERROR(gdr_map(g, pins[5].handle, &va, 1), EIO);
    CHECK_OK(gdr_unpin_buffer(g, pins[4].handle));
    SUSPEND();
    RESUME();
    buffers[5] = gpu_alloc(MEM_CREATE, SIZE);
    unpin_all();
    check_own(own, pins[4].size);
    munmap(own, pins[4].size);
}

/* The addresses stay reserved, so nothing else is mapped where a stale copy would write. */
static void a_driver_that_refuses_at_resume_leaves_the_addresses_reserved(void)
{
    pin_all();
    if (set_faults(NULL)) {
        SUSPEND();
        set_faults("MMAP:ENOMEM@2");
        CHECK_STRING(request(getpid(), 'r'), "l01");
        set_faults(NULL);
        for (int i = 0; i < PINS; i++) {
            gdr_info_t info;

            if (gdr_get_info(g, pins[i].handle, &info) == 0) {
                check_pin(&pins[i]);
                continue;
            }
            check_lost(&pins[i]);
            CHECK(fault_at(pins[i].va) != 0);
            check_new_mappings_avoid(pins[i].va);
        }
    }
    unpin_all();
}

static void replaced_memory_is_not_touched(void)
{
    pin_all();
    unsigned char *own = replace(&pins[1]);
    char *const answers[] = {"e62", "e10"}; /* EADDRINUSE, or EBUSY */
    const char *answer = request(getpid(), 's');
    CHECK(strcmp(answer, answers[0]) == 0 || strcmp(answer, answers[1]) == 0);
    check_own(own, pins[1].size);
    check_pin(&pins[0]);
    check_pin(&pins[2]);
    unpin_all();
}

static void a_suspension_that_fails_changes_nothing(void)
{
    pin_all();
    if (set_faults("UNPIN_BUFFER:EIO@4")) {
        CHECK_STRING(request(getpid(), 's'), "e05");
        set_faults(NULL);
        check_pins();
        SUSPEND();
        RESUME();
        check_pins();
    }
    unpin_all();
}

static void a_resumption_without_the_driver_can_be_repeated(void)
{
    pin_all();
    SUSPEND();
    if (set_faults("OPEN:ENOENT")) {
        CHECK_STRING(request(getpid(), 'r'), "e02");
        set_faults(NULL);
        newer = 1;
        CHECK_STRING(request(getpid(), 'r'), "e13"); /* ENODEV */
        newer = 0;
    }
    RESUME();
    check_pins();
    unpin_all();
}

/* Its addresses may have other memory. */
static void memory_that_was_freed_before_does_not_come_back(void)
{
    pin_all();
    if (!is_persistent(g)) {
        gpu_free(&buffers[0]);
        buffers[0] = gpu_alloc(MEM_ALLOC, SIZE);
        SUSPEND();
        CHECK_STRING(request(getpid(), 'r'), "l01");
        check_lost(&pins[0]);
        CHECK(fault_at(pins[0].va) != 0);
    }
    unpin_all();
}

static void a_child(void)
{
    unsigned char byte;

    CHECK_EQUAL(helper_of(getpid()), 0);
    CHECK_ERROR(gdr_copy_from_mapping(pins[0].handle, &byte, pins[0].va, 1), EACCES);
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EACCES);
    CHECK_OK(gdr_close(g));
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EINVAL);
    gdr_t own = open_driver(); /* The child is not suspended. */
    SUSPEND();
    RESUME();
    CHECK_OK(gdr_close(own));
}

static void children_are_not_suspended(void)
{
    pin_all();
    in_child(a_child);
    SUSPEND();
    in_child(a_child);
    RESUME();
    check_pins();
    unpin_all();
}

static atomic_int ended;
static atomic_long turns[4];

static void *pin_and_map(void *argument)
{
    long number = (long)argument;

    while (!ended) {
        gdr_mh_t handle = pin(g, buffers[number].address, SIZE);
        void *va = map(g, handle, SIZE);

        if (number == 0)
            CHECK_OK(gdr_unmap(g, handle, va, SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
        turns[number]++;
    }
    return NULL;
}

static void *copy(void *argument)
{
    const struct mapped *it = &pins[3];
    unsigned char sent[3000], seen[3000];

    for (unsigned seed = 0; !ended; seed++) {
        fill(sent, sizeof(sent), seed);
        CHECK_OK(gdr_copy_to_mapping(it->handle, it->va, sent, sizeof(sent)));
        CHECK_OK(gdr_copy_from_mapping(it->handle, seen, it->va, sizeof(seen)));
        CHECK_BYTES(seen, sent, sizeof(sent));
        turns[2]++;
    }
    return argument;
}

static void *fork_and_wait(void *argument)
{
    while (!ended) {
        pid_t child = fork();

        if (child == 0) {
            gdr_t own = gdr_open();

            _exit(own == NULL || gdr_close(own) != 0);
        }
        finish_child(child);
        turns[3]++;
    }
    return argument;
}

/* Calls and copies wait while the process is suspended. */
static void threads_notice_nothing(void)
{
    static void *(*const parts[])(void *) = {pin_and_map, pin_and_map, copy, fork_and_wait};
    pthread_t threads[4];

    pin_all();
    ended = 0;
    for (long i = 0; i < 4; i++)
        threads[i] = start_thread(parts[i], (void *)i);
    for (long round = 0; round < rounds(100); round++) {
        SUSPEND();
        long before[3] = {turns[0], turns[1], turns[2]};
        usleep(500);
        for (int i = 0; i < 3; i++)
            CHECK(turns[i] <= before[i] + 1); /* the call that was just over */
        RESUME();
    }
    for (int i = 0; i < 4; i++)
        while (turns[i] < 10)
            usleep(1000);
    ended = 1;
    for (int i = 0; i < 4; i++)
        finish_thread(threads[i]);
    check_pins();
    unpin_all();
}

static volatile sig_atomic_t handled;

static void copy_in_handler(int signal)
{
    unsigned char byte;

    (void)signal;
    CHECK_OK(gdr_copy_from_mapping(pins[0].handle, &byte, pins[0].va, 1));
    handled++;
}

/* Handlers may copy, whatever they interrupt, and leave copies by siglongjmp. */
static void handlers_copy(void)
{
    unsigned char bytes[100];

    pin_all();
    signal(SIGUSR1, copy_in_handler);
    for (int i = 0; i < 100; i++) {
        raise(SIGUSR1);
        CHECK_OK(gdr_copy_from_mapping(pins[1].handle, bytes, pins[1].va, sizeof(bytes)));
    }
    struct fault_handlers old = catch_faults();
    if (sigsetjmp(fault_return, 1) == 0)
        gdr_copy_from_mapping(pins[1].handle, bytes, pins[1].va - (1UL << 45), sizeof(bytes));
    release_faults(&old);
    check_pins();
    SUSPEND();
    RESUME();
    CHECK_EQUAL(handled, 100);
    unpin_all();
}

static void *call_that_hangs(void *argument)
{
    gdr_mh_t handle;

    gdr_pin_buffer(g, (unsigned long)buffers[0].address, SIZE, 0, 0, &handle);
    return argument;
}

static void hangs(void)
{
    g = open_driver();
    pid_t helper = helper_of(getpid());
    is_stuck = 1;
    start_thread(call_that_hangs, NULL);
    while (is_stuck != 2)
        ;
    unsigned first = send_request(getpid(), helper, 's');
    usleep(50000);
    CHECK(answer_of(getpid(), helper, first) == NULL);
    CHECK_STRING(request(getpid(), 'r'), "ok"); /* withdraws it */
    send_request(getpid(), helper, 's');
    exit(0);
}

static void a_call_that_hangs_holds_neither_the_end_nor_a_withdrawal(void)
{
    pin_all();
    if (has_module)
        in_child(hangs);
    unpin_all();
}

static void *opens(void *argument)
{
    open_driver();
    return argument;
}

static void main_thread_ends(void)
{
    start_thread(opens, NULL);
    pthread_exit(NULL);
}

static void closes_all_descriptors(void)
{
    g = open_driver();
    for (int fd = 3; fd < 1000; fd++)
        close(fd);
    SUSPEND();
    exit(0);
}

static void processes_end(void)
{
    in_child(main_thread_ends);
    in_child(closes_all_descriptors);
}

/* ---- NVIDIA's checkpoints ---- */

static int pair[2];

static void is_checkpointed(void)
{
    char byte = 0;

    gpu_init();
    pin_all();
    for (int round = 0; round < 3; round++) {
        check_pins();
        memset(pins[0].va, round, 100);
        CHECK_EQUAL(write(pair[1], &byte, 1), 1);
        CHECK_EQUAL(read(pair[1], &byte, 1), 1);
        for (int i = 0; i < 100; i++)
            CHECK_EQUAL(pins[0].va[i], round);
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
    for (int round = 0; round < 3; round++) {
        CHECK_EQUAL(read(pair[0], &byte, 1), 1);
        CHECK_STRING(request(child, 's'), "ok");
        for (int i = 0; i < 4; i++)
            CUDA(checkpoint[i](child, NULL));
        CHECK_STRING(request(child, 'r'), "ok");
        CHECK_EQUAL(write(pair[0], &byte, 1), 1);
    }
    close(pair[0]);
    finish_child(child);
    printf("CUDA checkpointed a process 3 times\n");
}

int main(void)
{
    cuda_moves_the_memory_in_between(); /* CUDA serves no forked child. */
    gpu_init();
    CHECK_EQUAL(helper_of(getpid()), 0);
    if (a_thread_is_refused())
        waive("gdrdrv 2.0 serves only the thread that opened it");
    mappings_fault_and_come_back();
    moved_mappings_are_released();
    what_cannot_be_restored_fails_by_itself();
    a_driver_that_refuses_at_resume_leaves_the_addresses_reserved();
    replaced_memory_is_not_touched();
    a_suspension_that_fails_changes_nothing();
    a_resumption_without_the_driver_can_be_repeated();
    memory_that_was_freed_before_does_not_come_back();
    children_are_not_suspended();
    threads_notice_nothing();
    handlers_copy();
    a_call_that_hangs_holds_neither_the_end_nor_a_withdrawal();
    processes_end();
    return passed("checkpoint");
}
