/*
 * gdrx.hpp: mapped GPU memory for C++17 programs, with owners that clean up, copies, words, batches, gathers, flags and rings.
 *
 * It is over gdrapi.h and gdrx.h, and has their order, rules for threads and speed. Link libgdrx and any libgdrapi.so.2.
 *
 *     gdrx::driver driver;
 *     gdrx::mapping mapping(gdrx::pin(driver, device_address, size));
 *     mapping.write(0, payload);                        the bytes of an object or a container
 *     mapping.word<std::uint32_t>(4096).store(1);       one store
 *
 * Errors. Functions throw std::system_error with the errno value of the call that failed (std::generic_category), and nothing
 * is read or written then. Destructors, and functions that are noexcept, never throw.
 *
 * Lifetime. A mapping owns its pin, and a pin keeps its driver open. Destroy them in any order. All else (slice, word, batch,
 * gather, flag, ring and its ends) refers to the mapping, and may be copied and kept. Do not use it after the mapping's end,
 * nor where pin::is_freed reports that the memory was freed. The library cannot detect that. Moving a mapping leaves it where
 * it is.
 *
 * Types. A T, a value in GPU memory, is trivially copyable and default-constructible. Pointers, spans and bool are refused,
 * since a T has the bits that the GPU writes.
 *
 * There is no reference or pointer to a T in the mapping. Plain accesses to it are not ordered, may be split, and are slow, so
 * values go through copies and words.
 *
 * Fork. In a forked child, functions throw EACCES, those of word and flag raise SIGSEGV, and destructors leave the parent's
 * memory as it is.
 */

#ifndef GDRX_HPP
#define GDRX_HPP

#if __cplusplus < 201703L
#error "gdrx.hpp is for C++17 and later: compile with -std=c++17, or include gdrx.h"
#endif
#ifndef __cpp_exceptions
#error "gdrx.hpp reports errors by exceptions: compile with them, or include gdrx.h"
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "gdrx.h"

namespace gdrx {

namespace detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void fail(int error, const std::string &what)
{
    throw std::system_error(error, std::generic_category(), "gdrx: " + what);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_of(int error, const char *function, const char *advice)
{
    if (error == EACCES)
        advice = "this is a forked child: open the driver, pin and map in the process that uses them";
    fail(error, std::string(function) + " failed; " + advice + "; GDRCOPY_ENABLE_LOGGING=1 logs the reason");
}

/* Throws unless a function of gdrapi.h or gdrx.h has succeeded. */
inline void check(int error, const char *function, const char *advice)
{
    if (error != 0)
        fail_of(error, function, advice);
}

/* Throws if the owner of the connection was moved from, since libgdrapi need not check that. */
inline gdr_t open_one(const std::shared_ptr<gdr> &connection)
{
    if (!connection)
        fail(EINVAL, "this object was moved from: use the one that it was moved to");
    return connection.get();
}

inline constexpr const char *stay_inside = "stay inside the memory, and use no slice that is empty or moved from";

template <class T, class = void> inline constexpr bool has_elements = false;
template <class T>
inline constexpr bool has_elements<T, std::void_t<decltype(std::data(std::declval<T &>()), std::size(std::declval<T &>()))>> =
    true;

template <class T> inline constexpr bool is_array = std::is_array_v<T>;
template <class T, std::size_t n> inline constexpr bool is_array<std::array<T, n>> = true;

/* Has other bits than the GPU may write. */
template <class T>
inline constexpr bool is_special =
    std::is_pointer_v<T> || std::is_null_pointer_v<T> || std::is_member_pointer_v<T> || std::is_same_v<T, bool>;

/* A type of values and messages in GPU memory. */
template <class T>
inline constexpr bool is_plain = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> &&
                                 !is_special<std::remove_cv_t<T>> && !std::is_volatile_v<T> &&
                                 (!has_elements<T> || is_array<T>);

/* The copy between this offset and an object or, of containers and spans, its elements. */
template <class T> gdrx_copy copy_of(std::size_t offset, T &value)
{
    if constexpr (has_elements<T>) {
        using element = std::remove_pointer_t<decltype(std::data(value))>;
        static_assert(is_plain<element>, "elements must be trivially copyable, and no pointers, views or bool");
        return {offset, const_cast<std::remove_const_t<element> *>(std::data(value)), std::size(value) * sizeof(element)};
    } else {
        static_assert(is_plain<T>, "a value must be trivially copyable, and no pointer or bool; pass a pointer with a size");
        return {offset, const_cast<std::remove_const_t<T> *>(std::addressof(value)), sizeof(T)};
    }
}

/* The same for a read. */
template <class T> gdrx_copy copy_into(std::size_t offset, T &value)
{
    if constexpr (has_elements<T>)
        static_assert(!std::is_const_v<std::remove_pointer_t<decltype(std::data(value))>>,
                      "reads need elements that are not const");
    else
        static_assert(!std::is_const_v<T>, "reads need a value that is not const");
    return copy_of(offset, value);
}

template <std::size_t size> struct access;
template <> struct access<1> {
    using bits = std::uint8_t;
    static constexpr auto load = gdrx_load_u8;
    static constexpr auto store = gdrx_store_u8, store_unfenced = gdrx_store_u8_unfenced;
};
template <> struct access<2> {
    using bits = std::uint16_t;
    static constexpr auto load = gdrx_load_u16;
    static constexpr auto store = gdrx_store_u16, store_unfenced = gdrx_store_u16_unfenced;
};
template <> struct access<4> {
    using bits = std::uint32_t;
    static constexpr auto load = gdrx_load_u32;
    static constexpr auto store = gdrx_store_u32, store_unfenced = gdrx_store_u32_unfenced;
};
template <> struct access<8> {
    using bits = std::uint64_t;
    static constexpr auto load = gdrx_load_u64;
    static constexpr auto store = gdrx_store_u64, store_unfenced = gdrx_store_u64_unfenced;
};

/* A deadline that never passes. */
struct never {};

constexpr bool has_passed(never) noexcept
{
    return false;
}

template <class Clock, class Duration> bool has_passed(const std::chrono::time_point<Clock, Duration> &deadline)
{
    return Clock::now() >= deadline;
}

/* Attempts it until it succeeds, which it returns, or until the deadline; at least once. */
template <class Attempt, class Deadline> bool spin(Attempt attempt, const Deadline &deadline)
{
    while (!attempt())
        if (has_passed(deadline))
            return false;
    return true;
}

} // namespace detail

template <class T> class word;
class batch;

/**
 * An open connection to GPU memory. It is closed where the last of it and its pins ends.
 *
 * A moved-from one is empty, fit for assignment and destruction.
 */
class driver {
  public:
    /**
     * Opens it by gdr_open.
     *
     * @throws std::system_error the errno of gdr_open
     */
    driver() : open_(open(), close{})
    {
    }

