/* Kernels: what they compute, that the CPU can talk to them while they run, and what comes after them. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda_start.h"

#define HEADER ".version 7.0\n.target sm_70\n.address_size 64\n"

static const char kernels_ptx[] = HEADER
    /* words[thread] = first + thread, for every thread of the grid */
    ".visible .entry count(.param .u64 words, .param .u32 first)\n"
    "{\n"
    "    .reg .u32 %r<5>; .reg .u64 %d<3>;\n"
    "    ld.param.u64 %d0, [words]; ld.param.u32 %r0, [first];\n"
    "    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "    mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "    mad.wide.u32 %d1, %r4, 4, %d0;\n"
    "    add.u32 %r4, %r4, %r0;\n"
    "    st.global.u32 [%d1], %r4;\n"
    "    ret;\n"
    "}\n"
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
    "    st.release.sys.global.u32 [%result], %r;\n"
    "    ret;\n"
    "}\n"
    /* Reads *word for ever, and says by *begun that it has begun. */
    ".visible .entry watch(.param .u64 word, .param .u64 begun)\n"
    "{\n"
    "    .reg .u32 %r; .reg .u64 %word, %begun;\n"
    "    ld.param.u64 %word, [word]; ld.param.u64 %begun, [begun];\n"
    "again:\n"
    "    ld.volatile.global.u32 %r, [%word];\n"
    "    st.volatile.global.u32 [%begun], 1;\n"
    "    bra again;\n"
    "}\n"
    /* *word = value, whatever is at that address. */
    ".visible .entry poke(.param .u64 word, .param .u32 value)\n"
    "{\n"
    "    .reg .u32 %r; .reg .u64 %d;\n"
    "    ld.param.u64 %d, [word]; ld.param.u32 %r, [value];\n"
    "    st.global.u32 [%d], %r;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry fail() { trap; }\n"
    ".visible .entry forever() { again: bra again; }\n"
    ".visible .entry small() .maxntid 64, 1, 1 { .shared .b32 words[16]; ret; }\n";

