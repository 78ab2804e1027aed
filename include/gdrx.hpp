/*
 * gdrx.hpp: mapped GPU memory for C++17 programs, with owners that clean up, copies, words, batches and gathers.
 *
 * It uses gdrapi.h and gdrx.h. Order, speed and rules for threads are those of gdrx.h. Link libgdrx and any libgdrapi.so.2.
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
 * gather) refers to a mapping. Slices and words may be copied and kept. Do not use any of these after the mapping has ended, or
 * after pin::is_freed has reported that the memory was freed. The library cannot detect that. Moving a mapping does not change
 * its address.
 *
 * Types. A T, a value in GPU memory, is trivially copyable and default-constructible. Pointers, spans, bool, std::optional and
 * std::atomic are refused, because the GPU can write any bits to a T. Structs that contain these types are not detected.
 *
 * There is no reference or pointer to a T in the mapping. Plain accesses to the memory are not ordered, may be split, and are
 * slow. So values go through copies and words.
 *
 * Fork. In a forked child, functions throw EACCES, the functions of word raise SIGSEGV, and destructors leave the
 * parent's memory as it is.
 */

#ifndef GDRX_HPP
#define GDRX_HPP

#if __cplusplus < 201703L
#error "gdrx.hpp is for C++17 and later: compile with -std=c++17, or include gdrx.h"
#endif
#ifndef __cpp_exceptions
#error "gdrx.hpp reports errors by exceptions: compile with them, or include gdrx.h"
#endif

#include <array>
#include <atomic>
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

/* Returns the connection. Throws if there is none, as after a move, because not every libgdrapi checks for NULL. */
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

/* True for types in which some bit patterns are invalid. The GPU may write any bits. */
template <class T>
inline constexpr bool is_special =
    std::is_pointer_v<T> || std::is_null_pointer_v<T> || std::is_member_pointer_v<T> || std::is_same_v<T, bool>;
template <class T> inline constexpr bool is_special<std::optional<T>> = true;
template <class T> inline constexpr bool is_special<std::atomic<T>> = true;
template <class T, std::size_t n> inline constexpr bool is_special<std::array<T, n>> = is_special<std::remove_cv_t<T>>;

/* True for the types that values in GPU memory may have. */
template <class T>
inline constexpr bool is_plain = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> &&
                                 !is_special<std::remove_cv_t<T>> && !std::is_volatile_v<T> &&
                                 (!has_elements<T> || is_array<T>);

/* Makes a gdrx_copy between the mapping, at this offset, and an object or, for containers and spans, their elements. */
template <class T> gdrx_copy copy_of(std::size_t offset, T &value)
{
    if constexpr (has_elements<T>) {
        using element = std::remove_pointer_t<decltype(std::data(value))>;
        static_assert(is_plain<element>, "elements must be trivially copyable, and no pointers, views or bool");
        return {offset, const_cast<std::remove_const_t<element> *>(std::data(value)), std::size(value) * sizeof(element)};
    } else {
        static_assert(is_plain<T>, "a value must be trivially copyable, and no pointer, bool, optional or atomic; "
                                   "pass a pointer with a size");
        return {offset, const_cast<std::remove_const_t<T> *>(std::addressof(value)), sizeof(T)};
    }
}

/* True for views, types that refer to elements of another owner, as std::span does. They are recognized by two facts: the
 * destructor is trivial, and a const view gives access to elements that are not const. */
template <class T, class = void> inline constexpr bool is_view = false;
template <class T>
inline constexpr bool is_view<T, std::void_t<decltype(std::data(std::declval<const T &>()))>> =
    std::is_trivially_destructible_v<T> &&
    !std::is_const_v<std::remove_pointer_t<decltype(std::data(std::declval<const T &>()))>>;