    driver(driver &&) noexcept = default;
    driver &operator=(driver &&) noexcept = default;
    ~driver() = default;

    /** The attributes of gdr_get_attribute. @throws std::system_error */
    int attribute(gdr_attr_t attribute) const
    {
        int value = 0;
        const gdr_t g = detail::open_one(open_);
        detail::check(gdr_get_attribute(g, attribute, &value), "gdr_get_attribute", "pass a gdr_attr_t");
        return value;
    }

    /** For the functions of gdrapi.h; NULL if it was moved from. Do not close it. */
    gdr_t raw() const noexcept
    {
        return open_.get();
    }

  private:
    friend class pin;

    static gdr_t open()
    {
        const gdr_t g = gdr_open();
        if (g == nullptr)
            detail::fail(errno,
                         "gdr_open failed; load gdrdrv or use CUDA 13.3 or later (`gdrcopy doctor` names what is missing)");
        return g;
    }

    struct close {
        void operator()(gdr_t g) const noexcept
        {
            gdr_close(g);
        }
    };

    std::shared_ptr<gdr> open_;
};

/** Pinned GPU memory, of any alignment. Keeps its driver open; unpins in its destructor. */
class pin {
  public:
    /** None: what a moved-from pin is. */
    pin() noexcept = default;

    /**
     * Pins size bytes from a device address on; flags is a set of gdr_pin_flags_t.
     *
     * @throws std::system_error EINVAL: size is 0, or that is no GPU memory; the errors of gdr_pin_buffer_v2
     */
    pin(const driver &driver, std::uint64_t device_address, std::size_t size, std::uint32_t flags = GDR_PIN_FLAG_DEFAULT)
        : driver_(driver.open_), device_address_(device_address), head_(device_address % GPU_PAGE_SIZE), size_(size)
    {
        if (size == 0 || size > SIZE_MAX - head_)
            detail::fail(EINVAL, "cannot pin " + std::to_string(size) + " bytes: pass the size of a buffer");
        detail::check(gdr_pin_buffer_v2(detail::open_one(driver_), device_address - head_, head_ + size, flags, &handle_),
                      "gdr_pin_buffer_v2", "pass GPU memory of this process, such as cuMemAlloc returns");
    }

    pin(pin &&other) noexcept
    {
        swap(other);
    }

    pin &operator=(pin &&other) noexcept
    {
        pin old(std::move(other));
        swap(old);
        return *this;
    }

    ~pin()
    {
        if (handle_.h != 0)
            gdr_unpin_buffer(driver_.get(), handle_);
    }

