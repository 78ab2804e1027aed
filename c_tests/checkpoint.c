/* With what `gdrcopy checkpoint` preloads, `gdrcopy suspend` takes pins and mappings away, and resume returns them. */

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"
#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define PINS 6
#define SIZE (3 * GPU_PAGE_SIZE)

/* ---- Requests, as the tool makes them ---- */

/* Returns whether the thread serves requests. Then its name has its number, that of a request, and the answer. */
static int read_answer(pid_t pid, pid_t thread, unsigned *number, char *answer)
{
    char path[100];
    unsigned own = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)thread);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0; /* It has ended. */
    int fields = fscanf(file, "gdr%6x%3x%7s", &own, number, answer);
    fclose(file);
    return fields == 3 && own == (unsigned)thread;
}

/* The thread of a process that serves requests, or 0. */
static pid_t helper_of(pid_t pid)
{
    char path[100], answer[8];
    struct dirent *entry;
    unsigned number;
    pid_t helper = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL)
        if (read_answer(pid, atoi(entry->d_name), &number, answer))
            helper = atoi(entry->d_name);
    closedir(tasks);
    return helper;
}

static unsigned send_request(pid_t pid, char word)
{
    static atomic_uint requests;
    unsigned number = ++requests % 4095 + 1;
    siginfo_t info = {.si_code = SI_QUEUE};

    info.si_value.sival_int = (int)(number << 8) | word;
    CHECK(syscall(SYS_rt_tgsigqueueinfo, pid, helper_of(pid), SIGRTMAX - 1, &info) == 0);
    return number;
}

/* Waits for the answer as long as there is the thread. */
static const char *request(pid_t pid, char word)
{
    static __thread char answer[8];
    unsigned answered, number = send_request(pid, word);
    pid_t helper = helper_of(pid);

    while (!read_answer(pid, helper, &answered, answer) || answered != number) {
        CHECK(syscall(SYS_tgkill, pid, helper, 0) == 0);
        usleep(100);
    }
    return answer;
}

static void check_unanswered(unsigned number)
{
    unsigned answered;
    char answer[8];

    usleep(20000);
    CHECK(read_answer(getpid(), helper_of(getpid()), &answered, answer));
    CHECK(answered != number);
}

#define SUSPEND() CHECK_STRING(request(getpid(), 's'), "o00")
#define RESUME() CHECK_STRING(request(getpid(), 'r'), "o00")

static void suspend_and_resume(void)
{
    SUSPEND();
    RESUME();
}

/* ---- Memory of the program, or of another of its threads ---- */

static unsigned char *own; /* all bytes are 7 */