/* Returns the gdrx_copy for a read into an object or elements, which must not be const and must outlive the call. */
template <class T> gdrx_copy copy_into(std::size_t offset, T &&value)
{
    using object = std::remove_reference_t<T>;
    if constexpr (has_elements<object>)
        static_assert(!std::is_const_v<std::remove_pointer_t<decltype(std::data(value))>>,
                      "reads need elements that are not const");
    else
        static_assert(!std::is_const_v<object>, "reads need a value that is not const");
    static_assert(std::is_lvalue_reference_v<T> || is_view<object>, "reads need a place that stays; pass a variable or a span");
    return copy_of(offset, value);
}

/* The functions of gdrx.h for words of one size. */
template <std::size_t size> struct access;
#define GDRX_ACCESS(size, width)                                                                                             \
    template <> struct access<size> {                                                                                        \
        using bits = std::uint##width##_t;                                                                                   \
        static constexpr auto load = gdrx_load_u##width;                                                                     \
        static constexpr auto store = gdrx_store_u##width, store_unfenced = gdrx_store_u##width##_unfenced;                  \
    }
GDRX_ACCESS(1, 8);
GDRX_ACCESS(2, 16);
GDRX_ACCESS(4, 32);
GDRX_ACCESS(8, 64);
#undef GDRX_ACCESS

} // namespace detail

template <class T> class word;
class slice;

/** An open gdr_t. It is closed when this object and all pins made from it are destroyed. A moved-from driver is empty. */
class driver {
  public:
    /** Opens a connection by gdr_open. @throws std::system_error the errno of gdr_open */
    driver() : open_(open(), close{}) {}
    driver(driver &&) noexcept = default;
    driver &operator=(driver &&) noexcept = default;
    /** Returns an attribute, by gdr_get_attribute. @throws std::system_error */
    int attribute(gdr_attr_t attribute) const
    {
        int value = 0;
        const gdr_t g = detail::open_one(open_);
        detail::check(gdr_get_attribute(g, attribute, &value), "gdr_get_attribute", "pass a gdr_attr_t");
        return value;
    }

    /** The handle for the functions of gdrapi.h, or NULL if the driver was moved from. Do not close the handle. */
    gdr_t raw() const noexcept { return open_.get(); }

  private:
    friend class pin;

    static gdr_t open()
    {
        if (const gdr_t g = gdr_open())
            return g;
        detail::fail(errno, "gdr_open failed; load gdrdrv or use CUDA 13.3 or later (`gdrcopy doctor` names what is missing)");
    }

    struct close {
        void operator()(gdr_t g) const noexcept { gdr_close(g); }
    };

    std::shared_ptr<gdr> open_;
};

/** Pinned GPU memory, of any alignment. A pin keeps its driver open, and unpins in its destructor. */
class pin {
  public:
    /** Makes an empty pin. A moved-from pin is also empty. */
    pin() noexcept = default;

    /** Pins size bytes from a device address on; flags is a set of gdr_pin_flags_t.
     *  @throws std::system_error EINVAL: size is 0, or the range is not GPU memory; the errors of gdr_pin_buffer_v2 */
    pin(const driver &driver, std::uint64_t device_address, std::size_t size, std::uint32_t flags = GDR_PIN_FLAG_DEFAULT)
        : driver_(driver.open_), device_address_(device_address), size_(size)
    {
        if (size == 0 || size > SIZE_MAX - head())
            detail::fail(EINVAL, "cannot pin " + std::to_string(size) + " bytes: pass the size of a buffer");
        detail::check(gdr_pin_buffer_v2(detail::open_one(driver_), device_address - head(), head() + size, flags, &handle_),
                      "gdr_pin_buffer_v2", "pass GPU memory of this process, such as cuMemAlloc returns");
    }

