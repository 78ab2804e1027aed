/* SPDX-License-Identifier: MIT OR (GPL-2.0-only WITH Linux-syscall-note) */
/*
 * What user space and gdrdrv say to each other over /dev/gdrdrv, version 2.6: nine ioctls and mmap.
 *
 * A pin is named by its handle, which is also the page offset at which mmap() maps it:
 * mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, handle * page size).
 *
 * Only the process that opened the device may use it: EACCES to all others. EFAULT: the argument cannot be read
 * or written. ENOTTY: no such command. EINVAL, of every command that takes a handle: no pin has it.
 */
#ifndef GDRDRV_UAPI_H
#define GDRDRV_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GDRDRV_DEVICE "/dev/gdrdrv"

#define GDRDRV_MAJOR_VERSION 2
#define GDRDRV_MINOR_VERSION 6

/* The oldest library that this driver serves. */
#define GDRDRV_MINIMUM_API_MAJOR_VERSION 2
#define GDRDRV_MINIMUM_API_MINOR_VERSION 0

#define GDRDRV_VERSION(major, minor) ((major) << 16 | (minor))

/* GPU memory is pinned in pages of 64 KiB: ranges are rounded out to them. */
#define GDRDRV_GPU_PAGE_SHIFT 16
#define GDRDRV_GPU_PAGE_SIZE (1UL << GDRDRV_GPU_PAGE_SHIFT)

/* How the CPU reaches mapped GPU memory. */
#define GDRDRV_MAPPING_TYPE_NONE 0    /* not mapped; in a request: what is best on this machine */
#define GDRDRV_MAPPING_TYPE_WC 1      /* write-combining */
#define GDRDRV_MAPPING_TYPE_CACHING 2 /* cached and coherent */
#define GDRDRV_MAPPING_TYPE_DEVICE 3  /* device memory as arm64 has it: aligned accesses alone */

/*
 * PIN_BUFFER: pins GPU memory of the calling process.
 *
 * EINVAL: addr 0, an empty range, one that leaves the address space, one that is not GPU memory of the caller;
 * with persistent mapping, tokens that are not 0. ENOMEM: no memory, or no handle left. Else what the GPU driver
 * answers.
 */
struct gdrdrv_pin_buffer {
	__u64 addr;
	__u64 size;      /* bytes */
	__u64 p2p_token; /* tokens of the process, or 0 */
	__u32 va_space;
	__u64 handle;    /* out */
};

/* UNPIN_BUFFER: takes the pin's pages out of all mappings, where a touch then raises SIGBUS, and gives it back. */
struct gdrdrv_unpin_buffer {
	__u64 handle;
};

/* GET_CB_FLAG: whether the memory was freed under the pin. Never so with persistent mapping. */
struct gdrdrv_get_cb_flag {
	__u64 handle;
	__u32 flag; /* out: 0 or 1 */
};

/* GET_INFO: what is known of a pin. */
struct gdrdrv_get_info {
	__u64 handle;
	__u64 va;          /* out: first pinned address, that of a GPU page */
	__u64 mapped_size; /* out: bytes pinned, whole GPU pages */
	__u32 page_size;   /* out: bytes of a GPU page */
	__u32 tsc_khz;     /* out: ticks per millisecond of tm_cycles */
	__u64 tm_cycles;   /* out: ticks that the GPU driver took to pin */
	__u32 mapped;      /* out: 0 or 1 */
	__u32 wc_mapping;  /* out: 1 if mapped write-combining */
};

/* GET_INFO_V2: the same, with the type of the mapping. */
struct gdrdrv_get_info_v2 {
	__u64 handle;
	__u64 va;
	__u64 mapped_size;
	__u32 page_size;
	__u32 tsc_khz;
	__u64 tm_cycles;
	__u32 mapping_type; /* out: GDRDRV_MAPPING_TYPE_* */
};

/* GET_ATTR: a property of the driver. EINVAL: not one of these. */
#define GDRDRV_ATTR_USE_PERSISTENT_MAPPING 1       /* 1: pins outlive a free of their memory */
#define GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE 2  /* 1: GDRDRV_PIN_FLAG_FORCE_PCIE is understood */

struct gdrdrv_get_attr {
	__u32 attr;
	__u32 val; /* out */
};

/*
 * PIN_BUFFER_V2: PIN_BUFFER with flags, without tokens.
 *
 * EINVAL, too: a flag that is not one of these, or that this driver does not support. Error 524 (ENOTSUPP of the
 * kernel) from GPU drivers: not on this GPU.
 */
#define GDRDRV_PIN_FLAG_FORCE_PCIE 0x1 /* map through PCIe, also where a coherent link is there */

struct gdrdrv_pin_buffer_v2 {
	__u64 addr;
	__u64 size; /* bytes */
	__u32 flags;
	__u32 pad;
	__u64 handle; /* out */
};

/*
 * REQ_MAPPING_TYPE: how the next mmap() of a pin shall map it.
 *
 * EBUSY: it is mapped. EINVAL: no such type. EOPNOTSUPP: not on this machine, or not for this pin.
 */
struct gdrdrv_req_mapping_type {
	__u64 handle;
	__u32 mapping_type;
};

/* GET_VERSION: GDRDRV_VERSION() of the driver, and of the oldest library that it serves. */
struct gdrdrv_get_version {
	__u32 gdrdrv_version;
	__u32 minimum_gdr_api_version;
};

/* Most commands were first declared with a pointer, whose size is in their numbers ever since. */
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

/* Programs exist that were built with these numbers and sizes. src/uapi/module_header.rs compares the rest. */
#if !defined(__powerpc64__) && !defined(__mips__) /* whose direction bits differ */
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