static void take(void *address, size_t size)
{
    own = mmap(address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(own == address);
    memset(own, 7, size);
}

static void check_own(size_t size)
{
    for (size_t i = 0; i < size; i++)
        CHECK_EQUAL(own[i], 7);
}

/* ---- Functions that the object and libraries call, because symbols of programs come first ---- */

#define LOOK_UP_NEXT(name)                                                                                             \
    if (next == NULL)                                                                                                  \
        *(void **)&next = dlsym(RTLD_NEXT, name)

/* The Nth mapping of a pin from now on, of one after the other. */
static enum {
    FAILS = 1,
    UNMAPS,          /* fails, after the kernel has unmapped what was there */
    LOSES_ADDRESSES, /* the same, and another thread has taken them */
    ELSEWHERE,       /* works, at other addresses */
} refusal;
static int refused_in;

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);

    LOOK_UP_NEXT("mmap");
    if (refused_in == 0 || (flags & MAP_TYPE) != MAP_SHARED || --refused_in != 0)
        return next(address, size, protection, flags, fd, offset);
    if (refusal == UNMAPS)
        munmap(address, size);
    if (refusal == LOSES_ADDRESSES)
        take(address, size);
    if (refusal == ELSEWHERE)
        return next(NULL, size, protection, MAP_SHARED, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

/* The driver does not answer, and stores 2 here. */
static atomic_int is_stuck;

int ioctl(int fd, unsigned long command, ...)
{
    static int (*next)(int, unsigned long, ...);
    va_list list;

    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    LOOK_UP_NEXT("ioctl");
    while (is_stuck) {
        is_stuck = 2;
        usleep(1000);
    }
    return next(fd, command, argument);
}

/* ---- Pins ---- */

static gdr_t g;
static int has_module; /* gdrdrv, not dma-bufs */
static int is_flagged;   /* A mapping was made with a flag. */
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
        struct mapped *mapped = &pins[i];
        int flag = i == 2 ? GDR_MAP_FLAG_REQ_DEVICE_MAPPING : GDR_MAP_FLAG_DEFAULT; /* or the next type that there is */
        size_t size = i % 3 == 1 ? 100 : SIZE - 2 * GPU_PAGE_SIZE - 100;
        unsigned long head = i == 4 ? 5000 : 0;
        void *va;

        buffers[i] = gpu_alloc(i % 2 == 0 ? MEM_ALLOC : MEM_CREATE, SIZE);
        unsigned long address = (unsigned long)buffers[i].address + head;
        int result = i == 3 ? gdr_pin_buffer_v2(g, address, SIZE - GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &mapped->handle)
                            : gdr_pin_buffer(g, address, SIZE - GPU_PAGE_SIZE, 0, 0, &mapped->handle);
        if (result != 0) {
            head = 0; /* Another library takes only aligned ones, and no flags. */
            mapped->handle = pin(g, buffers[i].address, SIZE - GPU_PAGE_SIZE);
        }
        while (gdr_map_v2(g, mapped->handle, &va, size, flag) != 0)
            CHECK(flag-- > GDR_MAP_FLAG_DEFAULT);
        is_flagged |= flag != GDR_MAP_FLAG_DEFAULT && driver_is_at_least(g, 2, 5);
        mapped->va = va;
        mapped->address = info_of(g, mapped->handle).va;
        mapped->size = buffers[i].address + head - mapped->address + size;
        mapped->type = info_of(g, mapped->handle).mapping_type;
        if (i == 3 && result == 0 && pins[0].type == GDR_MAPPING_TYPE_CACHING)
            CHECK_EQUAL(mapped->type, GDR_MAPPING_TYPE_WC); /* The flag is passed on, here and by a resume. */
    }
}

static void unpin_all(void)
{
    CHECK_OK(gdr_close(g));
    for (int i = 0; i < PINS; i++)
        gpu_free(&buffers[i]);
}

static void check_pin(const struct mapped *mapped)
{
    CHECK_EQUAL(info_of(g, mapped->handle).mapping_type, mapped->type);
    CHECK_EQUAL(info_of(g, mapped->handle).mapped, 1);
    CHECK_EQUAL(info_of(g, mapped->handle).va, mapped->address);
    check_shows(mapped->handle, mapped->va, mapped->address, mapped->size);
}

static void check_pins(void)
{
    for (int i = 0; i < PINS; i++)
        check_pin(&pins[i]);
}

static void check_reserved(const struct mapped *mapped)
{
    CHECK(fault_at(mapped->va) != 0);
    CHECK(fault_at(mapped->va + mapped->size - 1) != 0);
    check_new_mappings_avoid(mapped->va);
}

static void check_lost(const struct mapped *mapped)
{
    unsigned char byte = 9;
    gdr_info_t info;
    int flag;

    CHECK_ERROR(gdr_get_info(g, mapped->handle, &info), EIO);
    CHECK_ERROR(gdr_get_callback_flag(g, mapped->handle, &flag), EIO);
    CHECK_ERROR(gdr_copy_to_mapping(mapped->handle, mapped->va, &byte, 1), EIO);
    CHECK_ERROR(gdr_copy_from_mapping(mapped->handle, &byte, mapped->va, 1), EIO);
}

static void check_refused(const struct mapped *mapped)
{
    CHECK_STRING(request(getpid(), 's'), "e62"); /* EADDRINUSE */
    CHECK_EQUAL(info_of(g, mapped->handle).va, mapped->address);
    check_pin(&pins[2]);
}

