// Tests of gdrx.hpp: drivers, pins and mappings as objects, copies, words, batches and gathers. CUDA must see the same
// bytes.

#include "gdrx.hpp"

#include <unistd.h>

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"

namespace second {
void store(const gdrx::slice &memory, std::size_t offset, float value); // header.cpp defines this function
}

namespace {

using gdrx::mapping;
using gdrx::pin;
using gdrx::slice;

// Checks that the statement throws std::system_error with this errno.
#define CHECK_THROWS(wanted, ...) check_result(HERE, #__VA_ARGS__, error_of([&] { __VA_ARGS__; }), wanted)

template <class Statement> int error_of(Statement statement)
{
    try {
        statement();
    } catch (const std::system_error &error) {
        CHECK(error.code().category() == std::generic_category());
        CHECK(std::string(error.what()).rfind("gdrx: ", 0) == 0);
        return error.code().value();
    }
    return 0;
}

constexpr std::size_t size = 2 * GPU_PAGE_SIZE;
constexpr auto long_ago = std::chrono::steady_clock::time_point::min();

gpu_buffer buffer;

// Returns the value that CUDA sees at an offset of the buffer.
template <class T> T seen(std::size_t offset)
{
    T value;
    gpu_read(&value, buffer.address + offset, sizeof(value));
    return value;
}

mapping make(const gdrx::driver &driver)
{
    return mapping(pin(driver, buffer.address, size));
}

// Returns the number of this process's pins. Returns -1 unless gdremu emulates gdrdrv, because gdremu counts only pins
// of the gdrdrv that it emulates.
long pins()
{
    const bool counted = driver_is_emulated() && gdrx::driver().attribute(GDR_ATTR_USING_DMA_BUF_MMAP) == 0;
    return counted ? find_emulator().pins() : -1;
}

template <class T> constexpr bool is_owner = std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
                                             std::is_nothrow_destructible_v<T> && !std::is_copy_constructible_v<T> &&
                                             !std::is_copy_assignable_v<T>;
static_assert(is_owner<gdrx::driver> && is_owner<pin> && is_owner<mapping>);
// A slice cannot be assigned to a mapping, because the mapping would then describe memory that it does not own.
static_assert(std::is_convertible_v<const mapping &, slice> && !std::is_convertible_v<mapping &, slice &>);
static_assert(!std::is_assignable_v<mapping &, slice> && !std::is_assignable_v<gdrx::memory &, slice>);
static_assert(!std::is_move_constructible_v<gdrx::batch>);
static_assert(std::is_trivially_copyable_v<slice> && std::is_trivially_copyable_v<gdrx::word<int>>);

void owners_end_in_any_order()
{
    const long before = pins();
    std::optional<gdrx::driver> driver(std::in_place);
    CHECK_THROWS(EINVAL, (void)driver->attribute(GDR_ATTR_MAX));
    (void)driver->attribute(GDR_ATTR_USE_PERSISTENT_MAPPING);

    CHECK_THROWS(EINVAL, pin(*driver, buffer.address, 0));
    CHECK_THROWS(EINVAL, pin(*driver, buffer.address + 12, SIZE_MAX));
    CHECK(error_of([&] { pin(*driver, 16 * GPU_PAGE_SIZE, 1); }) != 0);

    mapping memory = make(*driver);
    CHECK_EQUAL(memory.size(), size);
    CHECK_EQUAL(memory.device_address(), buffer.address);
    CHECK_EQUAL(memory.raw().size, size);
    CHECK(memory.type() != GDR_MAPPING_TYPE_NONE && memory.address() != nullptr);
    CHECK_EQUAL(memory.pinned().size(), size);
    CHECK(!memory.pinned().is_freed());
    {
        const gdrx::driver moved = std::move(*driver);
        CHECK(driver->raw() == nullptr && moved.raw() != nullptr);
        CHECK_THROWS(EINVAL, make(*driver));
    }
    driver.reset();
    memory.write(0, 1);
    CHECK_EQUAL(seen<int>(0), 1);

    // A move of the owner leaves the mapping at its addresses, so a slice stays valid.
    const slice view = memory;
    mapping moved = std::move(memory);
    view.write(0, 2);
    CHECK_EQUAL(moved.read<int>(0), 2);
    CHECK_EQUAL(memory.size() + memory.pinned().size(), 0);
    CHECK_THROWS(EINVAL, memory.write(0, 2));
    CHECK_THROWS(EINVAL, memory.read_many(nullptr, 0));
    CHECK_THROWS(EINVAL, memory.flush());
    CHECK_THROWS(EINVAL, (void)memory.word<int>(0));
    CHECK_THROWS(EINVAL, gdrx::batch batch(memory));
    CHECK_THROWS(EINVAL, gdrx::gather(memory).read());
    CHECK_THROWS(EINVAL, (void)memory.unmap());
    CHECK_THROWS(EINVAL, (void)memory.pinned().is_freed());
    CHECK_THROWS(EINVAL, (void)mapping(pin()));

    mapping &self = moved;
    moved = std::move(self);
    CHECK_EQUAL(moved.read<int>(0), 2);

    // An assignment unmaps and unpins the mapping that it replaces.
    gdrx::driver other;
    mapping second = make(other);
    CHECK(before < 0 || pins() == before + 2);
    second = std::move(moved);
    CHECK(before < 0 || pins() == before + 1);
    CHECK_EQUAL(second.read<int>(0), 2);
    const void *const address = second.address();
    CHECK(is_reserved(address));
    second = mapping();
    CHECK(!is_reserved(address));
    second = make(other);

    // After an unmap, or if a map fails, the caller owns the pin, and can map it again.
    pin unmapped = second.unmap();
    CHECK_EQUAL(second.size(), 0);
    pin &same = unmapped;
    unmapped = std::move(same);
    CHECK_EQUAL(unmapped.device_address(), buffer.address);
    pin again(other, buffer.address, size);
    void *const busy = map(other.raw(), again.raw(), 1);
    CHECK_THROWS(EAGAIN, (void)mapping(std::move(again)));
    CHECK_OK(gdr_unmap(other.raw(), again.raw(), busy, 1));
    CHECK_EQUAL(mapping(std::move(again)).read<int>(0), 2);
    CHECK(again.raw().h == 0 && again.size() == 0 && again.device_address() == 0);
    CHECK_EQUAL(mapping(std::move(unmapped)).read<int>(0), 2);
    CHECK(before < 0 || pins() == before);
}

void any_address_is_pinned()
{
    const gdrx::driver driver;
    for (std::size_t head : {std::size_t{12}, GPU_PAGE_SIZE - 4, GPU_PAGE_SIZE + 8}) {
        const mapping memory(pin(driver, buffer.address + head, 8));
        CHECK_EQUAL(memory.device_address(), buffer.address + head);
        memory.write(4, 0x1234567);
        CHECK_EQUAL(seen<int>(head + 4), 0x1234567);
        CHECK_THROWS(EINVAL, memory.write(5, 0));
    }
}

template <class T> void check_word(const slice &memory, T value, T other)
{
    for (const std::size_t offset : {std::size_t{0}, 3 * sizeof(T), memory.size() - sizeof(T)}) {
        const auto word = memory.word<T>(offset);
        CHECK_EQUAL(word.device_address(), buffer.address + offset);
        word.store(value);
        const T found = seen<T>(offset);
        CHECK_BYTES(&found, &value, sizeof(T));
        gpu_write(buffer.address + offset, &other, sizeof(T));
        const T loaded = word.load();
        CHECK_BYTES(&loaded, &other, sizeof(T));
    }
    CHECK_THROWS(EINVAL, (void)memory.word<T>(memory.size()));
    CHECK_THROWS(EINVAL, (void)memory.word<T>(SIZE_MAX));
    CHECK_THROWS(EINVAL, (void)memory.word<T>(SIZE_MAX - sizeof(T) + 1));
    CHECK_THROWS(EINVAL, (void)slice().word<T>(0));
    if constexpr (sizeof(T) > 1) {
        CHECK_THROWS(EINVAL, (void)memory.word<T>(1));
        CHECK_THROWS(EINVAL, (void)memory.word<T>(memory.size() - 1));
        CHECK_THROWS(EINVAL, (void)memory.part(sizeof(T) - 1, 2 * sizeof(T)).word<T>(0));
        CHECK_EQUAL(memory.part(1, 2 * sizeof(T)).word<T>(sizeof(T) - 1).device_address(), buffer.address + sizeof(T));
    }
}

enum class color : std::uint8_t { red = 1, green };

struct pair {
    std::int16_t a, b;
};

void words_have_one_access(const slice &memory)
{
    check_word<color>(memory, color::red, color::green);
    check_word<std::int16_t>(memory, -2, 0x1234);
    check_word<float>(memory, 0.5f, -1e30f);
    check_word<pair>(memory, {-1, 2}, {3, -4});
    check_word<double>(memory, 1e300, -0.0);
    check_word<std::uint64_t>(memory, 0x0123456789abcdef, ~0ull);

    const auto word = memory.word<int>(64);
    word.store(5);
    CHECK(!word.spin_until([](int found) { return found == 6; }, long_ago).has_value());
    CHECK_EQUAL(word.spin_until([](int found) { return found == 5; }, long_ago).value(), 5);
    CHECK_EQUAL(word.spin_until([](int found) { return found == 5; }), 5);
    CHECK_EQUAL(seen<int>(64), 5);
    CHECK_EQUAL(word.device_address(), buffer.address + 64);
}

void copies_stay_inside(const slice &memory)
{
    const std::vector<std::uint16_t> numbers = {1, 2, 3};
    memory.write(10, numbers);
    CHECK_EQUAL(seen<std::uint16_t>(14), 3);
    CHECK_EQUAL((memory.read<std::array<std::uint16_t, 3>>(10)[1]), 2);
    memory.write(20, std::string("text"));
    memory.write(24, "!"); // this also writes the zero at the end
    char text[6];
    memory.read(20, text, sizeof(text));
    CHECK_STRING(text, "text!");
    std::vector<std::uint16_t> found(3);
    memory.read(10, found);
    CHECK(found == numbers);
    memory.read(22, text);
    CHECK_STRING(text, "xt!");
    memory.write(size - 1, 'x');
    CHECK_EQUAL(memory.read<char>(size - 1), 'x');
    memory.flush();

    memory.write(size, nullptr, 0);
    memory.read(size, nullptr, 0);
    memory.read_many(nullptr, 0);
    memory.write(size, std::vector<int>());
    CHECK_THROWS(EINVAL, memory.read(size + 1, nullptr, 0));
    CHECK_THROWS(EINVAL, memory.read(0, nullptr, 1));
    CHECK_THROWS(EINVAL, memory.write(size - 3, 0));
    CHECK_THROWS(EINVAL, memory.write(SIZE_MAX, 0));
    CHECK_THROWS(EINVAL, memory.write(8, &memory, SIZE_MAX));
    CHECK_THROWS(EINVAL, (void)memory.read<double>(SIZE_MAX - 7));

    const slice part = memory.part(8, 8);
    CHECK_EQUAL(part.device_address(), buffer.address + 8);
    part.write(2, 'y');
    CHECK_EQUAL(seen<char>(10), 'y');
    CHECK_THROWS(EINVAL, part.write(5, 0));
    CHECK_THROWS(EINVAL, (void)part.part(0, 0));
    CHECK_THROWS(EINVAL, (void)part.part(1, 8));
    CHECK_THROWS(EINVAL, (void)part.part(SIZE_MAX, 2));

    int written[] = {1, 2, 3}, read[3] = {};
    std::vector<gdrx_copy> copies;
    for (std::size_t i = 0; i < 3; i++)
        copies.push_back({512 * i, &written[i], sizeof(int)});
    memory.write_many(copies);
    CHECK_EQUAL(seen<int>(1024), 3);
    const gdrx_copy two[] = {{512, &read[1], sizeof(int)}, {1024, &read[2], sizeof(int)}};
    memory.read_many(two);
    CHECK(read[0] == 0 && read[1] == 2 && read[2] == 3);

    second::store(memory, 128, 1.5f);
    CHECK(seen<float>(128) == 1.5f);
}

// Returns a slice of the same memory, for which gdrx_fence faults. So a test notices whether a batch calls gdrx_fence.
slice without_fence(const slice &memory)
{
    gdrx_map map = memory.raw();
    void *const unreadable = mmap(nullptr, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(unreadable != MAP_FAILED);
    map.several_types = static_cast<unsigned char *>(unreadable);
    return slice(map, memory.device_address());
}

template <class Statement> bool faults(Statement statement)
{
    const fault_handlers old = catch_faults();
    const int signal = sigsetjmp(fault_return, 1);
    if (signal == 0)
        statement();
    release_faults(&old);
    return signal == SIGSEGV;
}

void batches_and_gathers_group_copies(const slice &memory)
{
    gdrx::gather gather(memory);
    std::uint64_t head = 0;
    std::vector<int> body(3);
    char tail[2];
    gather.add(0, head);
    gather.add(64, body);
    gather.add(size - 2, tail, 2);
    gather.add(size, nullptr, 0);
    CHECK_THROWS(EINVAL, gather.add(size - 7, head));
    CHECK_THROWS(EINVAL, gather.add(SIZE_MAX, head));
    CHECK_THROWS(EINVAL, gather.add(0, nullptr, 1));
    CHECK_EQUAL(gather.size(), 4);
    for (std::uint64_t round = 1; round < 4; round++) {
        {
            gdrx::batch batch(memory);
            batch.store(memory.word<std::uint64_t>(0), round);
            batch.write(64, std::array<int, 3>{1, 2, static_cast<int>(round)});
            batch.commit();
            CHECK_EQUAL(seen<std::uint64_t>(0), round);
            batch.write(size - 2, "ab", 2);
            CHECK_THROWS(EINVAL, batch.write(size - 1, "ab", 2));
        }
        gather.read();
        CHECK_EQUAL(head, round);
        CHECK_EQUAL(body[2], round);
        CHECK(tail[0] == 'a' && tail[1] == 'b');
    }
    if (slowness() == 1) {
        alignas(gdrx::batch) unsigned char place[sizeof(gdrx::batch)];
        const slice unfenced = without_fence(memory);
        auto *const batch = new (place) gdrx::batch(unfenced);
        batch->commit();
        batch->write(0, 1);
        CHECK(faults([&] { batch->commit(); }));
        batch->write(0, 1);
        CHECK(faults([&] { batch->~batch(); }));
    }
    gather.clear();
    CHECK_EQUAL(gather.size(), 0);
    gather.read();
}

std::optional<gdrx::driver> inherited_driver;
std::optional<mapping> inherited;

void use_in_child()
{
    CHECK_THROWS(EACCES, (void)inherited->read<int>(0));
    CHECK_THROWS(EACCES, inherited->write(0, 1));
    CHECK_THROWS(EACCES, inherited->flush());
    CHECK_THROWS(EACCES, gdrx::batch batch(*inherited));
    CHECK_THROWS(EACCES, (void)inherited_driver->attribute(GDR_ATTR_USE_PERSISTENT_MAPPING));
    CHECK_THROWS(EACCES, (void)pin(*inherited_driver, buffer.address, size));
    mapping moved = std::move(*inherited);
    inherited.reset();
    inherited_driver.reset();
}

void child_changes_nothing()
{
    inherited_driver.emplace();
    inherited = make(*inherited_driver);
    gdrx::batch batch(*inherited);
    batch.write(size - 4, 1);
    in_child(use_in_child);
    batch.write(size - 4, 2);
    CHECK_EQUAL(inherited->read<int>(size - 4), 2);
    // The destructor of the batch runs at the end of this function, after its mapping and its driver were destroyed.
    inherited.reset();
    inherited_driver.reset();
}

} // namespace

int main()
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, size);
    owners_end_in_any_order();
    any_address_is_pinned();
    {
        const gdrx::driver driver;
        const mapping memory = make(driver);
        words_have_one_access(memory);
        copies_stay_inside(memory);
        batches_and_gathers_group_copies(memory);
    }
    if (!is_another_library())
        child_changes_nothing();
    gpu_free(&buffer);
    return passed("gdrx_cxx");
}