    void swap(pin &other) noexcept
    {
        std::swap(driver_, other.driver_);
        std::swap(handle_, other.handle_);
        std::swap(device_address_, other.device_address_);
        std::swap(head_, other.head_);
        std::swap(size_, other.size_);
    }

    /** As pinned; 0 if it is none. */
    std::uint64_t device_address() const noexcept
    {
        return device_address_;
    }

    /** Bytes, as pinned; 0 if it is none. */
    std::size_t size() const noexcept
    {
        return size_;
    }

    /** Returns whether the GPU memory was freed; if so, it must not be accessed any more. @throws std::system_error */
    bool is_freed() const
    {
        int flag = 0;
        detail::check(gdr_get_callback_flag(detail::open_one(driver_), handle_, &flag), "gdr_get_callback_flag",
                      "use a pin of this process");
        return flag != 0;
    }

    /** For the functions of gdrapi.h. Do not unpin it. */
    gdr_mh_t raw() const noexcept
    {
        return handle_;
    }

  private:
    friend class mapping;

    std::shared_ptr<gdr> driver_;
    gdr_mh_t handle_ = {};
    std::uint64_t device_address_ = 0;
    std::size_t head_ = 0; /* bytes from the GPU page to device_address_ */
    std::size_t size_ = 0;
};

/**
 * A range of mapped GPU memory, whose mapping it does not keep. Copying it copies no memory; threads may use it at once.
 *
 * A default one is empty, and every access to it fails with EINVAL.
 */
class slice {
  public:
    slice() noexcept = default;

    /** A map that gdrx_attach has described, for programs that map by gdrapi.h; device_address is that of its first byte. */
    slice(const gdrx_map &map, std::uint64_t device_address) noexcept : map_(map), device_address_(device_address)
    {
    }

    /** Bytes. */
    std::size_t size() const noexcept
    {
        return map_.size;
    }

    /** The address of byte 0, for GPU kernels and CUDA. */
    std::uint64_t device_address() const noexcept
    {
        return device_address_;
    }

    /** How the CPU caches it; GDR_MAPPING_TYPE_NONE if it is empty. */
    gdr_mapping_type_t type() const noexcept
    {
        return map_.type;
    }

    /** The address of byte 0 in this process. Use it for comparisons and logs; do not pass it to memcpy, and do not cast it to
     * a T*. */
    void *address() const noexcept
    {
        return map_.address;
    }

    /** For the functions of gdrx.h. */
    const gdrx_map &raw() const noexcept
    {
        return map_;
    }

    /** The size bytes from offset on. @throws std::system_error EINVAL: they are 0, or not all inside */
    slice part(std::size_t offset, std::size_t size) const
    {
        if (size == 0 || size > map_.size || offset > map_.size - size)
            outside(offset, size);
        slice part = *this;
        part.map_.address = static_cast<char *>(map_.address) + offset;
        part.map_.size = size;
        part.device_address_ += offset;
        return part;
    }

    /**
     * The word at offset.
     *
     * @throws std::system_error EINVAL: it is not inside, or its address is not a multiple of its size
     */
    template <class T> gdrx::word<T> word(std::size_t offset) const;

    /** gdrx_write_many of one write. @throws std::system_error EINVAL, EACCES */
    void write(std::size_t offset, const void *host, std::size_t size) const
    {
        const gdrx_copy copy = {offset, const_cast<void *>(host), size};
        write_many(&copy, 1);
    }

    /** Writes an object or, of arrays, containers and spans, the elements. @throws std::system_error EINVAL, EACCES */
    template <class T> void write(std::size_t offset, const T &value) const
    {
        const gdrx_copy copy = detail::copy_of(offset, value);
        write_many(&copy, 1);
    }

    /** gdrx_read_many of one read. It is no single load; use word for that. @throws std::system_error EINVAL, EACCES */
    void read(std::size_t offset, void *host, std::size_t size) const
    {
        const gdrx_copy copy = {offset, host, size};
        read_many(&copy, 1);
    }

    /** Reads a T. @throws std::system_error EINVAL, EACCES */
    template <class T> T read(std::size_t offset) const
    {
        static_assert(detail::is_plain<T>, "a value must be trivially copyable, and no pointer, view or bool");
        T value{};
        const gdrx_copy copy = detail::copy_into(offset, value);
        read_many(&copy, 1);
        return value;
    }

    /** gdrx_write_many: n writes, one fence. @throws std::system_error EINVAL, EACCES */
    void write_many(const gdrx_copy *copies, std::size_t n) const
    {
        detail::check(gdrx_write_many(&map_, copies, n), "gdrx_write_many", detail::stay_inside);
    }

    /** The same of an array, container or span of gdrx_copy. */
    template <class Copies> void write_many(const Copies &copies) const
    {
        write_many(std::data(copies), std::size(copies));
    }

