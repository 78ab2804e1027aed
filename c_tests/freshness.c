/*
 * Tests that gdr_copy_from_mapping returns bytes that are not older than those of an earlier call.
 *
 * In every round, a GPU kernel writes a payload to GPU memory, executes a system-wide fence, and writes a flag. The CPU
 * polls the flag through gdr_copy_from_mapping. As soon as it has seen the flag, it reads the payload in the same way,
 * and lets the GPU kernel go on. A payload that is older than its flag is stale: the CPU took it from one of its
 * buffers, or loaded it too early.
 *
 * The CPU acknowledges a round through host memory. So between two calls of the library, the program makes no store to
 * the mapping and executes no fence.
 *
 * Then gdrx_read_many reads other payloads, which are words in different cache lines, or adjacent parts of cache lines.
 * It also reads the flag, except in every eighth round, in which gdrx_load_u32 reads the flag. Each payload is tested
 * with the flag in GPU memory, and with the flag in host memory. A read of a flag in host memory leaves the CPU's
 * buffers for GPU memory as the previous gdrx_read_many left them.
 *
 * Usage: freshness [--rounds N], where N counts the rounds of each payload. The default is 100,000, or 100 if gdremu
 * emulates the GPU, because an emulated GPU runs on the CPU and reorders nothing.
 */

#include <time.h>

#include "emulator.h"
#include "gdrx.h"
#include "kit/library.h"

#define THREADS 128
#define MAX_PAYLOAD 4096
#define MAX_GATHERED 64
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* Offsets in the GPU buffer, and its size. */
#define FLAG 0
#define PAYLOAD 4096
#define BUFFER GPU_PAGE_SIZE

/*
 * The GPU kernel counts as hung after this many seconds without a new flag. The seconds are this thread's CPU time. On
 * a busy system, an emulated GPU may be slow, but then this thread gets as little CPU time as the GPU.
 */
#define PATIENCE 120

/*
 * The GPU kernel void produce(uint32_t *payload, uint32_t words, uint32_t stride, uint32_t *flag,
 * const uint32_t *acknowledged, uint32_t rounds) runs as one block of threads. Words are `stride` bytes apart. Volatile
 * accesses are relaxed accesses of system scope.
 */
