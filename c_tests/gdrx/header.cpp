// Includes gdrx.hpp first, and uses all of its templates. With -DREFUSED=N, it has lines that the compiler must refuse.
// The compiler's message must contain the comment after REFUSED == N. ci/scripts/check-headers.sh checks that, and
// compiles this file in every version of C++ since C++17. The program gdrx_cxx consists of this file and cxx.cpp, which
// also includes gdrx.hpp.

#include "gdrx.hpp"

#include <memory>

#if __cplusplus >= 202002L
#include <span>
#endif

#ifndef REFUSED
#define REFUSED 0
#endif

template class gdrx::word<float>;

// Stores the value in the mapping by each of the header's templates. cxx.cpp calls this.
namespace second {
void store(const gdrx::slice &memory, std::size_t offset, float value);
}

void second::store(const gdrx::slice &memory, std::size_t offset, float value)
{
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
    const std::vector<float> values = {value};
    const auto word = memory.word<float>(offset);
    std::array<float, 1> found;
    gdrx::gather gather(memory);
    gather.add(offset, found);
    gdrx::batch batch(memory);
    batch.write(offset, values);
    batch.store(word, value);
    batch.commit();
#if __cplusplus >= 202002L
    memory.write(offset, std::span(values));
    gather.add(offset, std::span(found));
    memory.read(offset, std::span(found));
#endif
    gather.read();
    if (!word.spin_until([&](float read) { return !(read < found[0]); }, deadline))
        memory.write(offset, memory.read<float>(offset));

#if REFUSED == 1 // a word has 1, 2, 4 or 8 bytes
    (void)memory.word<std::array<char, 3>>(0);
#elif REFUSED == 2 // a word must be trivially copyable
    static_assert(sizeof(std::unique_ptr<int>) == 8);
    (void)memory.word<std::unique_ptr<int>>(0);
#elif REFUSED == 3 // a word must be trivially copyable, and no pointer
    (void)memory.word<bool>(0);
#elif REFUSED == 4 // a value must be trivially copyable, and no pointer
    const char *text = "text";
    memory.write(0, text);
#elif REFUSED == 5 // elements must be trivially copyable
    memory.write(0, std::vector<std::string>());
#elif REFUSED == 6 // reads need elements that are not const
    gather.add(0, values);
#elif REFUSED == 7 // a value must be trivially copyable, and no pointer, view
    (void)memory.read<std::string>(0);
#elif REFUSED == 8 // protected
    gdrx::mapping mapping;
    static_cast<gdrx::memory &>(mapping) = memory;
#elif REFUSED == 9 // deleted
    gdrx::batch moved = std::move(batch);
#elif REFUSED == 10 // deleted
    gdrx::mapping first, second = first;
#elif REFUSED == 12 // reads need a place that stays
    gather.add(0, std::vector<int>(3));
#elif REFUSED == 13 // reads need a place that stays
    memory.read(0, int(3));
#elif REFUSED == 14 // a value must be trivially copyable, and no pointer
    memory.write(0, std::optional<int>(3));
#elif REFUSED == 15 // a value must be trivially copyable, and no pointer
    (void)memory.read<std::atomic<int>>(0);
#elif REFUSED == 16 // reads need a place that stays
    struct owner {
        std::shared_ptr<int> memory;
        int *data() const { return memory.get(); }
        std::size_t size() const { return 1; }
    };
    gather.add(0, owner{std::make_shared<int>()});
#elif REFUSED == 17 // no pointer, view, bool, optional, atomic, const or array of C
    (void)memory.word<std::array<bool, 4>>(0);
#elif REFUSED == 11 // no pointer, view, bool, optional, atomic, const or array of C
    (void)memory.word<char[4]>(0);
#endif
}