/* A word of host memory that kernels reach at the same address. */
static volatile uint32_t *host_word(void)
{
    void *word;

    CHECK_EQUAL(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    return word;
}

static CUfunction kernel(const char *name)
{
    CUmodule module;
    CUfunction function;

    CHECK_EQUAL(cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
    CHECK_EQUAL(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
    return function;
}

static CUresult launch(const char *name, CUstream stream, const volatile void *first, uint64_t second)
{
    void *arguments[] = {&first, &second};

    return cuLaunchKernel(kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static void modules(void)
{
    static const char unknown[] = HEADER ".entry test()\n{ .reg .f32 %f;\nsqrt.rn.f32 %f, %f; }";
    static const unsigned char compiled[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0};
    char log[256] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof(log)};
    CUmodule module;
    CUfunction function, again;
    int value;

    CHECK_EQUAL(cuModuleLoadDataEx(&module, unknown, 2, options, values), CUDA_ERROR_INVALID_PTX);
    CHECK(strstr(log, "line 6: sqrt.rn.f32") != NULL);
    CHECK_EQUAL(cuModuleLoadData(&module, compiled), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQUAL(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);

    CHECK_EQUAL(cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
    CHECK_EQUAL(cuModuleGetFunction(&function, module, "nobody"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQUAL(cuModuleGetFunction(&function, module, "small"), CUDA_SUCCESS);
    CHECK_EQUAL(cuModuleGetFunction(&again, module, "small"), CUDA_SUCCESS);
    CHECK(function == again);
    CHECK_EQUAL(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function), CUDA_SUCCESS);
    CHECK_EQUAL(value, 64);
    CHECK_EQUAL(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function), CUDA_SUCCESS);
    CHECK_EQUAL(value, 64);
    CHECK_EQUAL(cuLaunchKernel(function, 1, 1, 1, 65, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49152, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49152), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 49152, NULL, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQUAL(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

/* A copy that follows a kernel in the default stream sees all that it did. */
static void results(void)
{
    enum { BLOCKS = 40, THREADS = 96 };
    static uint32_t words[BLOCKS * THREADS];
    CUdeviceptr buffer;
    uint32_t first = 1000, i;
    void *arguments[] = {&buffer, &first};
    struct {
        CUdeviceptr words;
        uint32_t first;
    } packed;
    size_t size = offsetof(__typeof__(packed), first) + sizeof(first);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, &packed,
                     CU_LAUNCH_PARAM_END};
    CUfunction count = kernel("count");

    CHECK_EQUAL(cuMemAlloc(&buffer, sizeof(words)), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchKernel(count, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(words, buffer, sizeof(words)), CUDA_SUCCESS);
    for (i = 0; i < BLOCKS * THREADS; i++)
        CHECK_EQUAL(words[i], 1000 + i);

    packed.words = buffer;
    packed.first = 7;
    CHECK_EQUAL(cuLaunchKernel(count, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, NULL, extra), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(words, buffer, sizeof(words)), CUDA_SUCCESS);
    for (i = 0; i < BLOCKS * THREADS; i++)
        CHECK_EQUAL(words[i], 7 + i);
    size = sizeof(packed); /* Padding is no parameter. */
    CHECK_EQUAL(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
}

static void note(void *order)
{
    uint32_t *slots = order;

    slots[2] = slots[0]++; /* How many came before. */
}

/* While a kernel waits for the CPU, calls return and their work follows in order. */
static void order(void)
{
    volatile uint32_t *flag = host_word(), *result = host_word(), *copied = host_word();
    uint32_t noted[3] = {0};
    CUstream stream, independent;
    CUevent before, after;
    float milliseconds = -1;

    CHECK_EQUAL(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamCreate(&independent, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventCreate(&before, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventCreate(&after, CU_EVENT_DEFAULT), CUDA_SUCCESS);

    CHECK_EQUAL(cuEventRecord(before, stream), CUDA_SUCCESS);
    CHECK_EQUAL(launch("wait", stream, flag, (uintptr_t)result), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyAsync((uintptr_t)copied, (uintptr_t)result, 4, stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchHostFunc(stream, note, noted), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventRecord(after, stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(cuEventQuery(before), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(cuEventElapsedTime(&milliseconds, before, after), CUDA_ERROR_NOT_READY);
    /* The default stream waits for it, a non-blocking one does not, unless it is told to. */
    CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(cuStreamQuery(independent), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamWaitEvent(independent, after, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamQuery(independent), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(*result, 0);
    CHECK_EQUAL(noted[0], 0);

    __atomic_store_n(flag, 41, __ATOMIC_RELEASE);
    CHECK_EQUAL(cuStreamSynchronize(independent), CUDA_SUCCESS);
    CHECK_EQUAL(*result, 42);
    CHECK_EQUAL(*copied, 42);
    CHECK_EQUAL(noted[0], 1);
    CHECK_EQUAL(cuEventSynchronize(after), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventElapsedTime(&milliseconds, before, after), CUDA_SUCCESS);
    CHECK(milliseconds > 0);
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_SUCCESS);

    /* A stream may go before its work is done. */
    *flag = *result = 0;
    CHECK_EQUAL(launch("wait", stream, flag, (uintptr_t)result), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_SUCCESS);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQUAL(*result, 2);

    /* Kernels of different streams run side by side: the first one waits for the second. */
    *flag = *result = *copied = 0;
    CHECK_EQUAL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(launch("wait", independent, result, (uintptr_t)copied), CUDA_SUCCESS);
    CHECK_EQUAL(launch("wait", stream, flag, (uintptr_t)result), CUDA_SUCCESS);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    CHECK_EQUAL(cuMemFreeHost((void *)flag), CUDA_SUCCESS); /* Waits for both. */
    CHECK_EQUAL(*copied, 3);
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamDestroy(independent), CUDA_SUCCESS);
}

/* What a kernel does wrong, every call answers from then on, until the context is reset. */
static void failures(void)
{
    static uint32_t unknown_to_cuda;
    volatile uint32_t *word = host_word();
    struct {
        const char *kernel;
        uintptr_t address;
        CUresult result;
    } failures[] = {
        {"poke", 64, CUDA_ERROR_ILLEGAL_ADDRESS},
        {"poke", (uintptr_t)&unknown_to_cuda, CUDA_ERROR_ILLEGAL_ADDRESS},
        {"poke", (uintptr_t)word + 4096, CUDA_ERROR_ILLEGAL_ADDRESS},
        {"poke", (uintptr_t)word + 2, CUDA_ERROR_MISALIGNED_ADDRESS},
        {"fail", 0, CUDA_ERROR_LAUNCH_FAILED},
    };
    CUdeviceptr buffer;
    CUcontext context;
    size_t i;

    for (i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        CHECK_EQUAL(launch(failures[i].kernel, NULL, (void *)failures[i].address, 5), CUDA_SUCCESS);
        CHECK_EQUAL(cuCtxSynchronize(), failures[i].result);
        CHECK_EQUAL(cuMemAlloc(&buffer, 4), failures[i].result);
        CHECK_EQUAL(cuStreamQuery(NULL), failures[i].result);
        CHECK_EQUAL(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
        CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        CHECK_EQUAL(cuCtxSetCurrent(context), CUDA_SUCCESS);
        word = host_word();
        CHECK_EQUAL(launch("poke", NULL, word, 5), CUDA_SUCCESS);
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
        CHECK_EQUAL(*word, 5);
        failures[2].address = (uintptr_t)word + 4096;
        failures[3].address = (uintptr_t)word + 2;
    }
    CHECK_EQUAL(unknown_to_cuda, 0);

    /* Memory that has gone is no memory. */
    CHECK_EQUAL(cuMemAlloc(&buffer, 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    CHECK_EQUAL(launch("poke", NULL, (void *)(uintptr_t)buffer, 5), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQUAL(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    start(0);
}

/* An unmap does not wait, and the kernel that is reading the memory finds it gone. */
static void unmapped_in_use(void)
{
    const size_t size = 2 << 20;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    volatile uint32_t *begun = host_word();

    CHECK_EQUAL(cuMemCreate(&handle, size, &prop, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressReserve(&address, size, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemMap(address, size, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemSetAccess(address, size, &access, 1), CUDA_SUCCESS);
    CHECK_EQUAL(launch("watch", NULL, (void *)(uintptr_t)address, (uintptr_t)begun), CUDA_SUCCESS);
    while (*begun == 0)
        ;
    CHECK_EQUAL(cuMemUnmap(address, size), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQUAL(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    start(0);
    CHECK_EQUAL(cuMemAddressFree(address, size), CUDA_SUCCESS);

    /* What may be read only is not written. */
    CHECK_EQUAL(cuMemAddressReserve(&address, size, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemMap(address, size, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemSetAccess(address, size, &access, 1), CUDA_SUCCESS);
    CHECK_EQUAL(launch("poke", NULL, (void *)(uintptr_t)address, 5), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQUAL(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    start(0);
    CHECK_EQUAL(cuMemUnmap(address, size), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressFree(address, size), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemRelease(handle), CUDA_SUCCESS);
}

/* The end of a context is the end of its kernels, and of what waits for them. */
static void endless(void)
{
    uint32_t noted[3] = {0};
    CUcontext context;

    CHECK_EQUAL(cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(launch("forever", NULL, NULL, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchHostFunc(NULL, note, noted), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(cuCtxDestroy(context), CUDA_SUCCESS);
    CHECK_EQUAL(noted[0], 0);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS); /* The context below it has nothing to do. */
}

int main(void)
{
    start(0);

    modules();
    results();
    order();
    failures();
    unmapped_in_use();
    endless();
    /* The end of the program, too. */
    CHECK_EQUAL(launch("forever", NULL, NULL, 0), CUDA_SUCCESS);
    puts("ok cuda_kernels");
    return 0;
}