    pin(pin &&other) noexcept { swap(other); }
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
        std::swap(size_, other.size_);
    }

    /** The device address that was pinned, or 0 if the pin is empty. */
    std::uint64_t device_address() const noexcept { return device_address_; }
    /** The number of bytes that were pinned, or 0 if the pin is empty. */
    std::size_t size() const noexcept { return size_; }
    /** Returns whether the GPU memory was freed; if so, it must not be accessed any more. @throws std::system_error */
    bool is_freed() const
    {
        int flag = 0;
        detail::check(gdr_get_callback_flag(detail::open_one(driver_), handle_, &flag), "gdr_get_callback_flag",
                      "use a pin of this process");
        return flag != 0;
    }

    /** The handle for the functions of gdrapi.h. Do not pass it to gdr_unpin_buffer: the destructor unpins. */
    gdr_mh_t raw() const noexcept { return handle_; }

  private:
    friend class mapping;

    /* The number of bytes from the start of the GPU page to device_address_. */
    std::size_t head() const noexcept { return device_address_ % GPU_PAGE_SIZE; }

    std::shared_ptr<gdr> driver_;
    gdr_mh_t handle_ = {};
    std::uint64_t device_address_ = 0;
    std::size_t size_ = 0;
};

/** The base class of slice and mapping, which accesses their memory. Several threads may use one object at once. */
class memory {
  public:
    /** The number of bytes. */
    std::size_t size() const noexcept { return map_.size; }
    /** The device address of byte 0, for GPU kernels and CUDA. */
    std::uint64_t device_address() const noexcept { return device_address_; }
    /** How the CPU caches the memory, or GDR_MAPPING_TYPE_NONE if the object is empty. */
    gdr_mapping_type_t type() const noexcept { return map_.type; }
    /** The address of byte 0 in this process, for comparisons and logs. Do not pass it to memcpy, or cast it to a T*. */
    void *address() const noexcept { return map_.address; }
    /** The map for the functions of gdrx.h. */
    const gdrx_map &raw() const noexcept { return map_; }
    /** Returns the part that begins at offset and is size bytes long.
     *  @throws std::system_error EINVAL: size is 0, or the bytes are not all inside this memory */
    slice part(std::size_t offset, std::size_t size) const;

    /** Returns the word at offset.
     *  @throws std::system_error EINVAL: the word is not inside this memory, or not aligned to its size */
    template <class T> gdrx::word<T> word(std::size_t offset) const;

    /** Writes size bytes from host to offset, with a fence after the write. @throws std::system_error EINVAL, EACCES */
    void write(std::size_t offset, const void *host, std::size_t size) const
    {
        gdrx_begin();
        detail::check(gdrx_write_unfenced(&map_, offset, host, size), "gdrx_write_unfenced", detail::stay_inside);
        gdrx_fence(&map_);
    }

    /** Writes an object or, for arrays, containers and spans, the elements. @throws std::system_error EINVAL, EACCES */
    template <class T> void write(std::size_t offset, const T &value) const
    {
        const gdrx_copy copy = detail::copy_of(offset, value);
        write(copy.offset, copy.host, copy.size);
    }

    /** Makes one read by gdrx_read_many. If a single load is needed, use word. @throws std::system_error EINVAL, EACCES */
    void read(std::size_t offset, void *host, std::size_t size) const
    {
        const gdrx_copy copy = {offset, host, size};
        read_many(&copy, 1);
    }

    /** Reads into an object or, for arrays, containers and spans, the elements. @throws std::system_error EINVAL, EACCES */
    template <class T> void read(std::size_t offset, T &&into) const
    {
        const gdrx_copy copy = detail::copy_into(offset, std::forward<T>(into));
        read_many(&copy, 1);
    }

    /** Reads a T. @throws std::system_error EINVAL: not all of it is inside the memory; EACCES: forked child */
    template <class T> T read(std::size_t offset) const
    {
        static_assert(detail::is_plain<T>, "a value must be trivially copyable, and no pointer, view, bool, optional or atomic");
        T value{};
        const gdrx_copy copy = detail::copy_into(offset, value);
        read_many(&copy, 1);
        return value;
    }

