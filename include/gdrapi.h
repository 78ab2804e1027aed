/*
 * gdrapi.h: CPU access to NVIDIA GPU memory through the GPU's PCIe BAR1.
 *
 * A buffer goes through these steps, each undone by the call on its right:
 *
 *     gdr_open          open the kernel driver          gdr_close
 *     gdr_pin_buffer    hold GPU memory in place        gdr_unpin_buffer
 *     gdr_map           map it into this process        gdr_unmap
 *     gdr_copy_to_mapping, gdr_copy_from_mapping, or plain loads and stores
 *
 * Results. Every function that returns int returns 0 on success, else a positive errno value; do not look at errno.
 * Output arguments are written only on success, unless a function says otherwise. A NULL, closed, unpinned or never
 * issued gdr_t or gdr_mh_t is refused with EINVAL and touches nothing. So is a handle used with another gdr_t than
 * the one that pinned it. Set GDRCOPY_ENABLE_LOGGING=1 to log the reason of each failure to stderr;
 * GDRCOPY_LOG_LEVEL=1 (debug) to 4 (errors only, the default) sets how much.
 *
 * Threads. Any function may be called from any thread, on any handle, at any time. Copies take no lock. Do not
 * close, unpin or unmap a buffer while another thread still copies through it, because the copy may fault or return
 * EINVAL.
 *
 * Signals. Copies are async-signal-safe after gdr_open, so a handler may call them, whatever call it interrupted. A
 * handler may leave a copy by siglongjmp; any part of the bytes may then have been copied. A handler may not call or
 * leave any other function.
 *
 * Hooks. This library calls a program's own mmap, munmap, madvise or ioctl, if the program has one. Such a function may
 * call any function of this library for other handles than the one in use. Calls for the handle in use, and calls while
 * memory for handles is taken or given back, return EDEADLK.
 *
 * Cancellation. A pthread_cancel during a call takes effect after the call.
 * Asynchronous cancellation (PTHREAD_CANCEL_ASYNCHRONOUS) during a call is
 * undefined by POSIX, and not supported.
 *
 * Fork. Handles and mappings belong to the process that made them. In a forked
 * child every call on an inherited handle, except gdr_close, returns EACCES and
 * touches nothing; inherited mappings are absent there. The child may call
 * gdr_open for itself.
 *
 * Sizes and lengths are in bytes throughout.
 */

#ifndef GDRAPI_H
#define GDRAPI_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Versions: major << MAJOR_VERSION_SHIFT | minor. */
#define MAJOR_VERSION_SHIFT 16
#define MINOR_VERSION_MASK ((1U << MAJOR_VERSION_SHIFT) - 1)

/* The version of this interface. */
#define GDR_API_MAJOR_VERSION 2
#define GDR_API_MINOR_VERSION 6
#define GDR_API_VERSION ((GDR_API_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | GDR_API_MINOR_VERSION)

/* The oldest gdrdrv kernel driver that gdr_open accepts. */
#define MINIMUM_GDRDRV_MAJOR_VERSION 2
#define MINIMUM_GDRDRV_MINOR_VERSION 0
#define MINIMUM_GDRDRV_VERSION ((MINIMUM_GDRDRV_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | MINIMUM_GDRDRV_MINOR_VERSION)

/* GPU memory is pinned in whole pages of 64 KiB. */
#define GPU_PAGE_SHIFT 16
#define GPU_PAGE_SIZE (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE - 1)
#define GPU_PAGE_MASK (~GPU_PAGE_OFFSET)

