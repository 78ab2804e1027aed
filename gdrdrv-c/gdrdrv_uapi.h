/* SPDX-License-Identifier: MIT OR (GPL-2.0-only WITH Linux-syscall-note) */
/*
 * The interface of /dev/gdrdrv, version 2.6, with ioctls and mmap.
 *
 * A pin is identified by its handle, which is also the page offset for mmap():
 * mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, handle * page size).
 *
 * Only the process that opened the device may use it; others get EACCES. EFAULT: the argument cannot be read or
 * written. ENOTTY: no such command. Every command that takes a handle returns EINVAL if no pin has it.
 */
#ifndef GDRDRV_UAPI_H
#define GDRDRV_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GDRDRV_DEVICE "/dev/gdrdrv"

#define GDRDRV_MAJOR_VERSION 2
#define GDRDRV_MINOR_VERSION 6

/* The oldest library that this driver supports. */
#define GDRDRV_MINIMUM_API_MAJOR_VERSION 2
#define GDRDRV_MINIMUM_API_MINOR_VERSION 0

#define GDRDRV_VERSION(major, minor) ((major) << 16 | (minor))

/* GPU memory is pinned in pages of 64 KiB, so ranges are rounded out to them. */
#define GDRDRV_GPU_PAGE_SHIFT 16
#define GDRDRV_GPU_PAGE_SIZE (1UL << GDRDRV_GPU_PAGE_SHIFT)

/* Types of mappings: how the CPU accesses the GPU memory. */
#define GDRDRV_MAPPING_TYPE_NONE 0    /* not mapped; in a request, the default of the platform */
#define GDRDRV_MAPPING_TYPE_WC 1      /* write-combining */
#define GDRDRV_MAPPING_TYPE_CACHING 2 /* cached and coherent */
#define GDRDRV_MAPPING_TYPE_DEVICE 3  /* arm64 device memory, which allows only aligned accesses */

/*
 * PIN_BUFFER: pins GPU memory of the calling process.
 *
 * EINVAL: addr is 0; or size is 0 and addr is a multiple of the GPU page size; or the range exceeds
 * the address space or the memory of any GPU; or it is not GPU memory of the caller; or a token is
 * not 0, with persistent mapping. ENOMEM: there is no memory or no handle left, or a limit of the
 * process or its user is reached. Other errors are those of the GPU driver.
 */
struct gdrdrv_pin_buffer {
	__u64 addr;
	__u64 size;      /* bytes */
	__u64 p2p_token; /* must be 0 with persistent mapping; ignored without it */
	__u32 va_space;  /* must be 0 with persistent mapping; ignored without it */
	__u64 handle;    /* out */
};

/* UNPIN_BUFFER: removes the pin's pages from all mappings, where accesses then raise SIGBUS, and unpins them. */
struct gdrdrv_unpin_buffer {
	__u64 handle;
};

/*
 * GET_CB_FLAG: reports whether the pinned memory was freed. The flag is always 0 with persistent
 * mapping.
 */
struct gdrdrv_get_cb_flag {
	__u64 handle;
	__u32 flag; /* out: 0 or 1 */
};

/* GET_INFO: reports the properties of a pin. */
struct gdrdrv_get_info {
	__u64 handle;
	__u64 va;          /* out: first pinned address, a multiple of the GPU page size */
	__u64 mapped_size; /* out: bytes pinned, a multiple of the GPU page size */
	__u32 page_size;   /* out: GPU page size in bytes */
	__u32 tsc_khz;     /* out: ticks per millisecond of tm_cycles */
	__u64 tm_cycles;   /* out: ticks that the GPU driver took to pin */
	__u32 mapped;      /* out: 0 or 1 */
	__u32 wc_mapping;  /* out: 1 if mapped write-combining */
};

/*
 * GET_INFO_V2: reports what GET_INFO does, with the type of the mapping instead of `mapped` and
 * `wc_mapping`.
 */
struct gdrdrv_get_info_v2 {
	__u64 handle;
	__u64 va;
	__u64 mapped_size;
	__u32 page_size;
	__u32 tsc_khz;
	__u64 tm_cycles;
	__u32 mapping_type; /* out: GDRDRV_MAPPING_TYPE_* */
};

/* GET_ATTR: reports a property of the driver. EINVAL: the attribute is unknown. */
#define GDRDRV_ATTR_USE_PERSISTENT_MAPPING 1       /* 1: pins stay when their memory is freed */
#define GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE 2  /* 1: GDRDRV_PIN_FLAG_FORCE_PCIE is supported */

struct gdrdrv_get_attr {
	__u32 attr;
	__u32 val; /* out */
};

/*
 * PIN_BUFFER_V2: pins like PIN_BUFFER, with flags and without tokens.
 *
 * EINVAL also means that a flag is unknown, or that this driver does not support it. Error 524
 * (Linux's internal ENOTSUPP) comes from GPU drivers, and means that this GPU does not support the
 * flag.
 */
#define GDRDRV_PIN_FLAG_FORCE_PCIE 0x1 /* map through PCIe, even if there is a coherent link */