    /** gdrx_read_many: n reads, whose loads overlap. @throws std::system_error EINVAL, EACCES */
    void read_many(const gdrx_copy *copies, std::size_t n) const
    {
        detail::check(gdrx_read_many(&map_, copies, n), "gdrx_read_many", detail::stay_inside);
    }

    /** The same of an array, container or span of gdrx_copy. */
    template <class Copies> void read_many(const Copies &copies) const
    {
        read_many(std::data(copies), std::size(copies));
    }

    /** Returns when all earlier writes of this thread to this GPU have arrived. @throws std::system_error EINVAL, EACCES */
    void flush() const
    {
        detail::check(gdrx_flush(&map_), "gdrx_flush", detail::stay_inside);
    }

  private:
    template <class T> friend class ring;
    template <class T> friend class ring_sender;
    friend class batch;

    [[noreturn, gnu::cold, gnu::noinline]] void outside(std::size_t offset, std::size_t size) const
    {
        detail::fail(EINVAL, std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                                 " are no part: choose 1 or more of the slice's " + std::to_string(map_.size) + " bytes");
    }

    [[noreturn, gnu::cold, gnu::noinline]] static void unaligned(std::size_t offset, std::size_t size)
    {
        detail::fail(EINVAL, "offset " + std::to_string(offset) + " is no place for a word of " + std::to_string(size) +
                                 " bytes: use an address that is a multiple of its size");
    }

    /* Throws in a forked child, and if it is empty. */
    void check_process() const
    {
        detail::check(gdrx_write_unfenced(&map_, 0, nullptr, 0), "gdrx_write_unfenced", detail::stay_inside);
    }

    gdrx_map map_ = {};
    std::uint64_t device_address_ = 0;
};

/**
 * Mapped GPU memory, a slice that owns its pin, and unmaps in its destructor. Copies of it as a slice do not keep it.
 *
 * A moved-from one is empty, as a slice is.
 */
class mapping : public slice {
  public:
    /** None: what a moved-from mapping is. */
    mapping() noexcept = default;

    /**
     * Maps the memory of a pin, which it takes over.
     *
     * @throws std::system_error the errors of gdr_map_v2 and gdrx_attach; the caller keeps the pin then, not mapped
     */
    explicit mapping(pin &&memory, gdr_map_flags_t flags = GDR_MAP_FLAG_DEFAULT)
        : slice(map(memory, flags)), pin_(std::move(memory))
    {
    }

    mapping(mapping &&other) noexcept : slice(std::exchange(other.as_slice(), {})), pin_(std::move(other.pin_))
    {
    }

    mapping &operator=(mapping &&other) noexcept
    {
        mapping old(std::move(other));
        std::swap(as_slice(), old.as_slice());
        pin_.swap(old.pin_);
        return *this;
    }

    /* The pin's destructor also unmaps; this gives the addresses back. */
    ~mapping()
    {
        if (size() != 0)
            gdr_unmap(detail::open_one(pin_.driver_), pin_.handle_, start(), pin_.head_ + pin_.size_);
    }

    /** Its pin, for instance to ask whether its memory was freed. */
    const pin &pinned() const noexcept
    {
        return pin_;
    }

    /**
     * Unmaps it, and returns the pin, which can be mapped again. The mapping is empty then.
     *
     * @throws std::system_error the errors of gdr_unmap; the mapping is as it was then
     */
    pin unmap()
    {
        detail::check(gdr_unmap(detail::open_one(pin_.driver_), pin_.handle_, start(), pin_.head_ + pin_.size_), "gdr_unmap",
                      "unmap a mapping of this process");
        as_slice() = {};
        return std::move(pin_);
    }

  private:
    slice &as_slice() noexcept
    {
        return *this;
    }

    /* The address that gdr_map_v2 returned. */
    void *start() const noexcept
    {
        return static_cast<char *>(address()) - pin_.head_;
    }

    static slice map(const pin &memory, gdr_map_flags_t flags)
    {
        const gdr_t g = detail::open_one(memory.driver_);
        const std::size_t size = memory.head_ + memory.size_;
        void *start = nullptr;
        gdrx_map map = {};

        detail::check(gdr_map_v2(g, memory.handle_, &start, size, flags), "gdr_map_v2",
                      "map a pin once, by a type that the platform has");
        const int error = gdrx_attach(&map, g, memory.handle_, static_cast<char *>(start) + memory.head_, memory.size_);
        if (error != 0)
            gdr_unmap(g, memory.handle_, start, size);
        detail::check(error, "gdrx_attach", "free some memory");
        return slice(map, memory.device_address_);
    }