    /** Makes n writes with one fence, by gdrx_write_many. @throws std::system_error EINVAL, EACCES */
    void write_many(const gdrx_copy *copies, std::size_t n) const
    {
        detail::check(gdrx_write_many(&map_, copies, n), "gdrx_write_many", detail::stay_inside);
    }

    /** Makes the writes of an array, container or span of gdrx_copy. */
    template <class Copies> void write_many(const Copies &copies) const { write_many(std::data(copies), std::size(copies)); }
    /** Makes n reads, which do not wait for each other, by gdrx_read_many. @throws std::system_error EINVAL, EACCES */
    void read_many(const gdrx_copy *copies, std::size_t n) const
    {
        detail::check(gdrx_read_many(&map_, copies, n), "gdrx_read_many", detail::stay_inside);
    }

    /** Makes the reads of an array, container or span of gdrx_copy. */
    template <class Copies> void read_many(const Copies &copies) const { read_many(std::data(copies), std::size(copies)); }
    /** Waits until all earlier writes of this thread to this GPU have arrived. @throws std::system_error EINVAL, EACCES */
    void flush() const { detail::check(gdrx_flush(&map_), "gdrx_flush", detail::stay_inside); }

  protected:
    memory() noexcept = default;
    memory(const gdrx_map &map, std::uint64_t device_address) noexcept : map_(map), device_address_(device_address) {}
    memory(const memory &) noexcept = default;
    memory &operator=(const memory &) noexcept = default;
    ~memory() = default;

    gdrx_map map_ = {};
    std::uint64_t device_address_ = 0;
};

/**
 * A range of mapped GPU memory. A slice does not keep the mapping alive, and copying a slice copies no memory. A default slice
 * is empty, and every access to it fails with EINVAL.
 */
class slice : public memory {
  public:
    slice() noexcept = default;

    /** Makes a slice of a whole mapping. */
    slice(const memory &all) noexcept : memory(all) {}
    /** Makes a slice of a map that gdrx_attach, for example, has filled in. Byte 0 of the map is at device_address. */
    slice(const gdrx_map &map, std::uint64_t device_address) noexcept : memory(map, device_address) {}
};

inline slice memory::part(std::size_t offset, std::size_t size) const
{
    if (size == 0 || size > map_.size || offset > map_.size - size)
        detail::fail(EINVAL, std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                                 " are no part: choose 1 or more of the slice's " + std::to_string(map_.size) + " bytes");
    gdrx_map map = map_;
    map.address = static_cast<char *>(map_.address) + offset;
    map.size = size;
    return slice(map, device_address_ + offset);
}

/**
 * Mapped GPU memory. A mapping owns its pin, and unmaps in its destructor. Its slices do not keep it alive. A moved-from
 * mapping is empty, as a default slice is.
 */
class mapping : public memory {
  public:
    /** Makes an empty mapping. A moved-from mapping is also empty. */
    mapping() noexcept = default;

    /** Maps the memory of a pin, and takes the pin over.
     *  @throws std::system_error the errors of gdr_map_v2 and gdrx_attach; the caller then still owns the pin */
    explicit mapping(pin &&pinned, gdr_map_flags_t flags = GDR_MAP_FLAG_DEFAULT)
        : memory(map(pinned, flags)), pin_(std::move(pinned)) {}

    mapping(mapping &&other) noexcept : memory(other), pin_(std::move(other.pin_)) { other.clear(); }

    mapping &operator=(mapping &&other) noexcept
    {
        mapping old(std::move(other));
        std::swap(map_, old.map_);
        std::swap(device_address_, old.device_address_);
        pin_.swap(old.pin_);
        return *this;
    }

    /* The pin's destructor also unmaps, but keeps the addresses reserved. gdr_unmap frees the addresses. */
    ~mapping()
    {
        if (size() != 0)
            gdr_unmap(pin_.driver_.get(), pin_.handle_, start(), pin_.head() + pin_.size_);
    }

