/*
 * With GDRCOPY_DMA_READ, CUDA's copy engine makes reads from that size on, through a buffer of the library.
 * Where CUDA does not answer, they go through the mapping. The bytes are right in any case.
 */

#include "emulator.h"
#include "kit/library.h"
#include "logged.h"

#define FROM 20000
#define SIZE (4 * GPU_PAGE_SIZE)
#define THREADS 4
#define ENGINE "copy engine with a buffer"
#define MAPPING "bytes through the mapping"

static struct gpu_buffer buffer;
static gdr_t g;
static gdr_mh_t handle;
static unsigned char *va;
static unsigned char sent[SIZE];

static gdr_t open_with(const char *setting)
{
    CHECK(setenv("GDRCOPY_DMA_READ", setting, 1) == 0);
    return open_driver();
}

static void start(const char *setting)
{
    g = open_with(setting);
    handle = pin(g, buffer.address, SIZE - 100);
    va = map(g, handle, SIZE - 100);
}

static void end(void)
{
    CHECK_OK(gdr_close(g));
}

/* Another pattern in each call, so that a read that does nothing is noticed. */
static void check_read(size_t offset, size_t size)
{
    static __thread unsigned char seen[SIZE + 2];
    static __thread unsigned filler;

    memset(seen, (int)++filler, size + 2);
    CHECK_OK(gdr_copy_from_mapping(handle, seen + 1, va + offset, size));
    CHECK_BYTES(seen + 1, sent + offset, size);
    CHECK_EQUAL(seen[0], filler % 256);
    CHECK_EQUAL(seen[size + 1], filler % 256);
}

static void send(unsigned seed)
{
    fill(sent, SIZE, seed);
    gpu_write(buffer.address, sent, SIZE);
}

static void small_reads(void)
{
    start("20000");
    check_read(0, 8);
    check_read(1, 4096);
    check_read(77, FROM - 1);
    end();
}

static void large_reads(void)
{
    start("20000");
    for (size_t i = 0; i < 100; i++)
        check_read(i * 777, FROM + i * 1001);
    /* The bytes written before are read. */
    memset(sent + 100, 0x3c, 1000);
    CHECK_OK(gdr_copy_to_mapping(handle, va + 100, sent + 100, 1000));
    check_read(0, SIZE - 100);
    end();
}

static void read_of_whole_pages(void)
{
    start("20000");
    check_read(0, SIZE); /* 100 bytes more than were pinned */
    end();
}

static void invalid_setting(void)
{
    start("64K");
    check_read(0, SIZE);
    end();
    start("0");
    check_read(0, SIZE);
    end();
}

static void settings_and_sizes_choose_the_path(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    send(1);
    const char *log = log_of(small_reads, "1");
    CHECK_NOT_LOGGED(log, ENGINE);
    CHECK_NOT_LOGGED(log, MAPPING);
    CHECK_NOT_LOGGED(log_of(read_of_whole_pages, "1"), ENGINE);
    log = log_of(invalid_setting, "1");
    CHECK_NOT_LOGGED(log, ENGINE);
    CHECK_LOGGED(log, "GDRCOPY_DMA_READ=\"64K\" is not a number of bytes");
    CHECK_NOT_LOGGED(log, "GDRCOPY_DMA_READ=\"0\"");

    log = log_of(large_reads, "1");
    CHECK_NOT_LOGGED(log, MAPPING);
    start("20000");
    if (info_of(g, handle).mapping_type == GDR_MAPPING_TYPE_CACHING)
        CHECK_NOT_LOGGED(log, ENGINE);
    else
        CHECK_LOGGED(log, ENGINE);
    end();
    gpu_free(&buffer);
}

static void read_in_callback(void *unused)
{
    (void)unused;
    check_read(5, FROM);
}

static void call_back(void)
{
    CUstream stream;

    start("20000");
    CUDA(cuStreamCreate(&stream, 1));
    CUDA(cuLaunchHostFunc(stream, read_in_callback, NULL));
    CUDA(cuStreamSynchronize(stream));
    check_read(5, FROM);
    CUDA(cuStreamDestroy(stream));
    end();
}

static void host_callbacks_read_through_the_mapping(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    send(2);
    call_back();
    gpu_free(&buffer);
}

static struct emulator emulator;

static void cuda_fails(void)
{
    static const char *const faults[] = {
        "cuPointerGetAttribute:800", "cuStreamCreate:800", "cuMemHostRegister:2",
        "cuMemcpyDtoHAsync:999@2", "cuStreamQuery:719@2", "cuStreamQuery:600",
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        start("20000");
        send(3 + i);
        CHECK(emulator.faults_set(faults[i]) == 0);
        check_read(0, SIZE - 100);
        CHECK(emulator.faults_set("") == 0);
        check_read(0, SIZE - 100);
        end();
    }
}