#ifdef __cplusplus
extern "C" {
#endif

/* An open connection to the driver. */
struct gdr;
typedef struct gdr *gdr_t;

/* A pinned buffer. h is never 0, so {0} can stand for "none". */
typedef struct gdr_mh_s {
    unsigned long h;
} gdr_mh_t;

/* How the CPU caches a mapping. */
typedef enum gdr_mapping_type {
    GDR_MAPPING_TYPE_NONE = 0,    /* not mapped */
    GDR_MAPPING_TYPE_WC = 1,      /* write-combining: fast writes, slow reads; the usual one */
    GDR_MAPPING_TYPE_CACHING = 2, /* cached and coherent, as on Grace Hopper */
    GDR_MAPPING_TYPE_DEVICE = 3,  /* device memory, for naturally aligned accesses of at most 8 bytes */
    GDR_MAPPING_TYPE_MAX = 4      /* number of types; not a type */
} gdr_mapping_type_t;

/* The mapping type that gdr_map_v2 asks the driver for. */
typedef enum gdr_map_flags {
    GDR_MAP_FLAG_DEFAULT = 0, /* the type that suits the platform best */
    GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
    GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
    GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3
} gdr_map_flags_t;

/* Flags of gdr_pin_buffer_v2. */
typedef enum gdr_pin_flags {
    GDR_PIN_FLAG_DEFAULT = 0,
    GDR_PIN_FLAG_FORCE_PCIE = 1 /* reach the memory over PCIe even where a coherent link exists */
} gdr_pin_flags_t;

/* Attributes that gdr_get_attribute returns. */
typedef enum gdr_attr {
    GDR_ATTR_USE_PERSISTENT_MAPPING = 1,       /* 1: pinned memory outlives its cuMemFree until it is unpinned */
    GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2,  /* 1: the driver knows GDR_PIN_FLAG_FORCE_PCIE */
    GDR_ATTR_USING_DMA_BUF_MMAP = 3,           /* 1: mappings are made from CUDA's dma-bufs, without gdrdrv */
    GDR_ATTR_MAX = 4                           /* one past the last attribute */
} gdr_attr_t;

/* Information of gdr_get_info about a pinned buffer. */
typedef struct gdr_info_v2 {
    uint64_t va;                     /* device address of the first pinned page */
    uint64_t mapped_size;            /* bytes pinned, in whole pages; known before gdr_map too */
    uint32_t page_size;              /* size of those pages: 65536 with gdrdrv, the host's page size with dma-bufs */
    uint64_t tm_cycles;              /* how long the driver took to pin, in CPU cycles or other ticks; 0 where unknown */
    uint32_t cycles_per_ms;          /* ticks of tm_cycles per millisecond; 0 where unknown */
    unsigned mapped : 1;             /* 1: mapped */
    unsigned wc_mapping : 1;         /* 1: mapped write-combining */
    gdr_mapping_type_t mapping_type; /* type of the mapping, GDR_MAPPING_TYPE_NONE while not mapped */
} gdr_info_v2_t;
typedef gdr_info_v2_t gdr_info_t;

/**
 * Opens a connection to GPU memory. It uses the kernel driver gdrdrv or, if that cannot be used, CUDA's dma-bufs (see
 * GDR_ATTR_USING_DMA_BUF_MMAP).
 *
 * The function is suitable as a probe: it prints nothing unless logging is enabled, does not initialize CUDA and
 * creates no threads. It may load libcuda, which then stays loaded. Each call opens an independent connection, and
 * reads the environment variables.
 *
 * Returns NULL if neither works. gdrdrv: /dev/gdrdrv is missing, may not be opened, is older than
 * MINIMUM_GDRDRV_VERSION, or was loaded without a GPU driver. dma-bufs: there is no CUDA driver of 13.3 or later; or
 * CUDA is initialized in this process, and no GPU's memory can be mapped. errno is the error of gdrdrv; the log
 * names the errors of both. The function also returns NULL if there is no memory for handles (ENOMEM, or EAGAIN if not
 * even a page may be locked after mlockall).
 */
gdr_t gdr_open(void);

/**
 * Closes g; buffers still pinned or mapped are unmapped and unpinned first.
 * Touching one of those mappings afterwards raises SIGSEGV; its addresses stay
 * reserved.
 *
 * In a forked child, it closes the child's copies of the descriptors behind g, so
 * that the driver can release the pins when the parent ends. The parent's
 * buffers stay as they are; the child's copies of their handles become invalid.
 *
 * Returns 0, or the first error that the driver gave; g is closed and
 * everything released in any case. EINVAL: g is not open.
 */
int gdr_close(gdr_t g);

/**
 * Pins GPU memory of this process, so that it stays in place and can be mapped.
 *
 * addr may be any device address and size any number of bytes, since the range is rounded out to whole pages. To be
 * mapped by gdr_map, addr must be a multiple of GPU_PAGE_SIZE or, with dma-bufs, of the system's page size (unless
 * GDRCOPY_ALLOW_UNALIGNED_MAP=1 is set). Memory pinned twice has two independent handles. p2p_token and va_space are
 * for drivers before 2.5; pass 0.
 *
 * On success *handle stands for the pin until gdr_unpin_buffer or gdr_close.
 *
 * EMFILE: dma-bufs take a file descriptor each, and none is left. EINVAL: g or handle is invalid, or the range is
 * not GPU memory that can be pinned. This is so for host memory, managed memory, freed memory, memory of another
 * process, memory without RDMA support, and a range that is too long. ENOMEM: out of BAR1 or other resources.
 * EOPNOTSUPP: the GPU does not support pinning. EACCES: forked child.
 */
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t *handle);

/**
 * Pins GPU memory as gdr_pin_buffer does; flags is a set of gdr_pin_flags_t.
 *
 * Errors are those of gdr_pin_buffer. EOPNOTSUPP and EINVAL also mean that the driver or the GPU cannot honor
 * GDR_PIN_FLAG_FORCE_PCIE; pin again without this flag.
 */
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle);

/**
 * Unpins the buffer, after unmapping it if it is mapped; touching that mapping
 * afterwards raises SIGSEGV, and its addresses stay reserved. The
 * handle is invalid from then on. If the driver reports an error, the function
 * returns it and the handle stays valid, for another attempt or for gdr_close.
 *
 * EINVAL: not a pin of g. EACCES: forked child.
 */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/**
 * Reports whether the GPU memory was freed while pinned. If so, *flag is 1, and the mapping must not be touched any
 * more. *flag is always 0 with persistent mapping (GDR_ATTR_USE_PERSISTENT_MAPPING), because the memory then stays
 * alive until it is unpinned.
 *
 * EINVAL: not a pin of g, or flag is NULL. EACCES: forked child.
 */
