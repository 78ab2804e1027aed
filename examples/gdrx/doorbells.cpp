// An order book in GPU memory. The CPU changes price levels all over it, and then rings a doorbell, by which a GPU kernel knows
// that it may read them.
#include "example.hpp"

struct level {
    std::uint64_t price, quantity, orders, sequence, rest[4];
};

constexpr std::size_t levels = 1 << 20;
constexpr std::size_t changes = 64; // before each ring
constexpr std::size_t doorbell_at = levels * sizeof(level);

int main()
{
    return run([] {
        const device_memory memory(doorbell_at + 2 * GPU_PAGE_SIZE);
        const gdrx::driver driver;
        const gdrx::mapping mapping(gdrx::pin(driver, memory.address(), doorbell_at + GPU_PAGE_SIZE));
        const auto doorbell = mapping.word<std::uint32_t>(doorbell_at);
        std::size_t offsets[changes];
        level changed{};
        std::uint32_t round = 0;

        const auto choose = [&] {
            mapping.flush(); // The writes before have arrived.
            for (auto &offset : offsets)
                offset = any_number(levels) * sizeof(level);
            changed.sequence = ++round;
        };
        std::printf("%zu levels of %zu bytes, then the doorbell; median, for each level:\n", changes, sizeof(level));
        print_time("slice::write", changes, choose, [&] {
            for (const auto offset : offsets)
                mapping.write(offset, changed);
            doorbell.store(round);
        });
        print_time("batch::write", changes, choose, [&] {
            {
                gdrx::batch batch(mapping);
                for (const auto offset : offsets)
                    batch.write(offset, changed);
            }
            doorbell.store(round);
        });
        mapping.flush();
        std::uint32_t rung = 0;
        level seen{};
        CUDA(cuMemcpyDtoH(&rung, memory.address() + doorbell_at, sizeof(rung)));
        CUDA(cuMemcpyDtoH(&seen, memory.address() + offsets[changes - 1], sizeof(seen)));
        must("the doorbell is wrong", rung == round);
        must("a level is wrong", seen.sequence == round);
    });
}