static void mapping_finishes_what_cuda_does_not(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    start("20000");
    int is_cached = info_of(g, handle).mapping_type == GDR_MAPPING_TYPE_CACHING;
    end();
    const char *log = log_of(cuda_fails, "1");
    if (!is_cached)
        CHECK_LOGGED(log, MAPPING);
    gpu_free(&buffer);
}

/* A copy into the caller's memory could not be left when it takes too long. */
static void registered_memory_is_not_left_to_a_late_copy(void)
{
    size_t size = round_up(SIZE, (size_t)sysconf(_SC_PAGESIZE));
    unsigned char *seen = aligned_alloc((size_t)sysconf(_SC_PAGESIZE), size);

    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    send(40);
    CHECK(seen != NULL);
    CUDA(cuMemHostRegister(seen, size, 0));
    start("20000");
    CHECK(emulator.faults_set("cuStreamQuery:600") == 0);
    CHECK_OK(gdr_copy_from_mapping(handle, seen, va, SIZE - 100));
    CHECK(emulator.faults_set("") == 0);
    CHECK_BYTES(seen, sent, SIZE - 100);
    end();
    CUDA(cuMemHostUnregister(seen));
    free(seen);
    gpu_free(&buffer);
}

static void *read_repeatedly(void *number)
{
    size_t offset = *(const size_t *)number;

    for (size_t i = 0; i < 50; i++)
        check_read(offset + i, FROM + 100 * i);
    return NULL;
}

static void threads_share_a_handle(void)
{
    pthread_t threads[THREADS];
    size_t offsets[THREADS];

    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    send(20);
    start("1");
    for (size_t i = 0; i < THREADS; i++) {
        offsets[i] = i * FROM;
        threads[i] = start_thread(read_repeatedly, &offsets[i]);
    }
    for (size_t i = 0; i < THREADS; i++)
        finish_thread(threads[i]);
    end();
    gpu_free(&buffer);
}

/* CUDA does not check streams of contexts that are gone; gdremu ends a program that uses one. */
static void contexts_may_end_between_reads(void)
{
    CUcontext context;
    CUdevice device;

    gpu_init();
    CUDA(cuDeviceGet(&device, 0));
    g = open_with("20000");
    for (unsigned round = 0; round < 3; round++) {
        buffer = gpu_alloc(MEM_ALLOC, SIZE);
        send(50 + round);
        handle = pin(g, buffer.address, SIZE - 100);
        va = map(g, handle, SIZE - 100);
        check_read(round, FROM);
        check_read(round + 1, FROM);
        CHECK_OK(gdr_unpin_buffer(g, handle));
        CUDA(cuDevicePrimaryCtxReset(device)); /* the next context has the same address */
        CUDA(cuDevicePrimaryCtxRetain(&context, device));
        CUDA(cuCtxSetCurrent(context));
    }
    CHECK_OK(gdr_close(g));

    for (unsigned round = 0; round < 3; round++) {
        CUDA(cuCtxCreate(&context, 0, device));
        buffer = gpu_alloc(MEM_ALLOC, SIZE);
        send(60 + round);
        g = open_with("20000");
        handle = pin(g, buffer.address, SIZE - 100);
        va = map(g, handle, SIZE - 100);
        check_read(round, FROM);
        if (round == 0)
            CHECK_OK(gdr_close(g));
        CUDA(cuCtxDestroy(context));
        if (round == 1)
            CHECK_OK(gdr_close(g));
    }
    end();
}

static void inherited_mapping_cannot_be_read(void)
{
    unsigned char seen[FROM] = {0};

    CHECK_ERROR(gdr_copy_from_mapping(handle, seen, va, FROM), EACCES);
    CHECK_EQUAL(seen[0], 0);
}

static void forked_children_read_nothing(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    send(30);
    start("20000");
    check_read(0, FROM);
    in_child(inherited_mapping_cannot_be_read);
    check_read(1, FROM);
    end();
    gpu_free(&buffer);
}

int main(void)
{
    in_child(settings_and_sizes_choose_the_path);
    in_child(host_callbacks_read_through_the_mapping);
    in_child(threads_share_a_handle);
    in_child(forked_children_read_nothing);
    in_child(contexts_may_end_between_reads);
    if (gpu_is_emulated()) {
        emulator = find_emulator();
        in_child(mapping_finishes_what_cuda_does_not);
        in_child(registered_memory_is_not_left_to_a_late_copy);
    }
    return passed("dma_read");
}