    pin pin_;
};

/**
 * A naturally aligned word of GPU memory. Each access is one transaction, so the GPU and the CPU see old or new values, never a
 * mix. T has 1, 2, 4 or 8 bytes, and is an integer, floating-point number, enumeration or struct of such.
 *
 * Made by slice::word. In a forked child, its accesses raise SIGSEGV.
 */
template <class T> class word {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a word has 1, 2, 4 or 8 bytes");
    static_assert(detail::is_plain<T> && !std::is_const_v<T>,
                  "a word must be trivially copyable, and no pointer, view, bool or const");

  public:
    /** For GPU kernels and CUDA. */
    std::uint64_t device_address() const noexcept
    {
        return device_address_;
    }

    /** Reads it by one load, as gdrx_load_u32 does. It is an acquire, no older than the call. Takes a PCIe round trip. */
    T load() const noexcept
    {
        const typename access::bits bits = access::load(&map_, 0);
        T value{};
        std::memcpy(std::addressof(value), &bits, sizeof(value));
        return value;
    }

    /** Writes it by one store, as gdrx_store_u32 does. It is a release, pushed out on return. */
    void store(T value) const noexcept
    {
        access::store(&map_, 0, bits_of(value));
    }

    /** Reads it again and again until the predicate accepts the value, which is returned. */
    template <class Predicate> T spin_until(Predicate predicate) const
    {
        return *spin(predicate, detail::never{});
    }

    /** The same, until the deadline at the latest; at least once. Returns nothing if that passed. */
    template <class Predicate, class Clock, class Duration>
    [[nodiscard]] std::optional<T> spin_until(Predicate predicate,
                                              const std::chrono::time_point<Clock, Duration> &deadline) const
    {
        return spin(predicate, deadline);
    }

  private:
    friend class slice;
    friend class batch;
    using access = detail::access<sizeof(T)>;

    explicit word(const slice &place) noexcept : map_(place.raw()), device_address_(place.device_address())
    {
    }

    static typename access::bits bits_of(const T &value) noexcept
    {
        typename access::bits bits;
        std::memcpy(&bits, std::addressof(value), sizeof(bits));
        return bits;
    }

    template <class Predicate, class Deadline> std::optional<T> spin(Predicate &predicate, const Deadline &deadline) const
    {
        T value{};
        const bool accepted = detail::spin([&] { return predicate(value = load()); }, deadline);
        return accepted ? std::optional<T>(value) : std::nullopt;
    }

    gdrx_map map_;
    std::uint64_t device_address_;
};

template <class T> gdrx::word<T> slice::word(std::size_t offset) const
{
    const slice place = part(offset, sizeof(T));
    if (!gdrx_is_word(&place.map_, 0, sizeof(T)))
        unaligned(offset, sizeof(T));
    return gdrx::word<T>(place);
}

/**
 * Writes that are pushed out together, in no order among each other, by commit or the destructor. A flag that announces them is
 * written after that.
 *
 * It belongs to its thread, whose stores it pushes out.
 */
class batch {
  public:
    /** Writes to this slice. @throws std::system_error EACCES, EINVAL: the slice is empty */
    explicit batch(const slice &target) : target_(target)
    {
        target_.check_process();
    }

    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;

    ~batch()
    {
        commit();
    }

    /** Writes size bytes to offset. @throws std::system_error EINVAL, EACCES; the earlier writes stay */
    void write(std::size_t offset, const void *host, std::size_t size)
    {
        begin();
        detail::check(gdrx_write_unfenced(&target_.map_, offset, host, size), "gdrx_write_unfenced", detail::stay_inside);
    }

    /** Writes an object or, of arrays, containers and spans, the elements. @throws std::system_error EINVAL, EACCES */
    template <class T> void write(std::size_t offset, const T &value)
    {
        const gdrx_copy copy = detail::copy_of(offset, value);
        write(copy.offset, copy.host, copy.size);
    }

    /** Writes a word, of any mapping, by one store. */
    template <class T> void store(const word<T> &target, const std::common_type_t<T> &value) noexcept
    {
        begin();
        word<T>::access::store_unfenced(&target.map_, 0, word<T>::bits_of(value));
    }

    /** Pushes all writes out, before whatever the thread writes later. The batch can go on. */
    void commit() noexcept
    {
        if (std::exchange(begun_, false))
            gdrx_fence(&target_.map_);
    }

  private:
    void begin() noexcept
    {
        if (!std::exchange(begun_, true))
            gdrx_begin();
    }

    slice target_;
    bool begun_ = false;
};

/**
 * Reads that are made together, as often as wanted. Add the places once, then call read whenever new values are needed.
 *
 * It does not keep the objects that it reads into. Only add allocates.
 */
class gather {
  public:
    /** Reads from this slice. */
    explicit gather(const slice &source) noexcept : source_(source)
    {
    }