int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag);

/**
 * Describes the pin, mapped or not.
 *
 * The mapping begins at info->va, so an address d of the buffer is found at (char *)mapping + (d - info->va).
 *
 * EINVAL: not a pin of g, or info is NULL. EACCES: forked child.
 */
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

/* Programs built before 2.4 call the symbol gdr_get_info, whose struct ends before mapping_type. */
#define gdr_get_info gdr_get_info_v2

/**
 * Maps the first size bytes of the pinned buffer into this process, as gdr_map_v2 does with GDR_MAP_FLAG_DEFAULT.
 */
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);

/**
 * Maps the first size bytes of the pinned buffer, rounded up to the system's
 * page size, for reading and writing. flags is one gdr_map_flags_t.
 *
 * On success *ptr_va is the CPU address of the buffer's first page, and
 * gdr_get_info reports the type of the mapping.
 *
 * Do not munmap the mapping yourself. A later gdr_unmap, gdr_unpin_buffer or gdr_close acts on its addresses, even
 * if the program has mapped something else there since.
 *
 * EAGAIN: mapped already, or the memory was freed at the same time. EOPNOTSUPP: the platform has no mapping of that
 * type. EINVAL: not a pin of g; ptr_va is NULL; unknown flag; size is 0 or exceeds the pin; the pinned address is not
 * aligned (see gdr_pin_buffer). ENOMEM: no address space left. EACCES: forked child.
 */
int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **ptr_va, size_t size, int flags);

/**
 * Unmaps the buffer; its addresses are free for other uses afterwards.
 *
 * The mapping of gdr_map is unmapped, whatever va and size are; if they differ from it, a warning is logged.
 *
 * EINVAL: not a pin of g, or not mapped. EACCES: forked child.
 */
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);

/**
 * Writes size bytes from h_ptr to map_d_ptr, an address inside the mapping of
 * handle. Either pointer may have any alignment.
 *
 * Nothing outside the range is written. On write-combining and device mappings
 * every byte of it is written exactly once; on cached mappings some may be
 * written twice. A write of 1, 2, 4 or 8 bytes to a naturally aligned address is
 * one store of that width, on every mapping.
 *
 * The data reaches the GPU after everything that this thread has stored before the call, through this library or
 * otherwise. It reaches the GPU before everything that the thread stores after it. So write the payload with one
 * call and the flag that announces it with the next. Within one call there is no order. The call pushes the data
 * out, but does not wait until it has arrived. To be sure of that, read some of it back.
 *
 * The bounds of the mapping are not checked. size 0 succeeds and touches
 * nothing.
 *
 * EINVAL: the handle is invalid or not mapped; a pointer is NULL and size is
 * not 0. EACCES: forked child.
 */
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);

/**
 * Reads size bytes from map_d_ptr, an address inside the mapping of handle, to
 * h_ptr. Either pointer may have any alignment.
 *
 * The data is never older than the start of the call. It is read after
 * everything that this thread has read through this library before. It is read
 * before everything that the thread stores after the call, and before everything
 * that the thread then reads from host memory or through this library. So poll a
 * flag with one call, and read the payload that it announces with the next. Do
 * not read the payload through the pointer of gdr_map: on x86-64 such a load can
 * run before an earlier call. A read of 1, 2, 4 or 8 bytes from a naturally
 * aligned address is one load of that width.
 *
 * The bounds of the mapping are not checked. size 0 succeeds and touches
 * nothing.
 *
 * Each KiB that is read over PCIe takes a round trip, about a microsecond; from
 * some KiB on, cuMemcpy is faster (docs/performance.md).
 *
 * EINVAL: the handle is invalid or not mapped; a pointer is NULL and size is
 * not 0. EACCES: forked child.
 */
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);

/**
 * Returns the version of the library that is running. The program may have been
 * compiled with another version (GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION).
 * A NULL argument is ignored.
 */
void gdr_runtime_get_version(int *major, int *minor);

/**
 * Returns the version of the kernel driver that g is connected to. With
 * dma-bufs it is 2.6, because they have the features of this version.
 *
 * EINVAL: g is not open, or an argument is NULL. EACCES: forked child.
 */
int gdr_driver_get_version(gdr_t g, int *major, int *minor);

/**
 * Stores an attribute of g in *v. On failure *v is 0.
 *
 * EINVAL: g is not open, attr is not an attribute, or v is NULL. EACCES: forked
 * child.
 */
int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v);

/**
 * Returns the name of a mapping type in *pstr, a constant that is valid while the library is loaded. It is "None",
 * "Write Combining", "Caching" or "Device".
 *
 * EINVAL: mapping_type is not a type, or pstr is NULL.
 */
int gdr_get_mapping_type_string(gdr_mapping_type_t mapping_type, const char **pstr);

#ifdef __cplusplus
}
#endif

#endif
