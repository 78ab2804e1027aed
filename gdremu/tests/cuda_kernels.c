/* Tests of the results of GPU kernels, their communication with the CPU, and the order of later work. */
#include "cuda_values.h"
#include "tests.h"

static const char kernels_ptx[] = PTX(
    /* Waits until *flag is not 0, then *result = *flag + 1. */
    ".visible .entry wait(.param .u64 flag, .param .u64 result)\n"
    "{\n"
    "    .reg .pred %p; .reg .u32 %r; .reg .u64 %flag, %result;\n"
    "    ld.param.u64 %flag, [flag]; ld.param.u64 %result, [result];\n"
    "again:\n"
    "    ld.acquire.sys.global.u32 %r, [%flag];\n"
    "    setp.eq.u32 %p, %r, 0;\n"
    "    @%p bra again;\n"
    "    add.u32 %r, %r, 1;\n"
    "    fence.acq_rel.sys;\n"
    "    st.relaxed.sys.global.u32 [%result], %r;\n"
    "    ret;\n"
    "}\n"
    /* Reads *word forever, and sets *begun once it has begun. */
    ".visible .entry watch(.param .u64 word, .param .u64 begun)\n"
    "{\n"
    "    .reg .u32 %r; .reg .u64 %word, %begun;\n"
    "    ld.param.u64 %word, [word]; ld.param.u64 %begun, [begun];\n"
    "again:\n"
    "    ld.volatile.global.u32 %r, [%word];\n"
    "    st.volatile.global.u32 [%begun], 1;\n"
    "    bra again;\n"
    "}\n"
    /* Stores the value at the address `word`, which may be an address that the GPU cannot write. */
    ".visible .entry poke(.param .u64 word, .param .u32 value)\n"
    "{\n"
    "    .reg .u32 %r; .reg .u64 %d;\n"
    "    ld.param.u64 %d, [word]; ld.param.u32 %r, [value];\n"
    "    st.volatile.global.u32 [%d], %r;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry forever() { again: bra again; }\n"
    ".visible .entry root()\n"
    "{\n"
    "    .reg .f32 %f;\n"
    "    sqrt.rn.f32 %f, %f;\n"
    "}\n"
    ".visible .entry stop() { trap; }\n");