    /** Adds size bytes at offset, to be read into host. @throws std::system_error EINVAL: they are not inside */
    void add(std::size_t offset, void *host, std::size_t size)
    {
        if (size > source_.size() || offset > source_.size() - size || (host == nullptr && size != 0))
            detail::fail(EINVAL, "cannot gather " + std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                                     ": stay inside the " + std::to_string(source_.size()) +
                                     " bytes, and pass a place for them");
        copies_.push_back({offset, host, size});
    }

    /** Adds an object or, of arrays, containers and spans, the elements. @throws std::system_error EINVAL: not inside */
    template <class T> void add(std::size_t offset, T &value)
    {
        const gdrx_copy copy = detail::copy_into(offset, value);
        add(copy.offset, copy.host, copy.size);
    }

    /** Reads all by one gdrx_read_many. @throws std::system_error EACCES, EINVAL: the slice is empty */
    void read() const
    {
        source_.read_many(copies_);
    }

    /** Forgets all reads, and keeps the memory of the list. */
    void clear() noexcept
    {
        copies_.clear();
    }

    /** Number of reads. */
    std::size_t size() const noexcept
    {
        return copies_.size();
    }

  private:
    slice source_;
    std::vector<gdrx_copy> copies_;
};

/** A word of 32 bits that says that something has happened; gdrcopy::flag_* of gdrcopy_device.cuh is the GPU kernel's side. */
class flag {
  public:
    /** The flag in that word, as it is. */
    explicit flag(const word<std::uint32_t> &place) noexcept : word_(place)
    {
    }

    /** For GPU kernels. */
    std::uint64_t device_address() const noexcept
    {
        return word_.device_address();
    }

    /** A release, pushed out on return. */
    void set(std::uint32_t value) const noexcept
    {
        word_.store(value);
    }

    /** Sets it to 0. */
    void clear() const noexcept
    {
        set(0);
    }

    /** An acquire. */
    std::uint32_t get() const noexcept
    {
        return word_.load();
    }

    /** Waits until it has that value. An acquire. */
    void wait(std::uint32_t value) const
    {
        word_.spin_until([value](std::uint32_t found) { return found == value; });
    }

    /** The same, until the deadline at the latest. Returns false if that passed. */
    template <class Clock, class Duration>
    [[nodiscard]] bool wait(std::uint32_t value, const std::chrono::time_point<Clock, Duration> &deadline) const
    {
        return word_.spin_until([value](std::uint32_t found) { return found == value; }, deadline).has_value();
    }

