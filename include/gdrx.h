/*
 * gdrx.h: many small accesses to mapped GPU memory at once, and accesses to words without a function call. For C99 and later,
 * and for C++11 and later.
 *
 * This header is a companion of gdrapi.h, and works with any libgdrapi.so.2. Pin and map the memory by gdrapi.h, describe the
 * mapping once by gdrx_attach, and use the description as often as you like:
 *
 *     struct gdrx_map map;
 *     gdrx_attach(&map, g, handle, va, size);
 *     gdrx_write_many(&map, writes, n);            n writes, one fence
 *     gdrx_store_u32(&map, flag_offset, 1);        one store, no call
 *     gdrx_read_many(&map, reads, n);              n reads, in the time of a few
 *
 * Results. Functions that return int return 0 on success, else a positive errno value; do not look at errno. A function that
 * fails reads and writes nothing. Set GDRCOPY_ENABLE_LOGGING=1 to log the reason of each failure to stderr; GDRCOPY_LOG_LEVEL=1
 * (debug) to 4 (errors only, the default) sets how much.
 *
 * Lifetime. A struct gdrx_map is plain data. Copy it, keep it on the stack, and forget it; nothing is to be freed. It does not
 * keep the mapping alive. Every copy of the library in the process, such as one in a plugin, accepts the map while the copy
 * that attached it is loaded. Do not use a map any more after gdr_unmap, gdr_unpin_buffer or gdr_close, or after
 * gdr_get_callback_flag has reported that the memory was freed. The library cannot detect that.
 *
 * Threads. Any function may be called from any thread with any map, at any time; none takes a lock. A fence orders only the
 * accesses of its own thread.
 *
 * Signals. All functions except gdrx_attach and the functions for dma-bufs are async-signal-safe, in a copy of the library that
 * has attached a map in this process.
 *
 * Fork. Mappings are absent in a forked child. There, functions that return int return EACCES for an inherited map; the inline
 * functions raise SIGSEGV.
 *
 * Offsets and sizes are in bytes. Offset 0 is at the address that was attached. Unless a function says otherwise, offsets and
 * sizes may have any alignment.
 */

#ifndef GDRX_H
#define GDRX_H

#include <stddef.h>
#include <stdint.h>

#include "gdrapi.h"

/* The version of this interface, and of the library's file libgdrx.so.MAJOR. */
#define GDRX_MAJOR_VERSION 1
#define GDRX_MINOR_VERSION 0