static const char produce_ptx[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry produce(.param .u64 payload_arg, .param .u32 words_arg, .param .u32 stride_arg,\n"
    "                        .param .u64 flag_arg, .param .u64 acknowledged_arg, .param .u32 rounds_arg)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .u32 %words, %stride, %rounds, %round, %thread, %threads, %word, %seen;\n"
    "    .reg .u64 %payload, %flag, %acknowledged, %offset, %address;\n"
    "    ld.param.u64 %payload, [payload_arg];\n"
    "    ld.param.u32 %words, [words_arg];\n"
    "    ld.param.u32 %stride, [stride_arg];\n"
    "    ld.param.u64 %flag, [flag_arg];\n"
    "    ld.param.u64 %acknowledged, [acknowledged_arg];\n"
    "    ld.param.u32 %rounds, [rounds_arg];\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    mov.u32 %threads, %ntid.x;\n"
    "    mov.u32 %round, 1;\n"
    "next_round:\n"
    /* Each thread stores its share of the payload, with the round's number in every word. */
    "    mov.u32 %word, %thread;\n"
    "next_word:\n"
    "    setp.ge.u32 %p, %word, %words;\n"
    "    @%p bra payload_stored;\n"
    "    mul.wide.u32 %offset, %word, %stride;\n"
    "    add.u64 %address, %payload, %offset;\n"
    "    st.volatile.global.u32 [%address], %round;\n"
    "    add.u32 %word, %word, %threads;\n"
    "    bra next_word;\n"
    "payload_stored:\n"
    "    fence.acq_rel.sys;\n"
    "    bar.sync 0;\n"
    "    setp.ne.u32 %p, %thread, 0;\n"
    "    @%p bra round_done;\n"
    /* The first thread raises the flag, and waits for the CPU. */
    "    fence.acq_rel.sys;\n"
    "    st.volatile.global.u32 [%flag], %round;\n"
    "wait:\n"
    "    ld.volatile.global.u32 %seen, [%acknowledged];\n"
    "    setp.lt.u32 %p, %seen, %round;\n"
    "    @%p bra wait;\n"
    "round_done:\n"
    "    bar.sync 0;\n"
    "    add.u32 %round, %round, 1;\n"
    "    setp.le.u32 %p, %round, %rounds;\n"
    "    @%p bra next_round;\n"
    "    ret;\n"
    "}\n";

static CUfunction produce;
static struct gpu_buffer buffer;
static gdr_mh_t handle;
static unsigned char *va;
static struct gdrx_map gdrx;

/* A payload, and the functions and parameters by which the payload and its flag are read. */
struct payload {
    enum { BY_CALLS, BY_GDRX } way;
    int announced_in_host_memory; /* the flag is in host memory, not in GPU memory */
    uint32_t words, stride; /* the number of words, and the bytes from the start of one to the start of the next */
    size_t alignment, size; /* bytes: the offset of a read in its cache line, the size of a read or gdrx_copy */
};

/* The CPU address and the GPU address of a word in host memory. In this word, the CPU stores the number of the last
   round that it has seen. */
static volatile uint32_t *acknowledged;
static CUdeviceptr acknowledged_on_gpu;

/* If the flag of a payload is in host memory, it is this many bytes after `acknowledged`, in another cache line. */
#define ANNOUNCED 256

static void load_gpu_kernel(void)
{
    CUmodule module;

    CUDA(cuModuleLoadData(&module, produce_ptx));
    CUDA(cuModuleGetFunction(&produce, module, "produce"));
}

static void launch(const struct payload *payload, uint32_t rounds)
{
    CUdeviceptr address = buffer.address + PAYLOAD;
    CUdeviceptr flag = payload->announced_in_host_memory ? acknowledged_on_gpu + ANNOUNCED : buffer.address + FLAG;
    uint32_t words = payload->words, stride = payload->stride;
    void *arguments[] = {&address, &words, &stride, &flag, &acknowledged_on_gpu, &rounds};

    CUDA(cuLaunchKernel(produce, 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
}

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint32_t read_flag(const struct payload *payload, uint32_t round)
{
    uint32_t flag;
    struct gdrx_copy item = {.offset = FLAG, .host = &flag, .size = sizeof(flag)};

    if (payload->announced_in_host_memory)
        return acknowledged[ANNOUNCED / sizeof(flag)];
    if (payload->way == BY_CALLS)
        CHECK_OK(gdr_copy_from_mapping(handle, &flag, va + FLAG, sizeof(flag)));
    else if (round % 8 == 0)
        return gdrx_load_u32(&gdrx, FLAG);
    else
        CHECK_OK(gdrx_read_many(&gdrx, &item, 1));
    return flag;
}

/* Waits for the flag of `round`. If that takes too long, ends the GPU kernel and the program. */
static void await_flag(const struct payload *payload, uint32_t round)
{
    double start = seconds(CLOCK_THREAD_CPUTIME_ID);
    unsigned long polls = 0;
    uint32_t flag;

    do {
        flag = read_flag(payload, round);
        if (++polls % 65536 == 0 && seconds(CLOCK_THREAD_CPUTIME_ID) - start > PATIENCE * slowness()) {
            *acknowledged = UINT32_MAX;
            fprintf(stderr, "freshness: no flag for round %u, its value is %u\n", round, flag);
            exit(1);
        }
    } while (flag < round);
    CHECK_EQUAL(flag, round);
}

/* Returns the number of stale payloads. Between the reads of flag and payload, the code does as little as possible, so
   that stale data has no time to be replaced. */
static uint32_t count_stale(const struct payload *payload, uint32_t rounds)
{
    static const unsigned char zeros[BUFFER];
    static uint32_t seen[MAX_PAYLOAD / 4];
    const unsigned char *bytes = (const unsigned char *)seen;
    const size_t size = payload->way == BY_CALLS ? payload->size : payload->words * sizeof(seen[0]);
    struct gdrx_copy items[MAX_GATHERED];
    const size_t words_each = payload->size / sizeof(seen[0]);
    const size_t n = payload->words / words_each;
    uint32_t round, stale = 0, i;

    for (i = 0; payload->way == BY_GDRX && i < n; i++)
        items[i] = (struct gdrx_copy){PAYLOAD + i * words_each * payload->stride, &seen[i * words_each], payload->size};

    gpu_write(buffer.address, zeros, sizeof(zeros));
    acknowledged[0] = acknowledged[ANNOUNCED / sizeof(round)] = 0;
    launch(payload, rounds);
    double start = seconds(CLOCK_MONOTONIC);
    for (round = 1; round <= rounds; round++) {
        const unsigned char *wanted = (const unsigned char *)&round;

        await_flag(payload, round);
        if (payload->way == BY_CALLS)
            CHECK_OK(gdr_copy_from_mapping(handle, seen, va + PAYLOAD + payload->alignment, size));
        else
            CHECK_OK(gdrx_read_many(&gdrx, items, n));
        for (i = 0; i < size && bytes[i] == wanted[(payload->alignment + i) % sizeof(round)]; i++)
            ;
        stale += i < size;
        *acknowledged = round;
    }
    if (payload->way == BY_CALLS)
        printf("calls %5zu B +%-2zu          ", payload->size, payload->alignment);
    else
        printf("gdrx%c %2zu of %2zu B %3u B apart  ", payload->announced_in_host_memory ? '*' : ' ', n, payload->size,
               (uint32_t)words_each * payload->stride);
    printf("rounds %u stale %u  %.0f ns per round\n", rounds, stale, (seconds(CLOCK_MONOTONIC) - start) / rounds * 1e9);
    fflush(stdout);
    CUDA(cuCtxSynchronize());
    return stale;
}

static uint32_t parse_rounds(int argc, char **argv)
{
    if (argc == 1)
        return (uint32_t)rounds(gpu_is_emulated() ? 100 : 100000);
    if (argc != 3 || strcmp(argv[1], "--rounds") != 0 || atol(argv[2]) < 1 || atol(argv[2]) >= UINT32_MAX) {
        fprintf(stderr, "usage: freshness [--rounds N]\n");
        exit(1);
    }
    return (uint32_t)atol(argv[2]);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4, 16, 24, 32, 64, 128, 256, 1024, 4096};
    static const size_t alignments[] = {0, 1, 4, 60};
    /*
     * Numbers of words that one gdrx_read_many reads. After a call for few words, their cache lines could stay in the
     * CPU's buffers. The next gdrx_read_many must not use these old lines.
     */
    static const uint32_t gathered[] = {1, 4, 11, MAX_GATHERED}, strides[] = {64, 128, 192};
    /* Items of these sizes are parts of a cache line, cross into the next one, or are whole cache lines. */
    static const size_t items[] = {16, 24, 64};
    uint32_t rounds_each = parse_rounds(argc, argv);
    uint64_t stale = 0;
    void *host_word;

    gpu_init();
    load_gpu_kernel();
    CUDA(cuMemHostAlloc(&host_word, 2 * ANNOUNCED, CU_MEMHOSTALLOC_DEVICEMAP));
    CUDA(cuMemHostGetDevicePointer(&acknowledged_on_gpu, host_word, 0));
    acknowledged = host_word;
    buffer = gpu_alloc(MEM_ALLOC, BUFFER);
    gdr_t g = open_driver();
    handle = pin(g, buffer.address, BUFFER);
    va = map(g, handle, BUFFER);

    CHECK_OK(gdrx_attach(&gdrx, g, handle, va, BUFFER));

    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t j = 0; j < COUNT(alignments); j++) {
            uint32_t words = (uint32_t)(alignments[j] + sizes[i] + 3) / 4;
            struct payload payload = {BY_CALLS, 0, words, sizeof(uint32_t), alignments[j], sizes[i]};

            stale += count_stale(&payload, rounds_each);
        }
    for (size_t i = 0; i < COUNT(gathered); i++)
        for (size_t j = 0; j < COUNT(strides); j++) {
            struct payload payload = {BY_GDRX, 0, gathered[i], strides[j], 0, sizeof(uint32_t)};

            stale += count_stale(&payload, rounds_each);
            payload.announced_in_host_memory = 1;
            stale += count_stale(&payload, rounds_each);
        }
    for (size_t i = 0; i < COUNT(items); i++)
        for (int announced = 0; announced < 2; announced++) {
            uint32_t words = (uint32_t)(1008 / items[i] * items[i] / sizeof(uint32_t));
            struct payload payload = {BY_GDRX, announced, words, sizeof(uint32_t), 0, items[i]};

            stale += count_stale(&payload, rounds_each);
        }

    unmap_and_unpin(g, handle, va, BUFFER);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    CUDA(cuMemFreeHost(host_word));
    CHECK_EQUAL(stale, 0);
    return passed("freshness");
}
