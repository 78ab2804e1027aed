// A GPU kernel answers flags that the CPU sets in host memory, and in GPU memory that the CPU maps with gdrdrv.
#include <cuda/atomic>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.cuh"

enum { ROUNDS = 50, WORDS = 1000, SIZE = 2 << 20 };

// Pins and maps GPU memory by commands of gdrdrv.
static void *map_gpu_memory(void *address)
{
    struct {
        uint64_t address, size, p2p_token;
        uint32_t va_space;
        uint64_t handle;
    } pin = {reinterpret_cast<uint64_t>(address), SIZE};
    int device = open("/dev/gdrdrv", O_RDWR);

    CHECK(device >= 0);
    CHECK(ioctl(device, 0xC028DA01ul, &pin) == 0);
    void *window = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, device, pin.handle * 4096);
    CHECK(window != MAP_FAILED);
    return window;
}

// In each round, all threads copy the data, with a barrier before the copy and one after it.
__global__ void answer(uint32_t *request, uint32_t *reply, const uint32_t *from, uint32_t *to, uint32_t words)
{
    cuda::atomic_ref<uint32_t, cuda::thread_scope_system> asked(*request), replied(*reply);

    for (uint32_t round = 1; round <= ROUNDS; round++) {
        if (threadIdx.x == 0)
            while (asked.load(cuda::memory_order_acquire) != round)
                ;
        __syncthreads();
        for (uint32_t word = threadIdx.x; word < words; word += blockDim.x)
            to[word] = from[word] + round;
        __syncthreads();
        if (threadIdx.x == 0)
            replied.store(round, cuda::memory_order_release);
    }
}

// Waits in each round until both halves of *word are the round's number, and stores it in the upper half of *seen.
__global__ void poll(const volatile uint64_t *word, volatile uint64_t *seen)
{
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (*word != (i << 32 | i))
            ;
        *seen = i << 32;
    }
}

static void ping_pong(uint32_t *request, uint32_t *request_on_cpu)
{
    uint32_t *reply = host_memory<uint32_t>(1), *from = device_memory<uint32_t>(WORDS), *to = host_memory<uint32_t>(WORDS);

    *reply = 0;
    CUDA(cudaMemset(from, 0x11, WORDS * sizeof(*from)));
    answer<<<1, 64>>>(request, reply, from, to, WORDS);
    CUDA(cudaGetLastError());
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        __atomic_store_n(request_on_cpu, round, __ATOMIC_RELEASE);
        while (__atomic_load_n(reply, __ATOMIC_ACQUIRE) != round)
            ;
        for (uint32_t word = 0; word < WORDS; word++)
            CHECK(to[word] == 0x11111111 + round);
    }
    CUDA(cudaDeviceSynchronize());
}

static void poll_words(uint64_t *word, uint64_t *word_on_cpu)
{
    uint64_t *seen = host_memory<uint64_t>(1);

    *seen = 0;
    poll<<<1, 1>>>(word, seen);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        __atomic_store_n(word_on_cpu, i << 32 | i, __ATOMIC_RELEASE);
        while (__atomic_load_n(seen, __ATOMIC_ACQUIRE) != i << 32)
            ;
    }
    CUDA(cudaDeviceSynchronize());
}

int main()
{
    uint64_t *host = host_memory<uint64_t>(2), *gpu = device_memory<uint64_t>(SIZE / 8);
    uint64_t *window = static_cast<uint64_t *>(map_gpu_memory(gpu));

    host[0] = host[1] = 0;
    ping_pong(reinterpret_cast<uint32_t *>(host), reinterpret_cast<uint32_t *>(host));
    ping_pong(reinterpret_cast<uint32_t *>(gpu), reinterpret_cast<uint32_t *>(window));
    poll_words(host + 1, host + 1);
    poll_words(gpu + 8, window + 8);
    puts("ok");
    return 0;
}