/* Faults of the emulated driver, from now on. Returns 0 where it has none. */
static int set_faults(const char *faults)
{
    if (!driver_is_emulated() || !has_module)
        return 0;
    CHECK_EQUAL(find_emulator().faults_set(faults), 0);
    return 1;
}

/* ---- Tests, each with new pins ---- */

static void mappings_fault_and_come_back(void)
{
    int held = open_descriptors(), fd = *(int *)(void *)g;

    for (long round = 0; round < rounds(100); round++) {
        SUSPEND();
        CHECK_STRING(request(getpid(), 's'), "a00");
        CHECK_EQUAL(*(int *)(void *)g, -1);
        CHECK(fd < 0 || fcntl(fd, F_GETFD) == -1);
        for (int i = 0; i < PINS; i++)
            check_reserved(&pins[i]);
        if (driver_is_emulated())
            find_emulator().calls_take();
        RESUME();
        CHECK(!driver_is_emulated() || !has_module || !is_flagged ||
              strstr(find_emulator().calls_take(), "REQ_MAPPING_TYPE") != NULL);
        RESUME();
        CHECK_EQUAL(open_descriptors(), held);
        check_pins();
    }
}

static void map_memory(const struct gpu_buffer *buffer)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, gpu_under_test}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    CUDA(cuMemMap(buffer->allocation, buffer->size, 0, buffer->handle, 0));
    CUDA(cuMemSetAccess(buffer->allocation, buffer->size, &access, 1));
}

/* Frees the memory at the device addresses of two pins, and gives them other memory. */
static void exchange_memory(void)
{
    CUmemGenericAllocationHandle first = buffers[1].handle;

    CUDA(cuMemUnmap(buffers[1].allocation, buffers[1].size));
    CUDA(cuMemUnmap(buffers[3].allocation, buffers[3].size));
    buffers[1].handle = buffers[3].handle;
    buffers[3].handle = first;
    map_memory(&buffers[1]);
    map_memory(&buffers[3]);
}

/* CUDA restores memory at the same device addresses, not in the same place. */
static void memory_may_be_elsewhere_each_time(void)
{
    SUSPEND();
    exchange_memory();
    RESUME();
    check_pins();
    suspend_and_resume();
    check_pins();
}

static void mappings_that_came_back_are_released(void)
{
    unsigned char byte;
    void *va;

    CHECK_ERROR(gdr_map_v2(g, pins[2].handle, &va, 1, GDR_MAP_FLAG_DEFAULT), EAGAIN);
    suspend_and_resume();
    check_pins();
    CHECK_ERROR(gdr_map(g, pins[0].handle, &va, 1), EAGAIN);
    CHECK_OK(gdr_unmap(g, pins[0].handle, pins[0].va, pins[0].size));
    CHECK_UNMAPPED(pins[0].va);
    CHECK_ERROR(gdr_unmap(g, pins[0].handle, pins[0].va, pins[0].size), EINVAL);
    pins[0].va = map(g, pins[0].handle, pins[0].size);
    check_pin(&pins[0]);
    CHECK_OK(gdr_unpin_buffer(g, pins[1].handle));
    CHECK(fault_at(pins[1].va) != 0);
    CHECK_ERROR(gdr_unpin_buffer(g, pins[1].handle), EINVAL);
    SUSPEND();
    check_reserved(&pins[2]);
    RESUME();
    check_pin(&pins[0]);
    check_pin(&pins[2]);
    CHECK_OK(gdr_close(g));
    CHECK_ERROR(gdr_copy_from_mapping(pins[2].handle, &byte, pins[2].va, 1), EINVAL);
    CHECK(fault_at(pins[2].va) != 0);
    g = open_driver();
}