/* In C++ these functions are not static: inline functions of gdrx.hpp call them, and must be the same in all source files. */
#ifdef __cplusplus
#define GDRX_INLINE_ inline
extern "C" {
#else
#define GDRX_INLINE_ static inline
#endif

/*
 * A mapping, or a part of one. gdrx_attach fills the struct in, and programs only read it. To describe a smaller part, of at
 * least one byte, copy the struct, and set address and size in the copy.
 */
struct gdrx_map {
    void *address;                        /* CPU address of byte 0 */
    size_t size;
    gdr_mapping_type_t type;              /* never GDR_MAPPING_TYPE_NONE */
    uint32_t reserved;                    /* only functions of this header use this member and the next ones */
    uint64_t process;
    const unsigned char *several_types;
};

/* One copy of gdrx_write_many or gdrx_read_many. */
struct gdrx_copy {
    size_t offset; /* offset in the map */
    void *host;    /* where the bytes are read from or written to; may be NULL if size is 0 */
    size_t size;   /* number of bytes, may be 0 */
};

/**
 * Describes the size bytes that begin at address, a part of a mapping. Programs that do not link libgdrapi, and call
 * gdr_get_info_v2 by a pointer, use this, not gdrx_attach. type and mapped_size are what gdr_get_info_v2 returned.
 *
 * The first call in a process reads the environment variables GDRCOPY_ISA, GDRCOPY_ENABLE_LOGGING and GDRCOPY_LOG_LEVEL.
 *
 * EINVAL: map or address is NULL; type is not the type of a mapping; size is 0 or more than mapped_size. ENOMEM: no memory for
 * the page by which forked children are detected. On an error *map is unchanged.
 */
int gdrx_attach_mapping(struct gdrx_map *map, gdr_mapping_type_t type, uint64_t mapped_size, void *address, size_t size);

/**
 * Describes the size bytes that begin at address, a part of the mapping that gdr_map made for handle. address is what
 * gdr_map returned, or another address inside the mapping.
 *
 * EINVAL: the buffer is not mapped. Other errors are those of gdrx_attach_mapping and of gdr_get_info_v2. The latter depend on
 * the libgdrapi. This project's libgdrapi returns EINVAL for a handle that is not a pin of g, such as zero, and EACCES in a
 * forked child. NVIDIA's libgdrapi reads through a zero handle, and succeeds in children if it uses dma-bufs.
 */
GDRX_INLINE_ int gdrx_attach(struct gdrx_map *map, gdr_t g, gdr_mh_t handle, void *address, size_t size)
{
    gdr_info_v2_t info;
    int result = gdr_get_info_v2(g, handle, &info);

    return result != 0 ? result : gdrx_attach_mapping(map, info.mapping_type, info.mapped_size, address, size);
}

/**
 * Makes n writes, from copies[i].host to copies[i].offset, with one fence. All of them together are ordered and pushed out as
 * one gdr_copy_to_mapping is. Among each other they have no order. So write a payload by one call, and the flag that announces
 * it by the next.
 *
 * Every byte is written once, except on cached mappings, where some can be written twice. A write of 1, 2, 4 or 8 bytes to a
 * naturally aligned address is one store of that width. A word inside a larger write can be several stores.
 *
 * EINVAL: map was not attached; copies is NULL and n is not 0; a copy is not inside the map, or its host is NULL. EACCES:
 * forked child. On an error nothing is written.
 */
int gdrx_write_many(const struct gdrx_map *map, const struct gdrx_copy *copies, size_t n);

/**
 * Makes n reads, from copies[i].offset to copies[i].host. No byte is older than the call. The reads come after all earlier
 * reads that the thread made by this library. They come before everything that the thread later stores, reads from host
 * memory, or reads by this library. Among each other they have no order.
 *
 * On write-combining mappings the loads overlap. How many do depends on the addresses (docs/gdrx.md). Not even a small read is
 * certain to be a single load, so read a flag that must be one transaction by gdrx_load_u32.
 *
 * Errors are those of gdrx_write_many. On an error nothing is read.
 */
int gdrx_read_many(const struct gdrx_map *map, const struct gdrx_copy *copies, size_t n);

/**
 * Waits until all earlier writes of this thread to this GPU have arrived in its memory. The function reads one byte, and this
 * read does not pass the writes. So the function takes as long as a read.
 *
 * EINVAL: map was not attached. EACCES: forked child.
 */
int gdrx_flush(const struct gdrx_map *map);

/**
 * Writes size bytes from host to offset, without a fence, as one of a row of writes between gdrx_begin and gdrx_fence. Programs
 * that have their writes in an array use gdrx_write_many.
 *
 * Errors are those of gdrx_write_many. On an error nothing is written.
 */
int gdrx_write_unfenced(const struct gdrx_map *map, size_t offset, const void *host, size_t size);

/**
 * Exports size bytes of GPU memory from device_address on as a dma-buf, for example for ibv_reg_dmabuf_mr. This works with any
 * libgdrapi and without gdrdrv, and the memory need not be pinned. flags is a set of gdr_pin_flags_t. With
 * GDR_PIN_FLAG_FORCE_PCIE, accesses through the dma-buf go over PCIe on a coherent platform too.
 *
 * *fd is a new descriptor, with FD_CLOEXEC. It keeps the memory in place until the caller closes it. *offset is the offset of
 * device_address in the dma-buf. The dma-buf begins at a page of the host, so the offset is less than a page. Register the
 * bytes by
 *
 *     ibv_reg_dmabuf_mr(domain, offset, size, device_address, fd, access);
 *
 * From CUDA 13.3 on, the CPU can use the same dma-buf by gdrx_map_dmabuf, in this process or another, so that the memory takes
 * space in BAR1 only once. The type of the mapping is GDR_MAPPING_TYPE_WC, or GDR_MAPPING_TYPE_CACHING on a coherent platform
 * without GDR_PIN_FLAG_FORCE_PCIE.
 *
 * The function initializes CUDA if the process has not done so. It is not async-signal-safe.
 *
 * Memory of a pool (cuMemAllocAsync) can be exported.
 *
 * EINVAL: fd or offset is NULL; flags is invalid; size is 0, or device_address + size overflows. It is also EINVAL for host
 * memory and managed memory, and if the pages around the bytes are not of one allocation. EACCES: forked child of a process
 * that had attached mappings. ENODEV: no CUDA driver. EOPNOTSUPP: a CUDA driver before 11.7, or a GPU that cannot export
 * dma-bufs. EMFILE, ENFILE: no descriptor is left. ENOMEM, EPERM, EIO: CUDA's error. On an error *fd and *offset are unchanged.
 */
int gdrx_dmabuf(uint64_t device_address, size_t size, uint32_t flags, int *fd, uint64_t *offset);

/**
 * Maps size bytes from offset on of the dma-buf fd, which another process has exported by gdrx_dmabuf and sent over a Unix
 * socket, and attaches *map. This process uses neither CUDA nor gdrdrv. The mapping keeps the memory in place, so fd can be
 * closed.
 *
 * type is the type of the exporter's own mapping of the memory, as gdr_get_info_v2 returns it. If the exporter has no mapping,
 * it must export with GDR_PIN_FLAG_FORCE_PCIE. Then type is GDR_MAPPING_TYPE_WC on each platform.
 *
 * EINVAL: map is NULL; fd is negative; type is not the type of a mapping; size is 0 or too large. EBADF: fd is not open.
 * ENODEV, EOPNOTSUPP, EINVAL, EACCES: the exporter's driver cannot map dma-bufs (this needs CUDA 13.3). ENOMEM: no memory. On
 * an error *map is unchanged.
 */
int gdrx_map_dmabuf(struct gdrx_map *map, int fd, uint64_t offset, size_t size, gdr_mapping_type_t type);

/**
 * Unmaps the memory that gdrx_map_dmabuf has mapped. No access to the memory may be in progress. Functions refuse *map
 * afterwards, but they cannot detect copies of *map, which must not be used any more.
 *
 * EINVAL: map is NULL, or not attached. EACCES: forked child, in which the memory is not mapped.
 */
int gdrx_unmap_dmabuf(struct gdrx_map *map);

/**
 * Returns the version of the library that is running, as major << MAJOR_VERSION_SHIFT | minor. The program may have been
 * compiled with another version of this header.
 */
uint32_t gdrx_version(void);

/* ---- Accesses without a function call ---- */

/* Casts a pointer. C++ compilers can warn about casts in the syntax of C. */
#ifdef __cplusplus
#define GDRX_CAST_(type, value) reinterpret_cast<type>(value)
#else
#define GDRX_CAST_(type, value) ((type)(value))
#endif

/* Returns the CPU address of the word at offset. */
GDRX_INLINE_ void *gdrx_at_(const struct gdrx_map *map, size_t offset)
{
    return GDRX_CAST_(char *, map->address) + offset;
}

/* Orders all earlier loads and stores of the thread before all later ones. */
GDRX_INLINE_ void gdrx_full_fence_(void)
{
#if defined(__x86_64__)
    __asm__ __volatile__("mfence" ::: "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("dmb sy" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Ends an access, with a full fence if the process has ever attached mappings of several types. Accesses through mappings of
 * different types can pass each other without this fence. */
GDRX_INLINE_ void gdrx_end_(const struct gdrx_map *map)
{
    if (__atomic_load_n(map->several_types, __ATOMIC_RELAXED))
        gdrx_full_fence_();
}

/**
 * Begins a row of writes without fences (gdrx_write_unfenced, gdrx_store_u32_unfenced and so on). gdrx_fence ends the row. The
 * writes come after all earlier loads and stores of the thread.
 */
GDRX_INLINE_ void gdrx_begin(void)
{
#if defined(__x86_64__)
    __asm__ __volatile__("" ::: "memory");
#else
    gdrx_full_fence_();
#endif
}

/**
 * Ends a row of writes that gdrx_begin has begun. Pushes the writes out, and orders them before every later store of the
 * thread. map is any map that the row has written to.
 */
GDRX_INLINE_ void gdrx_fence(const struct gdrx_map *map)
{
#if defined(__x86_64__)
    __asm__ __volatile__("sfence" ::: "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("dmb st\n\thint #6" ::: "memory");
#else
    gdrx_full_fence_();
#endif
    gdrx_end_(map);
}

/**
 * Returns whether size bytes at offset are a word: 1, 2, 4 or 8 bytes inside the map, at an address that is a multiple of their
 * size. The functions below must be called only for words, and check nothing.
 */
GDRX_INLINE_ int gdrx_is_word(const struct gdrx_map *map, size_t offset, size_t size)
{
    return (size == 1 || size == 2 || size == 4 || size == 8) && size <= map->size && offset <= map->size - size &&
           GDRX_CAST_(uintptr_t, gdrx_at_(map, offset)) % size == 0;
}

/*
 * gdrx_store_u8, _u16, _u32, _u64(map, offset, value) write a word by one store, with the order of gdr_copy_to_mapping. The
 * store comes after the thread's earlier loads and stores and before its later stores. The CPU pushes it out at once.
 *
 * gdrx_store_u8_unfenced and so on write a word by one store, too, but as one of a row of writes between gdrx_begin and
 * gdrx_fence. The row as a whole has the order above. Its writes have no order among each other.
 *
 * gdrx_load_u8, _u16, _u32, _u64(map, offset) read a word by one load, with the order of gdr_copy_from_mapping. The value is no
 * older than the call. The load comes after the thread's earlier reads by this library. It comes before everything that the
 * thread later stores, reads from host memory, or reads by this library.
 */
#define GDRX_WORD_(bits)                                                                                                     \
    GDRX_INLINE_ void gdrx_store_u##bits##_unfenced(const struct gdrx_map *map, size_t offset, uint##bits##_t value)         \
    {                                                                                                                        \
        __atomic_store_n(GDRX_CAST_(uint##bits##_t *, gdrx_at_(map, offset)), value, __ATOMIC_RELAXED);                      \
    }                                                                                                                        \
                                                                                                                             \
    GDRX_INLINE_ void gdrx_store_u##bits(const struct gdrx_map *map, size_t offset, uint##bits##_t value)                    \
    {                                                                                                                        \
        gdrx_begin();                                                                                                        \
        gdrx_store_u##bits##_unfenced(map, offset, value);                                                                   \
        gdrx_fence(map);                                                                                                     \
    }                                                                                                                        \
                                                                                                                             \
    GDRX_INLINE_ uint##bits##_t gdrx_load_u##bits(const struct gdrx_map *map, size_t offset)                                 \
    {                                                                                                                        \
        uint##bits##_t value;                                                                                                \
                                                                                                                             \
        gdrx_full_fence_();                                                                                                  \
        value = __atomic_load_n(GDRX_CAST_(uint##bits##_t *, gdrx_at_(map, offset)), __ATOMIC_RELAXED);                      \
        gdrx_after_load_();                                                                                                  \
        gdrx_end_(map);                                                                                                      \
        return value;                                                                                                        \
    }

/* Makes the load before this call an acquire. */
GDRX_INLINE_ void gdrx_after_load_(void)
{
#if defined(__x86_64__)
    __asm__ __volatile__("" ::: "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("dmb ld" ::: "memory");
#else
    gdrx_full_fence_();
#endif
}

GDRX_WORD_(8)
GDRX_WORD_(16)
GDRX_WORD_(32)
GDRX_WORD_(64)

#undef GDRX_WORD_
#undef GDRX_CAST_
#undef GDRX_INLINE_

#ifdef __cplusplus
}
#endif

#endif
