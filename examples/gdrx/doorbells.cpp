// An order book in GPU memory. The CPU changes price levels at random places of the book, and then rings a doorbell.
// The doorbell is a word that a GPU kernel polls before it reads the levels. In this example the CPU reads the levels
// back, by a gather. Programs can include cuda.h in place of cuda_driver.h.
#include "cuda_driver.h"
#include "gdrx.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

struct level {
    std::uint64_t price, quantity, orders, sequence, rest[4];
};

constexpr std::size_t levels = 1 << 20;
constexpr std::size_t changes = 64; // changes before each ring of the doorbell
constexpr std::size_t doorbell_at = levels * sizeof(level);

static void must(const char *what, bool holds)
{
    if (!holds)
        throw std::runtime_error(what);
}

static CUdeviceptr device_memory(std::size_t size)
{
    CUcontext context;
    CUdeviceptr address = 0;

    must("cuInit fails", cuInit(0) == CUDA_SUCCESS);
    must("cuDevicePrimaryCtxRetain fails", cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    must("cuCtxSetCurrent fails", cuCtxSetCurrent(context) == CUDA_SUCCESS);
    must("cuMemAlloc fails", cuMemAlloc(&address, size) == CUDA_SUCCESS);
    return address;
}

// Prints the median time of many rounds, per level. `prepare` runs before each round, and is not timed.
template <class Prepare, class Round> void print_time(const char *what, Prepare prepare, Round round)
{
    using clock = std::chrono::steady_clock;
    std::vector<double> times(2000);

    for (double &time : times) {
        prepare();
        const auto start = clock::now();
        round();
        time = std::chrono::duration<double, std::nano>(clock::now() - start).count();
    }
    std::nth_element(times.begin(), times.begin() + 1000, times.end());
    std::printf("%-28s %8.1f ns\n", what, times[1000] / static_cast<double>(changes));
}

static void run(CUdeviceptr address)
{
    const gdrx::driver driver;
    const gdrx::mapping mapping(gdrx::pin(driver, address, doorbell_at + GPU_PAGE_SIZE));
    const auto doorbell = mapping.word<std::uint32_t>(doorbell_at);
    std::mt19937_64 numbers(1);
    std::vector<std::size_t> offsets(changes);
    std::vector<level> seen(changes);
    level changed{};
    std::uint32_t round = 0;

    const auto choose = [&] {
        mapping.flush(); // Wait until the writes of the last round have arrived.
        for (auto &offset : offsets)
            offset = numbers() % levels * sizeof(level);
        changed.sequence = ++round;
    };
    std::printf("%zu levels of %zu bytes, then the doorbell; median, for each level:\n", changes, sizeof(level));
    print_time("slice::write", choose, [&] {
        for (const auto offset : offsets)
            mapping.write(offset, changed);
        doorbell.store(round);
    });
    print_time("batch::write", choose, [&] {
        {
            gdrx::batch batch(mapping);
            for (const auto offset : offsets)
                batch.write(offset, changed);
        }
        doorbell.store(round);
    });
    gdrx::gather gather(mapping);
    for (std::size_t i = 0; i < changes; i++)
        gather.add(offsets[i], seen[i]);
    print_time("gather::read", [] {}, [&] { gather.read(); });
    must("the doorbell is wrong", doorbell.load() == round);
    for (const level &one : seen)
        must("a level is wrong", one.sequence == round);
}

int main()
{
    try {
        const CUdeviceptr address = device_memory(doorbell_at + 2 * GPU_PAGE_SIZE);
        run(address);
        must("cuMemFree fails", cuMemFree(address) == CUDA_SUCCESS);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
