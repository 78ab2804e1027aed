// Integer code of GPU kernels against the same code on the CPU; atomics, shared memory, grids of two dimensions, variables.
#include "check.cuh"

#include <algorithm>
#include <cstring>

enum { THREADS = 256, BLOCKS = 9, VALUES = 64 };

// The function that both sides compute from two numbers.
__host__ __device__ static uint64_t mix(uint64_t a, uint64_t b)
{
    int8_t s8 = a;
    uint8_t u8 = b;
    int16_t s16 = a >> 3;
    uint16_t u16 = b >> 5;
    int32_t s32 = a ^ b;
    uint32_t u32 = a + b;
    int64_t s64 = a - b;
    uint64_t sum = 0;

    sum = sum * 31 + s8 * u8;
    sum = sum * 31 + (s16 < u16 ? s16 : -u16);
    sum = sum * 31 + (s32 > (int32_t)u32 ? s32 >> 3 : s32 << 2);
    sum = sum * 31 + (u32 >= (uint32_t)a ? u32 >> 7 : u32 * 3);
    sum = sum * 31 + (s64 <= (int64_t)a ? s64 / 7 : s64 % 11);
    sum = sum * 31 + (a > b ? a / (b | 1) : b % (a | 1));
    sum = sum * 31 + (uint64_t)s32 * (uint64_t)(int64_t)s16 + (uint64_t)u32 * u16;
    sum = sum * 31 + (uint64_t)((unsigned __int128)a * b >> 64);
    sum = sum * 31 + ((a & b) | (~a ^ b));
    sum = sum * 31 + (uint64_t)(int64_t)(int8_t)(a >> 8) + (uint32_t)(int32_t)s8;
    sum = sum * 31 + (s32 < 0 ? -(int64_t)s32 : s32) + (s64 == 0) + (s8 != u8 && s16 != 0);
    sum = sum * 31 + (u32 << (b & 31) | u32 >> (32 - (b & 31) & 31)) + (s64 >> (a & 63));
    sum = sum * 31 + (a >> 11 & 0x3ff) + ((uint64_t)u16 << 40 | u8);
    return sum;
}

__global__ void mixed(const uint64_t *a, const uint64_t *b, uint64_t *sums)
{
    sums[threadIdx.x] = mix(a[threadIdx.x], b[threadIdx.x]);
}

static void arithmetic()
{
    static const uint64_t special[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, ~0ull};
    uint64_t *a = host_memory<uint64_t>(VALUES), *b = host_memory<uint64_t>(VALUES), *sums = host_memory<uint64_t>(VALUES);
    uint64_t state = 1;

    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < VALUES; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            a[i] = i % 3 == 0 ? special[(state >> 33) % 12] : state;
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            b[i] = i % 5 == 0 ? special[(state >> 33) % 12] : state;
        }
        mixed<<<1, VALUES>>>(a, b, sums);
        CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < VALUES; i++)
            if (sums[i] != mix(a[i], b[i])) {
                fprintf(stderr, "mix(%#lx, %#lx)\n", a[i], b[i]);
                CHECK(sums[i] == mix(a[i], b[i]));
            }
    }
}

template <typename T> struct Counters {
    T sum, largest, smallest, last, bits, common, parity, tickets, once;
};

template <typename T> __global__ void count(Counters<T> *counters)
{
    __shared__ T in_block;
    T thread = blockIdx.x * blockDim.x + threadIdx.x;

    if (threadIdx.x == 0)
        in_block = 0;
    __syncthreads();
    atomicAdd(&in_block, (T)1);
    atomicAdd(&counters->sum, thread);
    atomicMax(&counters->largest, thread);
    atomicMin(&counters->smallest, thread);
    atomicExch(&counters->last, thread);
    atomicOr(&counters->bits, (T)1 << (thread % (sizeof(T) * 8)));
    atomicAnd(&counters->common, ~(thread & 1));
    atomicXor(&counters->parity, thread);
    // Each thread has a turn of its own.
    for (T seen = atomicAdd_system(&counters->tickets, (T)0);; seen = atomicCAS(&counters->tickets, seen, seen + 1))
        if (atomicCAS(&counters->tickets, seen, seen + 1) == seen)
            break;
    __syncthreads();
    if (threadIdx.x == 0 && in_block == blockDim.x)
        atomicAdd(&counters->once, (T)1);
}

