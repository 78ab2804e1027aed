/*
 * GDRCOPY_DMA_READ, while a read is under way. Other calls on its handle do not wait for it. Where the mapping or the
 * program's memory faults, a signal handler may use the handle. It may leave the read by siglongjmp, as with other
 * copies.
 */

#include "cuda_lookup.h"
#include "emulator.h"
#include "kit/library.h"
#include "process.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#define FROM 20000
#define SIZE (16 * GPU_PAGE_SIZE) /* several chunks */

static struct gpu_buffer buffer;
static gdr_t g;
static gdr_mh_t handle;
static unsigned char *va, *seen;
static unsigned char sent[SIZE];

static void start(void)
{
    CHECK(setenv("GDRCOPY_DMA_READ", "20000", 1) == 0);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    fill(sent, SIZE, 3);
    gpu_write(buffer.address, sent, SIZE);
    g = open_driver();
    handle = pin(g, buffer.address, SIZE);
    va = map(g, handle, SIZE);
    seen = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
}

static void check_read(void)
{
    memset(seen, 0, SIZE);
    CHECK_OK(gdr_copy_from_mapping(handle, seen, va, SIZE));
    CHECK_BYTES(seen, sent, SIZE);
}

static void end(void)
{
    check_read();
    unmap_and_unpin(g, handle, va, SIZE);
    CHECK_OK(gdr_close(g));
    CHECK(munmap(seen, SIZE) == 0);
    gpu_free(&buffer);
}

static void check_handle_is_usable(void)
{
    CHECK_EQUAL(info_of(g, handle).mapped, 1);
    CHECK_EQUAL(flag_of(g, handle), 0);
}

/* ---- While the copy engine works ---- */

static CUresult (*query)(CUstream stream);
static int queries;

static void *use_handle(void *unused)
{
    check_handle_is_usable();
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
    CHECK(map(g, handle, SIZE) != NULL);
    return unused;
}

static CUresult query_with_other_calls(CUstream stream)
{
    if (queries++ == 0) {
        check_handle_is_usable();
        if (!driver_is_at_least(g, 2, 1))
            return query(stream); /* it serves one thread only */
        in_thread(use_handle, NULL);
    }
    return query(stream);
}

static void *replace_query(const char *name, void *found)
{
    if (strcmp(name, "cuStreamQuery") != 0)
        return found;
    *(void **)&query = found;
    *(CUresult (**)(CUstream))&found = query_with_other_calls;
    return found;
}

static void other_calls_do_not_wait_for_a_read(void)
{
    lookup = replace_query;
    start();
    CHECK_OK(gdr_copy_from_mapping(handle, seen, va, SIZE));
    CHECK_BYTES(seen, sent, SIZE);
    if (info_of(g, handle).mapping_type != GDR_MAPPING_TYPE_CACHING)
        CHECK(queries > 0);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
}

/* ---- Where memory faults ---- */

static sigjmp_buf left;
static int faults, leaves;
static CUcontext context;

static void check_thread_is_unchanged(void)
{
    CUcontext now;
    int state;

    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    CHECK_EQUAL(state, PTHREAD_CANCEL_ENABLE);
    CUDA(cuCtxGetCurrent(&now));
    CHECK(now == context);
}

static void on_fault(int signal, siginfo_t *info, void *unused)
{
    unsigned char *address = info->si_addr;

    (void)signal;
    (void)unused;
    faults++;
    check_thread_is_unchanged();
    if (leaves)
        siglongjmp(left, 1);
    CHECK(address >= seen && address < seen + SIZE);
    check_handle_is_usable();
    CHECK(mprotect(seen, SIZE, PROT_READ | PROT_WRITE) == 0);
}

static void catch_faults(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

/* In the first, a middle and the last chunk. */
static const size_t places[] = {0, SIZE / 2, SIZE - GPU_PAGE_SIZE};

static void fault_in_the_programs_memory_can_be_repaired(void)
{
    start();
    CUDA(cuCtxCreate(&context, 0, 0)); /* current, and not the memory's */
    catch_faults();
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        faults = 0;
        memset(seen, 0, SIZE);
        CHECK(mprotect(seen + places[i], GPU_PAGE_SIZE, PROT_NONE) == 0);
        CHECK_OK(gdr_copy_from_mapping(handle, seen, va, SIZE));
        CHECK_EQUAL(faults, 1);
        CHECK_BYTES(seen, sent, SIZE);
    }
    CUDA(cuCtxDestroy(context));
    gpu_init();
    end();
}

/* A read that is left loses the engine that it uses, no more. The other engines end with their connection. */
static void read_can_be_left_by_siglongjmp(void)
{
    long before = dontfork_kib();

    start();
    check_read();
    long engine = dontfork_kib() - before;
    CUDA(cuCtxGetCurrent(&context));
    catch_faults();
    leaves = 1;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        faults = 0;
        CHECK(mprotect(seen + places[i], GPU_PAGE_SIZE, PROT_NONE) == 0);
        if (sigsetjmp(left, 1) == 0) {
            gdr_copy_from_mapping(handle, seen, va, SIZE);
            CHECK(!"the copy returned");
        }
        CHECK_EQUAL(faults, 1);
        check_thread_is_unchanged();
        CHECK(mprotect(seen, SIZE, PROT_READ | PROT_WRITE) == 0);
        check_read();
    }
    end();
    CHECK_EQUAL(dontfork_kib() - before, 3 * engine);
}

/* ---- Where CUDA refuses a part ---- */

/* The second chunk, while the first is under way for ever. */
static void refused_reads_leak_no_engines(void)
{
    struct emulator emulator = find_emulator();
    long before = dontfork_kib();

    start();
    check_read();
    long engine = dontfork_kib();
    for (int i = 0; i < 20; i++) {
        CHECK(emulator.faults_set("cuMemcpyDtoHAsync:1@2,cuStreamQuery:600") == 0);
        check_read();
        CHECK(emulator.faults_set("") == 0);
        CHECK_EQUAL(dontfork_kib(), engine);
    }
    end();
    CHECK_EQUAL(dontfork_kib(), before);
}

/* Without persistent mapping, freeing the memory takes the mapping away. */
static void read_of_a_revoked_mapping_can_be_left(void)
{
    start();
    if (is_persistent(g)) {
        end();
        return;
    }
    check_read();
    CUDA(cuCtxGetCurrent(&context));
    gpu_free(&buffer);
    catch_faults();
    leaves = 1;
    if (sigsetjmp(left, 1) == 0) {
        gdr_copy_from_mapping(handle, seen, va, SIZE);
        CHECK(!"the copy returned");
    }
    CHECK_EQUAL(faults, 1);
    check_thread_is_unchanged();
    CHECK_EQUAL(flag_of(g, handle), 1);
    unmap_and_unpin(g, handle, va, SIZE);
    CHECK_OK(gdr_close(g));
}

int main(void)
{
    in_child(other_calls_do_not_wait_for_a_read);
    in_child(fault_in_the_programs_memory_can_be_repaired);
    in_child(read_can_be_left_by_siglongjmp);
    in_child(read_of_a_revoked_mapping_can_be_left);
    if (driver_is_emulated() && gpu_is_emulated())
        in_child(refused_reads_leak_no_engines);
    return passed("dma_unlocked");
}
