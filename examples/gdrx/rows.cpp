// Reads rows out of a table of MIB (by default 1024) in GPU memory, by
// `rows [MIB]`.
#include "example.hpp"

#include <array>

using row = std::array<std::uint64_t, 8>;

constexpr std::size_t wanted = 64; // rows at once
constexpr std::size_t chunk = 1 << 20;

int main(int argc, char **argv)
{
    return run([&] {
        const std::size_t size = (argc > 1 ? std::stoul(argv[1]) : 1024) * chunk;
        const device_memory memory(size + GPU_PAGE_SIZE);
        std::vector<row> rows(chunk / sizeof(row)), found(wanted);
        std::size_t offsets[wanted];

        for (std::size_t at = 0; at < size; at += chunk) { // Each row begins with its own offset.
            for (std::size_t i = 0; i < rows.size(); i++)
                rows[i][0] = at + i * sizeof(row);
            CUDA(cuMemcpyHtoD(memory.address() + at, rows.data(), chunk));
        }
        CUDA(cuCtxSynchronize());

        const gdrx::driver driver;
        const gdrx::mapping mapping(gdrx::pin(driver, memory.address(), size));
        std::vector<gdrx_copy> reads(wanted);
        const auto choose = [&] {
            for (std::size_t i = 0; i < wanted; i++) {
                offsets[i] = any_number(size / sizeof(row)) * sizeof(row);
                reads[i] = {offsets[i], &found[i], sizeof(row)};
            }
        };
        std::printf("%zu of %zu rows of %zu bytes; median, for each row:\n", wanted, size / sizeof(row), sizeof(row));
        print_time("slice::read", wanted, choose, [&] {
            for (std::size_t i = 0; i < wanted; i++)
                found[i] = mapping.read<row>(offsets[i]);
        });
        print_time("slice::read_many", wanted, choose, [&] { mapping.read_many(reads); });
        for (std::size_t i = 0; i < wanted; i++)
            must("a row is wrong", found[i][0] == offsets[i]);
    });
}
