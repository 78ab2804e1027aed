/*
 * Tests copies in a signal handler, whatever the interrupted thread is doing in the library. Also tests copies that a
 * signal handler ends by siglongjmp. Copies must hold no lock, because it would then stay locked.
 */

#include "kit/fault.h"
#include "kit/library.h"

#include <pthread.h>
#include <semaphore.h>

#define SIZE GPU_PAGE_SIZE
#define LONGEST 4000 /* bytes of the longest copy in the handler */

/* ---- Copies in a handler ---- */

static gdr_mh_t handlers_handle;
static char *handlers_va;
static char pattern[LONGEST];
static long copies, failures, done;
static sem_t handled;

/* Handles a signal: reads the pattern from the mapping, and writes it to another place in the mapping. */
static void copying(int signal)
{
    size_t size = 1 + (size_t)copies % LONGEST;
    char got[LONGEST];
    int before = errno;

    (void)signal;
    if (gdr_copy_from_mapping(handlers_handle, got, handlers_va, size) != 0 || memcmp(got, pattern, size) != 0)
        failures++;
    if (gdr_copy_to_mapping(handlers_handle, handlers_va + SIZE / 2, pattern, size) != 0)
        failures++;
    __atomic_add_fetch(&copies, 1, __ATOMIC_RELEASE);
    sem_post(&handled);
    errno = before;
}

/* Sends a signal to the thread again and again, each time after the previous signal was handled. */
static void *sending(void *argument)
{
    pthread_t *thread = argument;

    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        CHECK(pthread_kill(*thread, SIGUSR1) == 0);
        while (sem_wait(&handled) != 0)
            CHECK_EQUAL(errno, EINTR);
    }
    return NULL;
}

/* Opens, pins, maps and copies. In some rounds, gdr_unpin_buffer must also unmap the pin, or gdr_close must also unpin
   it. */
static void one_round(CUdeviceptr address, unsigned round)
{
    static char sent[SIZE], got[SIZE];
    gdr_t g = open_driver();

    gdr_mh_t handle = pin(g, address, SIZE);
    void *va = map(g, handle, SIZE);
    fill(sent, SIZE, round);
    CHECK_OK(gdr_copy_to_mapping(handle, va, sent, SIZE));
    memset(got, 0, SIZE);
    CHECK_OK(gdr_copy_from_mapping(handle, got, va, SIZE));
    CHECK_BYTES(got, sent, SIZE);
    if (round % 3 != 0)
        CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    if (round % 3 != 1)
        CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
}

static void copies_work_in_a_signal_handler(void)
{
    struct gpu_buffer fixed = gpu_alloc(MEM_ALLOC, SIZE), buffer = gpu_alloc(MEM_ALLOC, SIZE);
    gdr_t g = open_driver();
    struct sigaction catch = {.sa_handler = copying, .sa_flags = SA_RESTART};
    pthread_t this = pthread_self();
    long wanted = rounds(2000);
    unsigned round = 0;

    handlers_handle = pin(g, fixed.address, SIZE);
    handlers_va = map(g, handlers_handle, SIZE);
    fill(pattern, sizeof(pattern), 1);
    gpu_write(fixed.address, pattern, sizeof(pattern));

    CHECK(sigaction(SIGUSR1, &catch, NULL) == 0);
    CHECK(sem_init(&handled, 0, 0) == 0);
    pthread_t sender = start_thread(sending, &this);
    while (round < (unsigned)rounds(500) || __atomic_load_n(&copies, __ATOMIC_ACQUIRE) < wanted)
        one_round(buffer.address, ++round);
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    finish_thread(sender);

    CHECK_EQUAL(failures, 0);
    CHECK_OK(gdr_close(g));
    gpu_free(&fixed);
    gpu_free(&buffer);
}

/* ---- Copies that a signal handler ends by siglongjmp ---- */

/* Copies, and returns the signal whose handler ended the copy, or 0. valgrind.supp has the name of this function, so
   that valgrind does not report its accesses. */
__attribute__((noinline)) static int left_copy(gdr_mh_t handle, void *mapped, void *host, size_t size, int is_write)
{
    struct fault_handlers old = catch_faults();
    int signal = sigsetjmp(fault_return, 1);

    if (signal == 0)
        CHECK_OK(is_write ? gdr_copy_to_mapping(handle, mapped, host, size)
                          : gdr_copy_from_mapping(handle, host, mapped, size));
    release_faults(&old);
    return signal;
}

/* Makes copies of all kinds, which must end by the signal `wanted`: a word, a small copy, and whole cache lines. */
static void leave_copies(gdr_mh_t handle, void *mapped, void *host, int wanted)
{
    static const size_t sizes[] = {8, 100, SIZE};
    int state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int is_write = 0; is_write < 2; is_write++) {
            CHECK_EQUAL(left_copy(handle, mapped, host, sizes[i], is_write), wanted);
            CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
            CHECK_EQUAL(state, PTHREAD_CANCEL_ENABLE);
        }
}

/* The copies fault, because the memory on the host, `absent`, cannot be accessed. */
static void copy_left_by_siglongjmp_leaves_the_pin_usable(void)
{
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, SIZE);
    void *absent = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    gdr_t g = gdr_open();
    gdr_mh_t handle = pin(g, buffer.address, SIZE);
    void *va = map(g, handle, SIZE);

    CHECK(absent != MAP_FAILED);
    leave_copies(handle, va, absent, SIGSEGV);
    CHECK_EQUAL(flag_of(g, handle), 0);
    unmap_and_unpin(g, handle, va, SIZE);
    CHECK_OK(gdr_close(g));
    one_round(buffer.address, 1);
    CHECK(munmap(absent, SIZE) == 0);
    gpu_free(&buffer);
}

/* Frees the GPU memory. Unless pins are persistent, that ends the mapping, so that copies fault. */
static void copy_from_a_revoked_mapping_left_by_siglongjmp_leaves_the_pin_usable(void)
{
    static char host[SIZE];
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, SIZE);
    gdr_t g = gdr_open();
    gdr_mh_t handle = pin(g, buffer.address, SIZE);
    void *va = map(g, handle, SIZE);
    int persistent = is_persistent(g);

    gpu_free(&buffer);
    if (!persistent) {
        CHECK_REVOKED(va);
        leave_copies(handle, va, host, SIGBUS);
    }
    CHECK_EQUAL(flag_of(g, handle), !persistent);
    unmap_and_unpin(g, handle, va, SIZE);
    CHECK_OK(gdr_close(g));
}

int main(void)
{
    gpu_init();
    copies_work_in_a_signal_handler();
    copy_left_by_siglongjmp_leaves_the_pin_usable();
    copy_from_a_revoked_mapping_left_by_siglongjmp_leaves_the_pin_usable();
    return passed("signals");
}
