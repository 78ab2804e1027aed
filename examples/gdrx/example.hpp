// GPU memory, time, and a table for the examples. cuda.h serves in place of cuda_driver.h.
#pragma once

#include "cuda_driver.h"
#include "gdrx.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

inline void must(const char *what, bool holds)
{
    if (!holds)
        throw std::runtime_error(what);
}

inline void cuda(const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS)
        throw std::runtime_error(std::string(call) + ": CUDA error " + std::to_string(result));
}

#define CUDA(call) cuda(#call, (call))

// GPU memory, freed by CUDA when its owner ends.
class device_memory {
  public:
    explicit device_memory(std::size_t size)
    {
        CUcontext context;

        CUDA(cuInit(0));
        CUDA(cuDevicePrimaryCtxRetain(&context, 0));
        CUDA(cuCtxSetCurrent(context));
        CUDA(cuMemAlloc(&address_, size));
    }

    device_memory(const device_memory &) = delete;

    ~device_memory()
    {
        cuMemFree(address_);
    }

    CUdeviceptr address() const
    {
        return address_;
    }

  private:
    CUdeviceptr address_;
};

inline std::size_t any_number(std::size_t limit)
{
    static std::mt19937_64 numbers(1);

    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(numbers);
}

// Prints the median of many rounds, by item. `prepare` comes before each, and is not timed.
template <class Prepare, class Round>
void print_time(const char *what, std::size_t items, Prepare prepare, Round round)
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
    std::printf("%-28s %8.1f ns\n", what, times[1000] / static_cast<double>(items));
}

// The exit status of an example.
template <class Example> int run(Example example)
{
    try {
        example();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