static void what_cannot_be_restored_fails_by_itself(void)
{
    void *va;

    CHECK_OK(gdr_unmap(g, pins[3].handle, pins[3].va, pins[3].size));
    SUSPEND();
    gpu_free(&buffers[5]); /* its addresses are unmapped, while CUDA may keep those of cuMemAlloc */
    take(pins[4].va, pins[4].size);
    CHECK_STRING(request(getpid(), 'r'), "l02");
    check_lost(&pins[4]);
    check_lost(&pins[5]);
    CHECK(fault_at(pins[5].va) != 0);
    pins[3].va = map(g, pins[3].handle, pins[3].size);
    for (int i = 0; i < 4; i++)
        check_pin(&pins[i]);
    CHECK_OK(gdr_unmap(g, pins[5].handle, pins[5].va, 1));
    CHECK_ERROR(gdr_unmap(g, pins[5].handle, pins[5].va, 1), EINVAL);
    CHECK_ERROR(gdr_map(g, pins[5].handle, &va, 1), EIO);
    CHECK_OK(gdr_unpin_buffer(g, pins[4].handle));
    suspend_and_resume();
    buffers[5] = gpu_alloc(MEM_CREATE, SIZE);
    check_own(pins[4].size);
    munmap(own, pins[4].size);
}

/* Nothing is mapped where a stale copy would write, except by other threads, whose memory no call touches. */
static void what_is_refused_at_resume_leaves_no_hole(void)
{
    static const struct {
        const char *faults;
        int refusal;
    } refusals[] = {{"MMAP:ENOMEM@2", 0}, {NULL, FAILS}, {NULL, UNMAPS}, {NULL, LOSES_ADDRESSES}, {NULL, ELSEWHERE}};

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct mapped *lost = NULL;
        gdr_info_t info;

        if (refusals[i].faults != NULL && !set_faults(NULL))
            continue;
        SUSPEND();
        set_faults(refusals[i].faults);
        refusal = refusals[i].refusal;
        refused_in = refusal != 0 ? PINS : 0; /* the last, whose addresses no other can fill */
        CHECK_STRING(request(getpid(), 'r'), "l01");
        set_faults(NULL);
        for (int j = 0; j < PINS; j++)
            if (gdr_get_info(g, pins[j].handle, &info) != 0)
                lost = &pins[j];
            else
                check_pin(&pins[j]);
        CHECK(lost != NULL);
        check_lost(lost);
        CHECK(!driver_is_emulated() || !has_module || find_emulator().pins() == PINS - 1);
        check_new_mappings_avoid(lost->va);
        CHECK((fault_at(lost->va) == 0) == (refusals[i].refusal == LOSES_ADDRESSES));
        CHECK_OK(gdr_unmap(g, lost->handle, lost->va, lost->size));
        CHECK_OK(gdr_unpin_buffer(g, lost->handle));
        unpin_all();
        if (refusals[i].refusal == LOSES_ADDRESSES)
            check_own(lost->size);
        pin_all();
    }
}

static void a_mapping_of_another_type_is_not_restored(void)
{
    char other_type[40];

    snprintf(other_type, sizeof(other_type), "GET_INFO_V2:MAPPING_TYPE=%d", (int)pins[0].type % 3 + 1);
    if (!driver_is_at_least(g, 2, 4) || !set_faults(NULL))
        return;
    SUSPEND();
    set_faults(other_type);
    CHECK_EQUAL(request(getpid(), 'r')[0], 'l');
    set_faults(NULL);
    check_lost(&pins[0]);
    check_reserved(&pins[0]);
}

/* In its file. */
static off_t offset_of(const void *mapping)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long start = 0, offset = 0;

    while (start != (unsigned long)mapping)
        CHECK(fscanf(maps, "%lx-%*x %*s %lx%*[^\n]", &start, &offset) == 2);
    fclose(maps);
    return (off_t)offset;
}