    /** The pin of the mapping, for example to ask whether its memory was freed. */
    const pin &pinned() const noexcept { return pin_; }
    /** Unmaps the memory, and returns the pin, which can be mapped again. The mapping is then empty.
     *  @throws std::system_error the errors of gdr_unmap; the mapping is then unchanged */
    pin unmap()
    {
        detail::check(gdr_unmap(detail::open_one(pin_.driver_), pin_.handle_, start(), pin_.head() + pin_.size_), "gdr_unmap",
                      "unmap a mapping of this process");
        clear();
        return std::move(pin_);
    }

  private:
    void clear() noexcept { memory::operator=(slice()); }

    /* The address that gdr_map_v2 returned. */
    void *start() const noexcept { return static_cast<char *>(address()) - pin_.head(); }

    static slice map(const pin &pinned, gdr_map_flags_t flags)
    {
        const gdr_t g = detail::open_one(pinned.driver_);
        const std::size_t size = pinned.head() + pinned.size_;
        void *start = nullptr;
        gdrx_map map = {};

        detail::check(gdr_map_v2(g, pinned.handle_, &start, size, flags), "gdr_map_v2",
                      "map a pin once, by a type that the platform has");
        const int error = gdrx_attach(&map, g, pinned.handle_, static_cast<char *>(start) + pinned.head(), pinned.size_);
        if (error != 0)
            gdr_unmap(g, pinned.handle_, start, size);
        detail::check(error, "gdrx_attach", "free some memory");
        return slice(map, pinned.device_address_);
    }

    pin pin_;
};

/**
 * A naturally aligned word of GPU memory. Each access is one transaction, so the GPU and the CPU see old or new values, never a
 * mix. T has 1, 2, 4 or 8 bytes, and is an integer, floating-point number, enumeration or a struct of these.
 *
 * memory::word returns one. In a forked child, its accesses raise SIGSEGV.
 */
template <class T> class word {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a word has 1, 2, 4 or 8 bytes");
    static_assert(detail::is_plain<T> && !std::is_const_v<T> && !std::is_array_v<T>,
                  "a word must be trivially copyable, and no pointer, view, bool, optional, atomic, const or array of C");

  public:
    /** The device address of the word, for GPU kernels and CUDA. */
    std::uint64_t device_address() const noexcept { return device_address_; }
    /** Reads the word by one load, as gdrx_load_u32 does. The load is an acquire, takes a PCIe round trip, and its value is no
     *  older than the call. */
    T load() const noexcept
    {
        const typename access::bits bits = access::load(&map_, 0);
        T value{};
        std::memcpy(std::addressof(value), &bits, sizeof(value));
        return value;
    }

    /** Writes the word by one store, as gdrx_store_u32 does. The store is a release, and is pushed out on return. */
    void store(T value) const noexcept { access::store(&map_, 0, bits_of(value)); }
    /** Reads the word again and again until the predicate accepts the value, and returns this value. */
    template <class Predicate> T spin_until(Predicate predicate) const
    {
        for (;;)
            if (const T value = load(); predicate(value))
                return value;
    }

    /** Reads the word again and again, at least once, until the predicate accepts the value or the deadline has passed.
     *  Returns the accepted value, or nothing if the deadline has passed. */
    template <class Predicate, class Clock, class Duration>
    [[nodiscard]] std::optional<T> spin_until(Predicate predicate,
                                              const std::chrono::time_point<Clock, Duration> &deadline) const
    {
        do {
            if (const T value = load(); predicate(value))
                return value;
        } while (Clock::now() < deadline);
        return std::nullopt;
    }

  private:
    friend class memory;
    friend class batch;
    using access = detail::access<sizeof(T)>;

    explicit word(const slice &place) noexcept : map_(place.raw()), device_address_(place.device_address()) {}

    static typename access::bits bits_of(const T &value) noexcept
    {
        typename access::bits bits;
        std::memcpy(&bits, std::addressof(value), sizeof(bits));
        return bits;
    }

    gdrx_map map_;
    std::uint64_t device_address_;
};