template <typename T> static void atomics()
{
    const T threads = THREADS * BLOCKS;
    Counters<T> *counters = host_memory<Counters<T>>(1);
    T parity = 0;

    memset(counters, 0, sizeof(*counters));
    counters->smallest = counters->common = (T)-1;
    count<T><<<BLOCKS, THREADS>>>(counters);
    CUDA(cudaDeviceSynchronize());
    for (T i = 0; i < threads; i++)
        parity ^= i;
    CHECK(counters->sum == threads * (threads - 1) / 2);
    CHECK(counters->largest == threads - 1);
    CHECK(counters->smallest == 0);
    CHECK(counters->last < threads);
    CHECK(counters->bits == (T)-1);
    CHECK(counters->common == (T)-2);
    CHECK(counters->parity == parity);
    CHECK(counters->tickets >= threads);
    CHECK(counters->once == BLOCKS);
}

// Transposes tiles of bytes, of 32-bit and of 64-bit words.
template <typename T> __global__ void transpose(const T *from, T *to)
{
    __shared__ T tile[8][9];
    extern __shared__ uint64_t added[];
    T *copy = reinterpret_cast<T *>(added);
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;

    tile[threadIdx.y][threadIdx.x] = from[y * width + x];
    copy[threadIdx.y * 8 + threadIdx.x] = x;
    __syncthreads();
    x = blockIdx.y * blockDim.y + threadIdx.x;
    y = blockIdx.x * blockDim.x + threadIdx.y;
    to[y * height + x] = tile[threadIdx.x][threadIdx.y] + copy[threadIdx.x * 8 + threadIdx.y];
}

template <typename T> static void tiles()
{
    enum { WIDTH = 40, HEIGHT = 24 };
    T *from = host_memory<T>(WIDTH * HEIGHT), *to = host_memory<T>(WIDTH * HEIGHT);

    for (int i = 0; i < WIDTH * HEIGHT; i++)
        from[i] = (T)(i * 0x123456789abcdefull);
    transpose<T><<<dim3(WIDTH / 8, HEIGHT / 8), dim3(8, 8), 64 * sizeof(T)>>>(from, to);
    CUDA(cudaDeviceSynchronize());
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            CHECK(to[x * HEIGHT + y] == (T)(from[y * WIDTH + x] + x));
}

// Every thread of a grid with three dimensions, once.
__global__ void cells(uint32_t *counts)
{
    uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
             z = blockIdx.z * blockDim.z + threadIdx.z;

    counts[(z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] += 1 + z;
}

static void dimensions()
{
    uint32_t *counts = host_memory<uint32_t>(6 * 10 * 14);

    memset(counts, 0, 6 * 10 * 14 * 4);
    cells<<<dim3(3, 5, 7), dim3(2, 2, 2)>>>(counts);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 6 * 10 * 14; i++)
        CHECK(counts[i] == 1 + i / 60);
}

struct Arguments {
    char byte;
    short words[3];
    uint64_t number;
    uint64_t *to;
};

__device__ uint32_t calls;
__device__ uint64_t table[VALUES];
__device__ int start = -7;
__constant__ uint16_t factors[4] = {2, 3, 5, 7};

__global__ void variables(Arguments arguments, uint4 *vectors, bool swap)
{
    table[threadIdx.x] += factors[threadIdx.x % 4] * start + arguments.number + arguments.byte + arguments.words[threadIdx.x % 3];
    if (swap) {
        uint4 vector = vectors[threadIdx.x];

        vectors[threadIdx.x] = make_uint4(vector.w, vector.z, vector.y, vector.x);
    }
    if (atomicAdd(&calls, 1) == VALUES - 1)
        *arguments.to = arguments.number;
}