/* Its own memory, another file or mapping, or none, in whole or in part. */
static void replaced_memory_is_not_touched(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), len = (pins[0].size + page - 1) / page * page;
    int file = memfd_create("own", MFD_CLOEXEC);
    off_t offset = offset_of(pins[1].va);

    take(pins[1].va, pins[1].size);
    check_refused(&pins[1]);
    check_own(pins[1].size);
    CHECK(mmap(pins[1].va, page, PROT_READ, MAP_SHARED | MAP_FIXED, file, offset) == pins[1].va);
    check_refused(&pins[1]);
    close(file);
    CHECK_OK(gdr_unpin_buffer(g, pins[1].handle));

    take(pins[0].va + len - page, page);
    check_refused(&pins[0]);
    check_own(page);
    munmap(own, page);
    check_refused(&pins[0]);
    CHECK_OK(gdr_unpin_buffer(g, pins[0].handle));

    gdr_mh_t other = pin(g, buffers[3].address + GPU_PAGE_SIZE, SIZE - GPU_PAGE_SIZE);
    void *va = map(g, other, pins[3].size);
    /* All have the offset 0 where gdremu maps /dev/nvidia0. */
    int is_another = !has_module || offset_of(va) != offset_of(pins[3].va);
    if (is_another)
        syscall(SYS_mremap, va, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, pins[3].va);
    CHECK_OK(gdr_unpin_buffer(g, other));
    if (is_another)
        check_refused(&pins[3]);
    CHECK_OK(gdr_unpin_buffer(g, pins[3].handle));

    suspend_and_resume();
    check_pin(&pins[2]);
}

static void a_suspension_that_fails_changes_nothing(void)
{
    for (int round = 0; round < 2; round++) {
        if (set_faults("UNPIN_BUFFER:EIO@4")) {
            CHECK_STRING(request(getpid(), 's'), "e05");
            set_faults(NULL);
            check_pins();
        }
        suspend_and_resume();
        check_pins();
    }
}

static void a_resumption_without_the_driver_can_be_repeated(void)
{
    SUSPEND();
    int held = open_descriptors();
    if (set_faults("OPEN:ENOENT")) {
        CHECK_STRING(request(getpid(), 'r'), "e02");
        set_faults(NULL);
        CHECK_EQUAL(open_descriptors(), held);
    }
    RESUME();
    check_pins();
}

static void memory_that_was_freed_before_does_not_come_back(void)
{
    if (is_persistent(g))
        return;
    exchange_memory();
    SUSPEND();
    CHECK_STRING(request(getpid(), 'r'), "l02");
    for (int i = 1; i <= 3; i += 2) {
        check_lost(&pins[i]);
        CHECK(fault_at(pins[i].va) != 0);
    }
}

static void a_failed_unpin_can_be_repeated(void)
{
    if (!set_faults("UNPIN_BUFFER:EIO@1"))
        return;
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EIO);
    set_faults(NULL);
    check_lost(&pins[0]);
    suspend_and_resume();
    CHECK_OK(gdr_unpin_buffer(g, pins[0].handle));
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EINVAL);
}

static void has_the_descriptor(void)
{
    CHECK(fcntl(*(int *)(void *)g, F_GETFD) >= 0);
}

/* Other processes may use it, by inheritance or over a socket. */
static void the_descriptor_stays_open_while_nothing_is_pinned(void)
{
    for (int i = 0; i < PINS; i++)
        CHECK_OK(gdr_unpin_buffer(g, pins[i].handle));
    for (int round = 0; round < 2 && has_module; round++) {
        in_child(has_the_descriptor);
        suspend_and_resume();
    }
}

static void a_child(void)
{
    unsigned char byte;

    CHECK_EQUAL(helper_of(getpid()), 0);
    CHECK_ERROR(gdr_copy_from_mapping(pins[0].handle, &byte, pins[0].va, 1), EACCES);
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EACCES);
    gdr_t opened = open_driver(); /* The child is not suspended. */
    CHECK_OK(gdr_close(g));
    CHECK_ERROR(gdr_unpin_buffer(g, pins[0].handle), EINVAL);
    SUSPEND();
    CHECK_EQUAL(*(int *)(void *)opened, -1);
    RESUME();
    CHECK_OK(gdr_close(opened));
}

static void children_are_not_suspended(void)
{
    in_child(a_child);
    SUSPEND();
    in_child(a_child);
    RESUME();
    check_pins();
}