template <class T> gdrx::word<T> memory::word(std::size_t offset) const
{
    const slice place = part(offset, sizeof(T));
    if (!gdrx_is_word(&place.raw(), 0, sizeof(T)))
        detail::fail(EINVAL, "offset " + std::to_string(offset) + " is no place for a word of " + std::to_string(sizeof(T)) +
                                 " bytes: use an address that is a multiple of its size");
    return gdrx::word<T>(place);
}

/**
 * Writes that are pushed out together by commit, or by the destructor. The writes have no order among each other. After commit,
 * write the flag that announces them. Only one thread may use a batch, because a fence orders only its own thread's stores.
 */
class batch {
  public:
    /** Makes a batch of writes to this slice. @throws std::system_error EINVAL: the slice is empty; EACCES: forked child */
    explicit batch(const slice &target) : target_(target)
    {
        detail::check(gdrx_write_unfenced(&target_.raw(), 0, nullptr, 0), "gdrx_write_unfenced", detail::stay_inside);
    }

    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;

    ~batch() { commit(); }
    /** Writes size bytes to offset. @throws std::system_error EINVAL, EACCES; earlier writes of the batch remain in it */
    void write(std::size_t offset, const void *host, std::size_t size)
    {
        begin();
        detail::check(gdrx_write_unfenced(&target_.raw(), offset, host, size), "gdrx_write_unfenced", detail::stay_inside);
    }

    /** Writes an object, or the elements of an array, container or span. @throws std::system_error EINVAL, EACCES */
    template <class T> void write(std::size_t offset, const T &value)
    {
        const gdrx_copy copy = detail::copy_of(offset, value);
        write(copy.offset, copy.host, copy.size);
    }

    /** Writes a word by one store. The word may be of any mapping. */
    template <class T> void store(const word<T> &target, const std::common_type_t<T> &value) noexcept
    {
        begin();
        word<T>::access::store_unfenced(&target.map_, 0, word<T>::bits_of(value));
    }

    /** Pushes all writes out, before any later write of the thread. The batch can then take more writes. */
    void commit() noexcept
    {
        if (std::exchange(begun_, false))
            gdrx_fence(&target_.raw());
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
 * A list of reads that are made together, any number of times. Add the reads once, then call read whenever new values are
 * needed.
 *
 * A gather does not keep the objects alive that it reads into. Only add allocates.
 */
class gather {
  public:
    /** Makes a gather of reads from this slice. */
    explicit gather(const slice &source) noexcept : source_(source) {}
    /** Adds a read that copies the size bytes at offset in the slice to host.
     *  @throws std::system_error EINVAL: the bytes are not all inside the slice, or host is NULL */
    void add(std::size_t offset, void *host, std::size_t size)
    {
        if (size > source_.size() || offset > source_.size() - size || (host == nullptr && size != 0))
            detail::fail(EINVAL, "cannot gather " + std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                                     ": stay inside the " + std::to_string(source_.size()) +
                                     " bytes, and pass a place for them");
        copies_.push_back({offset, host, size});
    }

    /** Adds a read into an object, or into the elements of an array, container or span.
     *  @throws std::system_error EINVAL: the bytes are not all inside the slice */
    template <class T> void add(std::size_t offset, T &&into)
    {
        const gdrx_copy copy = detail::copy_into(offset, std::forward<T>(into));
        add(copy.offset, copy.host, copy.size);
    }

    /** Makes all reads by one gdrx_read_many. @throws std::system_error EINVAL: the slice is empty; EACCES: forked child */
    void read() const { source_.read_many(copies_); }
    /** Removes all reads, but keeps the memory of the list. */
    void clear() noexcept { copies_.clear(); }
    /** The number of reads. */
    std::size_t size() const noexcept { return copies_.size(); }

  private:
    slice source_;
    std::vector<gdrx_copy> copies_;
};

} // namespace gdrx

#endif