static void module_variables()
{
    uint64_t *to = host_memory<uint64_t>(1), results[VALUES];
    uint4 *vectors = host_memory<uint4>(VALUES);
    int new_start = 9;
    uint32_t called;
    void *address;
    size_t size;

    for (uint32_t i = 0; i < VALUES; i++)
        vectors[i] = make_uint4(i, i + 1, i + 2, i + 3);
    variables<<<1, VALUES>>>(Arguments{-1, {1, 2, -3}, 1ull << 40, to}, vectors, true);
    CUDA(cudaMemcpyToSymbol(start, &new_start, sizeof(new_start)));
    variables<<<1, VALUES>>>(Arguments{0, {0, 0, 0}, 0, to}, vectors, false);
    CUDA(cudaMemcpyFromSymbol(results, table, sizeof(results)));
    CUDA(cudaMemcpyFromSymbol(&called, calls, sizeof(called)));
    CUDA(cudaGetSymbolAddress(&address, table));
    CUDA(cudaGetSymbolSize(&size, table));
    CHECK(size == sizeof(table));
    CUDA(cudaMemcpy(&results[0], address, 8, cudaMemcpyDeviceToHost));
    const int words[] = {1, 2, -3}, factor[] = {2, 3, 5, 7};
    for (uint32_t i = 0; i < VALUES; i++) {
        CHECK(results[i] == (1ull << 40) - 1 + words[i % 3] + factor[i % 4] * 2);
        CHECK(vectors[i].x == i + 3 && vectors[i].w == i);
    }
    CHECK(*to == 1ull << 40);
    CHECK(called == 2 * VALUES);
}

// Shared memory of GPU kernels with a function in common, and of one that needs most of it for itself.
template <int N> __device__ uint32_t neighbor(uint32_t value)
{
    __shared__ uint32_t values[5000];

    values[threadIdx.x] = value;
    __syncthreads();
    return values[(threadIdx.x + 1) % blockDim.x] + N;
}

template <int N> __global__ void one(uint32_t *to)
{
    to[threadIdx.x] = N * neighbor<1>(threadIdx.x);
}

__global__ void two(uint32_t *to)
{
    to[threadIdx.x] += neighbor<2>(threadIdx.x) * neighbor<3>(threadIdx.x);
}

static void shared_by_functions()
{
    uint32_t *to = host_memory<uint32_t>(VALUES);

    one<7><<<1, VALUES>>>(to);
    CUDA(cudaDeviceSynchronize());
    CHECK(to[2] == 7 * (3 + 1));
    one<1><<<1, VALUES>>>(to);
    two<<<1, VALUES>>>(to);
    CUDA(cudaDeviceSynchronize());
    for (uint32_t i = 0; i < VALUES; i++) {
        uint32_t next = (i + 1) % VALUES;

        CHECK(to[i] == next + 1 + (next + 2) * (next + 3));
    }
}

// More blocks than the GPU runs at a time.
__global__ void add_one(unsigned long long *sum)
{
    if (threadIdx.x == 0)
        atomicAdd(sum, 1ull);
}

static void many_blocks()
{
    auto *sum = device_memory<unsigned long long>(1);
    unsigned long long found;
    cudaFuncAttributes attributes;
    int blocks = 0, threads = 0;

    add_one<<<1000, 1024>>>(sum);
    CUDA(cudaMemcpy(&found, sum, sizeof(found), cudaMemcpyDeviceToHost));
    CHECK(found == 1000);
    add_one<<<1, 2000>>>(sum);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CUDA(cudaFuncGetAttributes(&attributes, add_one));
    CHECK(attributes.maxThreadsPerBlock == 1024);
    CUDA(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add_one));
    CHECK(threads == 1024 && blocks == 2 * 132);
}

__global__ void stop(int *word)
{
    if (*word == 1)
        __trap();
    *word = 2;
}

int main()
{
    arithmetic();
    atomics<unsigned>();
    atomics<unsigned long long>();
    tiles<uint8_t>();
    tiles<uint32_t>();
    tiles<uint64_t>();
    dimensions();
    module_variables();
    shared_by_functions();
    many_blocks();

    // The last one, because a GPU kernel that traps ends CUDA for the process.
    int *word = host_memory<int>(1);
    *word = 1;
    stop<<<1, 1>>>(word);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(cudaFreeHost(word) == cudaErrorLaunchFailure);
    CHECK(*word == 1);
    puts("ok");
    return 0;
}