static atomic_int ended;
static atomic_long turns[5];

static void pin_and_map(long number)
{
    gdr_mh_t handle = pin(g, buffers[number].address, SIZE);
    void *va = map(g, handle, SIZE);

    if (number == 0)
        CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

static void copy(long number)
{
    const struct mapped *mapped = &pins[3];
    unsigned char sent[3000], seen[3000];

    fill(sent, sizeof(sent), (unsigned)turns[number]);
    CHECK_OK(gdr_copy_to_mapping(mapped->handle, mapped->va, sent, sizeof(sent)));
    CHECK_OK(gdr_copy_from_mapping(mapped->handle, seen, mapped->va, sizeof(seen)));
    CHECK_BYTES(seen, sent, sizeof(sent));
}

static void fork_and_wait(long number)
{
    pid_t child = fork();

    (void)number;
    if (child == 0) {
        gdr_t own = gdr_open();

        _exit(own == NULL || gdr_close(own) != 0);
    }
    finish_child(child);
}

/* Gets any addresses that are free for a moment. */
static void map_and_unmap(long number)
{
    void *address = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)number;
    CHECK(address != MAP_FAILED);
    munmap(address, SIZE);
}

static void *take_turns(void *argument)
{
    static void (*const parts[])(long) = {pin_and_map, pin_and_map, copy, fork_and_wait, map_and_unmap};
    long number = (long)argument;

    for (; !ended; turns[number]++)
        parts[number](number);
    return NULL;
}

/* Calls and copies wait while the process is suspended. */
static void threads_notice_nothing(void)
{
    pthread_t threads[5];

    ended = 0;
    for (long i = 0; i < 5; i++)
        threads[i] = start_thread(take_turns, (void *)i);
    for (long round = 0; round < rounds(100); round++) {
        SUSPEND();
        long before[3] = {turns[0], turns[1], turns[2]};
        usleep(500);
        for (int i = 0; i < 3; i++)
            CHECK(turns[i] <= before[i] + 1); /* the call that was just over */
        RESUME();
    }
    for (int i = 0; i < 5; i++)
        while (turns[i] < 10)
            usleep(1000);
    ended = 1;
    for (int i = 0; i < 5; i++)
        finish_thread(threads[i]);
    check_pins();
}

static void *page;