/* Allocates a word of host memory that GPU kernels reach at the same address. */
static volatile uint32_t *host_word(void)
{
    void *word;

    CUDA(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    return word;
}

/* The module with this file's GPU kernels in the current context. It is loaded before any of them runs, because
   NVIDIA's driver may wait for running GPU kernels when it loads a module. */
static CUmodule loaded;

static void load(void)
{
    CUDA(cuModuleLoadData(&loaded, kernels_ptx));
}

static CUfunction kernel(const char *name)
{
    CUfunction function;

    CUDA(cuModuleGetFunction(&function, loaded, name));
    return function;
}

static CUresult launch(const char *name, CUstream stream, const volatile void *first, uint64_t second)
{
    void *parameters[] = {&first, &second};

    return launched(kernel(name), stream, parameters);
}

/* Only this test uses these functions, so they are not in cuda_driver.h. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **parameters);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared);
CUresult cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads, CUfunction function, size_t (*shared_of)(int threads),
                                          size_t shared, int limit);

static size_t shared_by_threads(int threads)
{
    return (size_t)threads * 96;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options, void **values);
CUresult cuModuleUnload(CUmodule module);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

static void modules(void)
{
    static const unsigned char compiled[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0};
    CUmodule module;
    CUfunction function, again;
    CUdeviceptr address;
    size_t size;

    CHECK_EQUAL(cuModuleLoadData(&module, "sqrt.rn.f32 %r, %r;"), CUDA_ERROR_INVALID_PTX);
    CHECK_EQUAL(cuModuleLoadData(&module, compiled), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQUAL(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);

    CUDA(cuModuleLoadDataEx(&module, PTX(".global .u64 number; .visible .entry empty() {}"), 0, NULL, NULL));
    CUDA(cuModuleGetGlobal_v2(&address, &size, module, "number"));
    CHECK_EQUAL(size, 8);
    CHECK_EQUAL(cuModuleGetGlobal_v2(&address, &size, module, "absent"), CUDA_ERROR_NOT_FOUND);
    CUDA(cuMemsetD32(address, 1, 2));
    CUDA(cuModuleGetFunction(&function, module, "empty"));
    CUDA(launched(function, NULL, NULL));
    CUDA(cuModuleUnload(module));
    CHECK_EQUAL(cuMemsetD32(address, 1, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(launched(function, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);

    CHECK_EQUAL(cuModuleGetFunction(&function, NULL, "forever"), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuModuleGetFunction(&function, loaded, "absent"), CUDA_ERROR_NOT_FOUND);
    CUDA(cuModuleGetFunction(&function, loaded, "forever"));
    CUDA(cuModuleGetFunction(&again, loaded, "forever"));
    CHECK_EQUAL(function, again);
}

/* The expected results are those of an H200, which has 132 multiprocessors. A row of `wanted` has three numbers:
   threads per block, bytes of shared memory per block, and the blocks that then fit on a multiprocessor. */
static void occupancy(CUfunction function)
{
    static const int wanted[][3] = {{1, 0, 32}, {33, 0, 32}, {100, 0, 16}, {1024, 0, 2}, {64, 10000, 20}, {64, 49152, 4},
                                    {64, 49153, 0}};
    int blocks, threads;

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, wanted[i][0], (size_t)wanted[i][1]));
        CHECK_EQUAL(blocks, wanted[i][2]);
    }
    CUDA(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, function, NULL, 0, 0));
    CHECK(blocks == 132 * 2 && threads == 1024);
    CUDA(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, function, NULL, 0, 100));
    CHECK(blocks == 132 * 32 && threads == 64);
    CUDA(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, function, shared_by_threads, 0, 0));
    CHECK(blocks == 132 * 4 && threads == 512);
    CHECK_EQUAL(cuLaunchCooperativeKernel(function, 132 * 32 + 1, 1, 1, 1, 1, 1, 0, NULL, NULL), 720 /* TOO_LARGE */);
    CHECK_EQUAL(cuLaunchCooperativeKernel(function, 132 * 4 + 1, 1, 1, 64, 1, 1, 49152, NULL, NULL), 720);
}

