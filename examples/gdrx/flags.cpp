// Polls 64 flags in GPU memory. GPU kernels set them, each in a line of its own, and the CPU looks at all of them.
#include "example.hpp"

constexpr std::size_t flags = 64;
constexpr std::size_t stride = 192; // bytes from one flag to the next, an odd number of lines, so that more loads overlap

int main()
{
    return run([] {
        const device_memory memory(flags * stride + GPU_PAGE_SIZE);
        const gdrx::driver driver;
        const gdrx::mapping mapping(gdrx::pin(driver, memory.address(), flags * stride));
        std::vector<gdrx::word<std::uint32_t>> words;
        std::uint32_t values[flags] = {};
        gdrx::gather all(mapping);

        for (std::size_t i = 0; i < flags; i++) {
            const auto value = static_cast<std::uint32_t>(i + 1); // As a GPU kernel would set it.

            CUDA(cuMemcpyHtoD(memory.address() + i * stride, &value, sizeof(value)));
            words.push_back(mapping.word<std::uint32_t>(i * stride));
            all.add(i * stride, values[i]);
        }
        CUDA(cuCtxSynchronize());

        const auto clear = [&] { std::fill_n(values, flags, 0); };
        std::printf("%zu flags, %zu bytes apart; median, for each flag:\n", flags, stride);
        print_time("word::load", flags, clear, [&] {
            for (std::size_t i = 0; i < flags; i++)
                values[i] = words[i].load();
        });
        print_time("gather::read", flags, clear, [&] { all.read(); });
        for (std::size_t i = 0; i < flags; i++)
            must("a flag is wrong", values[i] == i + 1);
    });
}