struct gdrdrv_pin_buffer_v2 {
	__u64 addr;
	__u64 size; /* bytes */
	__u32 flags;
	__u32 pad;
	__u64 handle; /* out */
};

/*
 * REQ_MAPPING_TYPE: sets the type for the next mmap() of a pin.
 *
 * EBUSY: the pin is mapped. EINVAL: the type does not exist. EOPNOTSUPP: this platform or this pin
 * does not support it.
 */
struct gdrdrv_req_mapping_type {
	__u64 handle;
	__u32 mapping_type;
};

/*
 * GET_VERSION: reports the GDRDRV_VERSION() of the driver, and that of the oldest library that it
 * supports.
 */
struct gdrdrv_get_version {
	__u32 gdrdrv_version;
	__u32 minimum_gdr_api_version;
};

/* Seven commands were first declared with a pointer to their struct, so their numbers encode the size of a pointer. */
#define GDRDRV_IOC_MAGIC 0xDA
#define GDRDRV_IOC_PIN_BUFFER _IOWR(GDRDRV_IOC_MAGIC, 1, struct gdrdrv_pin_buffer)
#define GDRDRV_IOC_UNPIN_BUFFER _IOWR(GDRDRV_IOC_MAGIC, 2, struct gdrdrv_unpin_buffer *)
#define GDRDRV_IOC_GET_CB_FLAG _IOWR(GDRDRV_IOC_MAGIC, 3, struct gdrdrv_get_cb_flag *)
#define GDRDRV_IOC_GET_INFO _IOWR(GDRDRV_IOC_MAGIC, 4, struct gdrdrv_get_info *)
#define GDRDRV_IOC_GET_INFO_V2 _IOWR(GDRDRV_IOC_MAGIC, 5, struct gdrdrv_get_info_v2 *)
#define GDRDRV_IOC_GET_ATTR _IOWR(GDRDRV_IOC_MAGIC, 6, struct gdrdrv_get_attr *)
#define GDRDRV_IOC_PIN_BUFFER_V2 _IOWR(GDRDRV_IOC_MAGIC, 7, struct gdrdrv_pin_buffer_v2)
#define GDRDRV_IOC_REQ_MAPPING_TYPE _IOWR(GDRDRV_IOC_MAGIC, 8, struct gdrdrv_req_mapping_type *)
#define GDRDRV_IOC_GET_VERSION _IOWR(GDRDRV_IOC_MAGIC, 255, struct gdrdrv_get_version *)

/*
 * Existing programs use these numbers and sizes, so they must not change. tests/lists.rs compares the numbers with
 * those in Rust, and gdremu/tests/contract.rs runs cases that use the fields. There is no check in the kernel, where
 * _IOWR() is no constant expression for clang, and none on powerpc and MIPS, where the numbers' direction bits differ.
 */
#if !defined(__KERNEL__) && !defined(__powerpc64__) && !defined(__mips__)
_Static_assert(GDRDRV_IOC_PIN_BUFFER == 0xC028DA01, "PIN_BUFFER");
_Static_assert(GDRDRV_IOC_UNPIN_BUFFER == 0xC008DA02, "UNPIN_BUFFER");
_Static_assert(GDRDRV_IOC_GET_CB_FLAG == 0xC008DA03, "GET_CB_FLAG");
_Static_assert(GDRDRV_IOC_GET_INFO == 0xC008DA04, "GET_INFO");
_Static_assert(GDRDRV_IOC_GET_INFO_V2 == 0xC008DA05, "GET_INFO_V2");
_Static_assert(GDRDRV_IOC_GET_ATTR == 0xC008DA06, "GET_ATTR");
_Static_assert(GDRDRV_IOC_PIN_BUFFER_V2 == 0xC020DA07, "PIN_BUFFER_V2");
_Static_assert(GDRDRV_IOC_REQ_MAPPING_TYPE == 0xC008DA08, "REQ_MAPPING_TYPE");
_Static_assert(GDRDRV_IOC_GET_VERSION == 0xC008DAFF, "GET_VERSION");
#endif
_Static_assert(sizeof(struct gdrdrv_pin_buffer) == 40, "pin_buffer");
_Static_assert(sizeof(struct gdrdrv_unpin_buffer) == 8, "unpin_buffer");
_Static_assert(sizeof(struct gdrdrv_get_cb_flag) == 16, "get_cb_flag");
_Static_assert(sizeof(struct gdrdrv_get_info) == 48, "get_info");
_Static_assert(sizeof(struct gdrdrv_get_info_v2) == 48, "get_info_v2");
_Static_assert(sizeof(struct gdrdrv_get_attr) == 8, "get_attr");
_Static_assert(sizeof(struct gdrdrv_pin_buffer_v2) == 32, "pin_buffer_v2");
_Static_assert(sizeof(struct gdrdrv_req_mapping_type) == 16, "req_mapping_type");
_Static_assert(sizeof(struct gdrdrv_get_version) == 8, "get_version");

#endif