/* Copies, while it interrupts a copy, for which a suspension waits. */
static void on_fault(int signal)
{
    unsigned char byte;

    (void)signal;
    CHECK_OK(gdr_copy_from_mapping(pins[0].handle, &byte, pins[0].va, 1));
    check_unanswered(send_request(getpid(), 's'));
    RESUME(); /* withdraws it */
    CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

/* Handlers may copy, whatever they interrupt. */
static void handlers_copy(void)
{
    struct sigaction action = {.sa_handler = on_fault};

    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaction(SIGSEGV, &action, NULL);
    CHECK_OK(gdr_copy_from_mapping(pins[1].handle, page, pins[1].va, 100));
    signal(SIGSEGV, SIG_DFL);
    munmap(page, 4096);
    suspend_and_resume();
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
    is_stuck = 1;
    start_thread(call_that_hangs, NULL);
    while (is_stuck != 2)
        ;
    check_unanswered(send_request(getpid(), 's'));
    RESUME(); /* withdraws it */
    send_request(getpid(), 's');
    exit(0);
}

static void a_call_that_hangs_holds_neither_the_end_nor_a_withdrawal(void)
{
    if (has_module)
        in_child(hangs);
}

static atomic_int handled_by;

static void on_signal(int signal)
{
    (void)signal;
    handled_by = (int)syscall(SYS_gettid);
}

/* They wait until another thread takes them. */
static void the_helper_takes_no_signals(void)
{
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    signal(SIGUSR1, on_signal);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    kill(getpid(), SIGUSR1);
    suspend_and_resume();
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    CHECK(handled_by != 0 && handled_by != helper_of(getpid()));
}

static void *opens(void *argument)
{
    open_driver();
    return argument;
}

static void first_thread_ends_before_it(void)
{
    start_thread(opens, NULL);
    pthread_exit(NULL);
}

static void first_thread_ends_after_it(void)
{
    in_thread(opens, NULL);
    suspend_and_resume();
    pthread_exit(NULL);
}

static void *forks(void *argument)
{
    in_child(first_thread_ends_after_it);
    return argument;
}

static atomic_int *has_answered; /* the driver, in a child */

static void *answers(void *argument)
{
    usleep(20000);
    *has_answered = 1;
    is_stuck = 0;
    return argument;
}

/* The helper leaves the next library before that ends. */
static void exits_while_it_is_resumed(void)
{
    g = open_driver();
    SUSPEND();
    is_stuck = 1;
    send_request(getpid(), 'r');
    while (is_stuck != 2)
        ;
    start_thread(answers, NULL);
    exit(0);
}

static void closes_all_descriptors(void)
{
    setenv("CHECK_LAST_CALL", "1", 1);
    g = open_driver();
    int own_file = *(int *)(void *)g;
    for (int fd = 3; fd < 1000; fd++)
        close(fd);
    CHECK(own_file < 0 || dup2(STDERR_FILENO, own_file) == own_file);
    SUSPEND();
    CHECK(own_file < 0 || fcntl(own_file, F_GETFD) >= 0);
    exit(0);
}

static void processes_end(void)
{
    in_child(first_thread_ends_before_it);
    in_child(first_thread_ends_after_it);
    in_thread(forks, NULL);
    has_answered = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (has_module) {
        in_child(exits_while_it_is_resumed);
        CHECK(*has_answered);
    }
    in_child(closes_all_descriptors);
}

/* ---- NVIDIA's checkpoints ---- */

static int pair[2];

static void is_checkpointed(void)
{
    gpu_init();
    pin_all();
    for (int round = 0; round < 3; round++) {
        check_pins();
        memset(pins[0].va, round, 100);
        say(pair[1]);
        await(pair[1]);
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
        await(pair[0]);
        CHECK_STRING(request(child, 's'), "o00");
        for (int i = 0; i < 4; i++)
            CUDA(checkpoint[i](child, NULL));
        CHECK_STRING(request(child, 'r'), "o00");
        say(pair[0]);
    }
    close(pair[0]);
    finish_child(child);
    printf("CUDA checkpointed a process 3 times\n");
}

static void (*const tests[])(void) = {
    mappings_fault_and_come_back,
    memory_may_be_elsewhere_each_time,
    mappings_that_came_back_are_released,
    what_cannot_be_restored_fails_by_itself,
    what_is_refused_at_resume_leaves_no_hole,
    a_mapping_of_another_type_is_not_restored,
    replaced_memory_is_not_touched,
    a_suspension_that_fails_changes_nothing,
    a_resumption_without_the_driver_can_be_repeated,
    memory_that_was_freed_before_does_not_come_back,
    a_failed_unpin_can_be_repeated,
    the_descriptor_stays_open_while_nothing_is_pinned,
    children_are_not_suspended,
    threads_notice_nothing,
    handlers_copy,
    the_helper_takes_no_signals,
    a_call_that_hangs_holds_neither_the_end_nor_a_withdrawal,
    processes_end,
};

int main(void)
{
    setenv("GDRCOPY_ALLOW_UNALIGNED_MAP", "1", 1);
    cuda_moves_the_memory_in_between(); /* CUDA serves no forked child. */
    gpu_init();
    CHECK_EQUAL(helper_of(getpid()), 0);
    pin_all();
    if (has_module && !driver_is_at_least(g, 2, 1)) {
        CHECK_STRING(request(getpid(), 's'), "e0d"); /* EACCES */
        check_pins();
        unpin_all();
        waive("gdrdrv 2.0 serves only the thread that opened it");
    }
    unpin_all();
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        pin_all();
        tests[i]();
        unpin_all();
    }
    return passed("checkpoint");
}