  private:
    word<std::uint32_t> word_;
};

template <class T> class ring_sender;
template <class T> class ring_receiver;

/**
 * A queue of messages in GPU memory between this process and one GPU kernel. The kernel uses gdrcopy::Ring of
 * gdrcopy_device.cuh with the same device address, number of slots, message size and first number. The memory has the layout of
 * the Rust crate's Ring.
 *
 * T has a multiple of 4 bytes; of 16, it is fastest. The memory is aligned to 4 bytes, better to 64. A ring has one sender and
 * one receiver, each in one thread at a time.
 */
template <class T> class ring {
    static_assert(detail::is_plain<T> && !std::is_const_v<T>,
                  "a message must be trivially copyable, and no pointer, view, bool or const");
    static_assert(sizeof(T) % 4 == 0, "GPU kernels access messages by words of 4 bytes");

  public:
    /** Bytes of GPU memory that it takes; SIZE_MAX, which no memory has, for more than that. */
    static constexpr std::size_t bytes(std::uint32_t slots) noexcept
    {
        return slots > (SIZE_MAX - messages(slots)) / sizeof(T) ? SIZE_MAX : messages(slots) + slots * sizeof(T);
    }

    /**
     * Makes an empty ring at the start of memory; on return the GPU can use it. slots is a power of two. Another number than 0
     * for the first message is for tests of numbers that wrap around.
     *
     * @throws std::system_error EINVAL: slots is not a power of two, the memory is not aligned, or has less than bytes(slots);
     * EACCES
     */
    static ring create(const slice &memory, std::uint32_t slots, std::uint32_t first = 0)
    {
        ring ring = attach(memory, slots, first);
        std::vector<std::uint32_t> sequences(slots);
        for (std::uint32_t ahead = 0; ahead < slots; ahead++)
            sequences[ring.slot(first + ahead)] = first + ahead + 1 - slots;
        ring.memory_.write(0, first);
        ring.memory_.write(sequences_, sequences);
        ring.memory_.flush();
        ring.room_ = slots;
        return ring;
    }

    /**
     * The ring at the start of memory, as it is, for its other end, or after a restart. next is the number of the message that
     * this end sends or receives next.
     *
     * @throws std::system_error EINVAL: as for create
     */
    static ring attach(const slice &memory, std::uint32_t slots, std::uint32_t next)
    {
        if (slots == 0 || (slots & (slots - 1)) != 0)
            detail::fail(EINVAL, "a ring cannot have " + std::to_string(slots) + " slots: use a power of two");
        ring ring(memory.part(0, bytes(slots)), slots, next);
        memory.word<std::uint32_t>(0); /* Its alignment is that of all words. */
        return ring;
    }

    /** The CPU's end of a ring to the GPU. A ring that has a name must be moved in, and is then used no more. */
    ring_sender<T> sender() &&
    {
        return ring_sender<T>(*this);
    }

    /** The CPU's end of a ring from the GPU, in the same way. */
    ring_receiver<T> receiver() &&
    {
        return ring_receiver<T>(*this);
    }

    /** For the GPU kernel's end. */
    std::uint64_t device_address() const noexcept
    {
        return memory_.device_address();
    }

    /** Messages that it has room for. */
    std::uint32_t capacity() const noexcept
    {
        return slots_;
    }

  private:
    friend class ring_sender<T>;
    friend class ring_receiver<T>;

    static constexpr std::size_t line = 64;
    /* u32: the number of the message that the consumer takes next. */
    static constexpr std::size_t consumed_ = 0;
    /* u32 of each slot, the number of its message plus 1, once that is there. */
    static constexpr std::size_t sequences_ = line;

    static constexpr std::size_t messages(std::size_t slots) noexcept
    {
        return sequences_ + (slots * 4 + line - 1) / line * line;
    }

    ring() noexcept = default;

    ring(const slice &memory, std::uint32_t slots, std::uint32_t next) noexcept : memory_(memory), slots_(slots), next_(next)
    {
    }

    std::uint32_t slot(std::uint32_t position) const noexcept
    {
        return position & (slots_ - 1);
    }

    /* The copies between count elements of the host and the slots from the next message on, over the last one to the first. */
    template <class E> std::array<gdrx_copy, 2> copies(std::size_t offset, E *elements, std::size_t count) const noexcept
    {
        auto *host = const_cast<std::remove_const_t<E> *>(elements);
        const std::size_t first = slot(next_), until_end = std::min<std::size_t>(count, slots_ - first);
        return {{{offset + first * sizeof(E), host, until_end * sizeof(E)},
                 {offset, host + until_end, (count - until_end) * sizeof(E)}}};
    }

    [[noreturn, gnu::cold, gnu::noinline]] void corrupted(std::uint32_t found) const
    {
        detail::fail(EPROTO, "at message " + std::to_string(next_) + " of a ring, its word in GPU memory is " +
                                 std::to_string(found) +
                                 ": check that the GPU kernel has the same address, slots, message size and first number, and "
                                 "that nothing else writes there");
    }

    slice memory_;
    std::uint32_t slots_ = 0;
    std::uint32_t next_ = 0;
    std::uint32_t room_ = 0; /* slots that are known to be free */
};

/**
 * Sends messages to a GPU kernel. Made by ring::sender. How far the kernel is, is read only where there may be no room.
 *
 * A moved-from one is empty; its functions throw EINVAL.
 */
template <class T> class ring_sender {
  public:
    ring_sender(ring_sender &&other) noexcept : ring_(std::exchange(other.ring_, {}))
    {
    }

    ring_sender &operator=(ring_sender &&other) noexcept
    {
        ring_ = std::exchange(other.ring_, {});
        return *this;
    }

    ~ring_sender() = default;

    /**
     * Sends the first messages, those that there is room for now, and returns their number. A release.
     *
     * @throws std::system_error EPROTO: the kernel cannot be there; EACCES. Nothing is sent then.
     */
    std::size_t try_send(const T *messages, std::size_t n)
    {
        if (n > ring_.room_)
            free();
        const std::size_t count = std::min<std::size_t>(n, ring_.room_);
        if (count == 0)
            return 0;
        ring_.memory_.write_many(ring_.copies(ring<T>::messages(ring_.slots_), messages, count));
        /* After the messages, which are pushed out. */
        gdrx_begin();
        for (std::size_t sent = 0; sent < count; sent++) {
            const std::size_t sequence = ring<T>::sequences_ + std::size_t{4} * ring_.slot(ring_.next_);
            gdrx_store_u32_unfenced(&ring_.memory_.raw(), sequence, ++ring_.next_);
        }
        gdrx_fence(&ring_.memory_.raw());
        ring_.room_ -= static_cast<std::uint32_t>(count);
        return count;
    }

    /** Sends a message if there is room now. @throws std::system_error EPROTO, EACCES */
    [[nodiscard]] bool try_send(const T &message)
    {
        return try_send(std::addressof(message), 1) == 1;
    }

    /** Sends a message, once there is room. @throws std::system_error EPROTO, EACCES */
    void send(const T &message)
    {
        detail::spin([&] { return try_send(message); }, detail::never{});
    }

    /** The same, until the deadline at the latest. Returns false, with nothing sent, if that passed. */
    template <class Clock, class Duration>
    [[nodiscard]] bool send(const T &message, const std::chrono::time_point<Clock, Duration> &deadline)
    {
        return detail::spin([&] { return try_send(message); }, deadline);
    }

    /** Waits until the kernel has consumed all messages. @throws std::system_error EPROTO, EACCES */
    void wait_consumed()
    {
        detail::spin([&] { return free() == ring_.slots_; }, detail::never{});
    }

    /** The same, until the deadline at the latest. Returns false if that passed. */
    template <class Clock, class Duration>
    [[nodiscard]] bool wait_consumed(const std::chrono::time_point<Clock, Duration> &deadline)
    {
        return detail::spin([&] { return free() == ring_.slots_; }, deadline);
    }

    /** Returns how many messages fit now; reads how far the kernel is. @throws std::system_error EPROTO, EACCES */
    std::uint32_t free()
    {
        ring_.memory_.check_process();
        /* An acquire, because the kernel has read the messages whose slots are reused. */
        const std::uint32_t consumed = gdrx_load_u32(&ring_.memory_.raw(), ring<T>::consumed_);
        if (ring_.next_ - consumed > ring_.slots_)
            ring_.corrupted(consumed);
        return ring_.room_ = ring_.slots_ - (ring_.next_ - consumed);
    }

  private:
    friend class ring<T>;

    explicit ring_sender(const ring<T> &ring) noexcept : ring_(ring)
    {
    }

    ring<T> ring_;
};

/**
 * Receives messages from a GPU kernel. Made by ring::receiver. Receiving takes two gathers, finding nothing takes one.
 *
 * A moved-from one is empty; its functions throw EINVAL.
 */
template <class T> class ring_receiver {
  public:
    ring_receiver(ring_receiver &&other) noexcept : ring_(std::exchange(other.ring_, {}))
    {
    }

    ring_receiver &operator=(ring_receiver &&other) noexcept
    {
        ring_ = std::exchange(other.ring_, {});
        return *this;
    }

    ~ring_receiver() = default;

    /**
     * Receives the next messages that are there now, at most 256 and at most n, and returns their number. An acquire.
     *
     * @throws std::system_error EPROTO: the kernel's words cannot be there; EACCES. Nothing is received then.
     */
    std::size_t try_receive(T *messages, std::size_t n)
    {
        /* 16 lines, which a core keeps in flight. */
        std::array<std::uint32_t, 16 * ring<T>::line / 4> sequences;
        const std::size_t polled = std::min<std::size_t>({n, sequences.size(), ring_.slots_});
        /* An acquire, because messages that are read later are those that the words announce. */
        ring_.memory_.read_many(ring_.copies(ring<T>::sequences_, sequences.data(), polled));
        const std::uint32_t ready = count_ready(sequences.data(), polled);
        if (ready == 0)
            return 0;
        ring_.memory_.read_many(ring_.copies(ring<T>::messages(ring_.slots_), messages, ready));
        ring_.next_ += ready;
        gdrx_store_u32(&ring_.memory_.raw(), ring<T>::consumed_, ring_.next_);
        return ready;
    }

    /** Receives the next message if it is there now. @throws std::system_error EPROTO, EACCES */
    [[nodiscard]] std::optional<T> try_receive()
    {
        T message{};
        return try_receive(std::addressof(message), 1) == 1 ? std::optional<T>(message) : std::nullopt;
    }

    /** Waits for the next message. @throws std::system_error EPROTO, EACCES */
    T receive()
    {
        return *spin(detail::never{});
    }

    /** The same, until the deadline at the latest. Returns nothing if that passed. */
    template <class Clock, class Duration>
    [[nodiscard]] std::optional<T> receive(const std::chrono::time_point<Clock, Duration> &deadline)
    {
        return spin(deadline);
    }

  private:
    friend class ring<T>;

    explicit ring_receiver(const ring<T> &ring) noexcept : ring_(ring)
    {
    }

    /* Counts the messages that are there, by their sequence words, of this lap up to the first of the last lap. */
    std::uint32_t count_ready(const std::uint32_t *sequences, std::size_t polled) const
    {
        std::uint32_t ready = 0;
        for (; ready < polled; ready++) {
            const std::uint32_t full = ring_.next_ + ready + 1;
            if (sequences[ready] == full - ring_.slots_)
                break;
            if (sequences[ready] != full)
                ring_.corrupted(sequences[ready]);
        }
        return ready;
    }

    template <class Deadline> std::optional<T> spin(const Deadline &deadline)
    {
        std::optional<T> message;
        detail::spin([&] { return (message = try_receive()).has_value(); }, deadline);
        return message;
    }

    ring<T> ring_;
};

} // namespace gdrx

#endif