static void launch_limits(void)
{
    static const unsigned int too_many[][4] = {{0, 1, 1, 0}, {1, 1025, 1, 0}, {1, 512, 3, 0}, {1, 1, 1, 49153}};
    CUfunction forever = kernel("forever");
    void *extra[] = {NULL};

    occupancy(forever);
    for (size_t i = 0; i < sizeof(too_many) / sizeof(too_many[0]); i++) {
        const unsigned int *sizes = too_many[i];

        CHECK_EQUAL(cuLaunchKernel(forever, sizes[0], 1, 1, sizes[1], sizes[2], 1, sizes[3], NULL, NULL, NULL),
                    CUDA_ERROR_INVALID_VALUE);
    }
    CHECK_EQUAL(launched(NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    /* A GPU can run these launches, but gdremu's interpreter cannot. */
    CHECK_EQUAL(launched(kernel("root"), NULL, NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQUAL(cuLaunchKernel(forever, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_NOT_SUPPORTED);
}

static void count_call(void *calls)
{
    ++*(uint32_t *)calls;
}

/* While a GPU kernel waits for the CPU, calls that request more work return at once. The work is done after the GPU
   kernel, in order. */
static void order(void)
{
    volatile uint32_t *flag = host_word(), *result = host_word(), *copied = host_word(), *elsewhere = host_word();
    uint32_t calls = 0, pageable = 17;
    CUstream stream, independent;
    CUevent before, after;
    float milliseconds = -1;

    CUDA(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CUDA(cuStreamCreate(&independent, CU_STREAM_NON_BLOCKING));
    CUDA(cuEventCreate(&before, CU_EVENT_DEFAULT));
    CUDA(cuEventCreate(&after, CU_EVENT_DEFAULT));

    CUDA(cuEventRecord(before, stream));
    CUDA(launch("wait", stream, flag, (uintptr_t)result));
    CUDA(cuMemcpyAsync((uintptr_t)copied, (uintptr_t)result, 4, stream));
    CUDA(cuLaunchHostFunc(stream, count_call, &calls));
    CUDA(cuEventRecord(after, stream));
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CUDA(cuEventQuery(before));
    CHECK_EQUAL(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(cuEventElapsedTime(&milliseconds, before, after), CUDA_ERROR_NOT_READY);
    /* The default stream waits for `stream`. The non-blocking stream `independent` is idle until it waits for the event
       `after`, which `stream` has not reached. */
    CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CUDA(cuStreamQuery(independent));
    CUDA(cuStreamWaitEvent(independent, before, 0));
    CUDA(cuStreamQuery(independent));
    CUDA(cuStreamWaitEvent(independent, after, 0));
    CHECK_EQUAL(cuStreamQuery(independent), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(cuStreamWaitEvent(independent, after, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK(*result == 0 && calls == 0);

    __atomic_store_n(flag, 41, __ATOMIC_RELEASE);
    CUDA(cuStreamSynchronize(independent));
    CHECK(*result == 42 && *copied == 42 && calls == 1);
    CUDA(cuEventElapsedTime(&milliseconds, before, after));
    CHECK(milliseconds > 0);
    CUDA(cuStreamQuery(stream));

    /* The default stream has work, for which `stream` will wait. Until `stream` gets work of its own, it is idle. */
    *flag = *result = 0;
    CUDA(launch("wait", NULL, flag, (uintptr_t)result));
    CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuMemcpyAsync((uintptr_t)copied, (uintptr_t)result, 4, stream));
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CUDA(cuMemcpyAsync((uintptr_t)elsewhere, (uintptr_t)&pageable, 4, stream));
    pageable = 0; /* The copy has already read its source, which is pageable memory. */
    CUDA(cuMemsetD8Async((uintptr_t)elsewhere + 4, 9, 1, independent));
    CUDA(cuStreamSynchronize(independent));
    CHECK(elsewhere[0] == 0 && elsewhere[1] == 9 && *result == 0);
    __atomic_store_n(flag, 7, __ATOMIC_RELEASE);
    CUDA(cuStreamSynchronize(stream));
    CHECK(*copied == 8 && elsewhere[0] == 17);

    /* A stream can be destroyed before its work is done. */
    *flag = *result = 0;
    CUDA(launch("wait", stream, flag, (uintptr_t)result));
    CUDA(cuStreamDestroy(stream));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    CUDA(cuCtxSynchronize());
    CHECK_EQUAL(*result, 2);

    /* GPU kernels of different streams run side by side, so the first one can wait for the second. */
    *flag = *result = *copied = 0;
    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA(launch("wait", independent, result, (uintptr_t)copied));
    CUDA(launch("wait", stream, flag, (uintptr_t)result));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    CUDA(cuMemFreeHost((void *)flag)); /* This waits for both GPU kernels. */
    CHECK_EQUAL(*copied, 3);
    CUDA(cuStreamDestroy(stream));
    CUDA(cuStreamDestroy(independent));
}

/* ---- GPU kernels that fail ---- */

/* Checks that all calls of CUDA return this error after a GPU kernel has failed. CUDA never works in this process
   again. */
static void expect_failure(CUresult result)
{
    CUdeviceptr buffer;
    CUcontext context;

    CHECK_EQUAL(cuCtxSynchronize(), result);
    CHECK_EQUAL(cuMemAlloc(&buffer, 4), result);
    CHECK_EQUAL(cuStreamQuery(NULL), result);
    CUDA(cuDevicePrimaryCtxReset(0));
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), result);
}

static const size_t mapped = 2 << 20;

/* Makes memory that GPU kernels may only read. */
static CUdeviceptr read_only(void)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};

    return created(mapped, 0, &access, 1);
}

/* write_to_next has a list of addresses to which GPU kernels may not write. Each child process tries one of them. This
   is the index of the next child's address. */
static size_t next;

static void write_to_next(void)
{
    static uint32_t pageable;

    gpu_start(0);
    load();
    CUdeviceptr freed = allocated(4), page = (uintptr_t)host_word(), unaligned = page + 2;
    CUDA(cuMemFree(freed));
    const CUdeviceptr addresses[] = {64, (uintptr_t)&pageable, page + 4096, freed, read_only(), unaligned};
    CUDA(launch("poke", NULL, (void *)(uintptr_t)addresses[next], 5));
    expect_failure(addresses[next] == unaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQUAL(pageable, 0);
}

static void await_kernel(const volatile uint32_t *begun)
{
    while (__atomic_load_n(begun, __ATOMIC_ACQUIRE) == 0)
        ;
}

/* cuMemUnmap does not wait for a GPU kernel that reads the memory. The GPU kernel then fails. */
static void unmapped_in_use(void)
{
    gpu_start(0);
    load();
    volatile uint32_t *begun = host_word();
    CUdeviceptr address = read_only();
    CUDA(launch("watch", NULL, (void *)(uintptr_t)address, (uintptr_t)begun));
    await_kernel(begun);
    CUDA(cuMemUnmap(address, mapped));
    expect_failure(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void stopped_by_trap(void)
{
    gpu_start(0);
    load();
    CUDA(launch("stop", NULL, NULL, 0));
    expect_failure(719 /* LAUNCH_FAILED */);
}

/* ---- GPU kernels that do not end ---- */

/* Destroying a context ends its GPU kernels and drops the work that waits for them. */
static void endless(void)
{
    uint32_t calls = 0;
    CUcontext context;
    CUmodule others = loaded;

    CUDA(cuCtxCreate(&context, 0, 0));
    CHECK_EQUAL(launch("forever", NULL, NULL, 0), CUDA_ERROR_INVALID_HANDLE); /* `forever` is in the other context. */
    load();
    volatile uint32_t *word = host_word();
    volatile uint32_t *begun = host_word();
    CUDA(launch("watch", NULL, word, (uintptr_t)begun));
    CUDA(cuLaunchHostFunc(NULL, count_call, &calls));
    await_kernel(begun);
    CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CUDA(cuCtxDestroy(context));
    CHECK_EQUAL(calls, 0);
    CUDA(cuCtxSynchronize()); /* The first context, which is current again, is idle. */
    loaded = others;
}

TEST(communication)
{
    /* The children run before this process calls cuInit, because they could not use CUDA after it. */
    for (next = 0; next < 6; next++)
        in_child(write_to_next);
    in_child(unmapped_in_use);
    in_child(stopped_by_trap);

    gpu_start(0);
    load();
    modules();
    launch_limits();
    order();
    endless();
    /* The end of the program also ends endless GPU kernels. */
    CUDA(launch("forever", NULL, NULL, 0));
}

/* Launches two GPU kernels. The first one runs until stdin ends. */
TEST(long_run)
{
    gpu_start(0);
    load();
    volatile uint32_t *flag = host_word();
    CUDA(launch("wait", NULL, flag, (uintptr_t)(flag + 1)));
    while (getchar() != EOF)
        ;
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    CUDA(launch("wait", NULL, flag, (uintptr_t)(flag + 1)));
    CUDA(cuCtxSynchronize());
}

/* Launches, twice, a GPU kernel that the emulated GPU refuses, and exits with the first argument as status. With a
   second argument, a forked child does the launches. */
TEST(refused)
{
    const char *status = arguments[0];
    pid_t child = arguments[1] != NULL ? fork() : 0;

    if (child != 0)
        exit(waitpid(child, NULL, 0) == child ? atoi(status) : 1);
    gpu_start(0);
    load();
    for (int time = 0; time < 2; time++)
        CHECK_EQUAL(launch("root", NULL, NULL, 0), CUDA_ERROR_NO_BINARY_FOR_GPU);
    exit(atoi(status));
}
