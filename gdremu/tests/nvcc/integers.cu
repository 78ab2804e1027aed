// Runs the same integer code in GPU kernels and on the CPU. Tests atomics and variables.
#include "check.cuh"

#include <cstring>

enum { THREADS = 256, BLOCKS = 9, VALUES = 64 };

// A GPU kernel and the CPU both compute this value from two numbers.
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
    T sum, largest, smallest, last, bits, common, parity, tickets;
};

template <typename T> __global__ void count(Counters<T> *counters)
{
    T thread = blockIdx.x * blockDim.x + threadIdx.x;

    atomicAdd(&counters->sum, thread);
    atomicMax(&counters->largest, thread);
    atomicMin(&counters->smallest, thread);
    atomicExch(&counters->last, thread);
    atomicOr(&counters->bits, (T)1 << (thread % (sizeof(T) * 8)));
    atomicAnd(&counters->common, ~(thread & 1));
    atomicXor(&counters->parity, thread);
    // Each thread takes at least one ticket.
    for (T seen = atomicAdd_system(&counters->tickets, (T)0);; seen = atomicCAS(&counters->tickets, seen, seen + 1))
        if (atomicCAS(&counters->tickets, seen, seen + 1) == seen)
            break;
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

int main()
{
    arithmetic();
    atomics<unsigned>();
    atomics<unsigned long long>();
    module_variables();
    puts("ok");
    return 0;
}
