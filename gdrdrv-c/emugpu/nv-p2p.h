/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The pinning interface of the GPU driver, as emugpu provides it.
 *
 * Builds for a real GPU take this file from the GPU driver's own sources. It has changed over the years;
 * NV_P2P_BRANCH says whose shape is wanted, so that code for each of them can be compiled:
 *
 *   515   table without flags; pins without a callback are persistent
 *   525   calls of their own for persistent pins
 *   570   persistent pins that can be forced through BAR1
 *   580   table with flags (the default)
 */
#ifndef NV_P2P_H
#define NV_P2P_H

#include <linux/types.h>

#ifndef NV_P2P_BRANCH
#define NV_P2P_BRANCH 580
#endif

/* Major number in the upper half, minor in the lower. */
#if NV_P2P_BRANCH >= 580
#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00020000
#else
#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00010002
#endif

/* Of the same major version, and with every field that this header knows. */
#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table)                         \
	((table)->version >> 16 == NVIDIA_P2P_PAGE_TABLE_VERSION >> 16 &&       \
	 (table)->version >= NVIDIA_P2P_PAGE_TABLE_VERSION)

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB = 1,
	NVIDIA_P2P_PAGE_SIZE_128KB = 2,
};

struct nvidia_p2p_page {
	u64 physical_address;
	u32 registers[6];
};

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size; /* enum nvidia_p2p_page_size_type */
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid; /* 16 bytes */
#if NV_P2P_BRANCH >= 580
	u32 flags;
#endif
};

#if NV_P2P_BRANCH >= 580
/* The CPU may map the pages cached. */
#define NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE 0x1
#endif

#if NV_P2P_BRANCH < 525
/* get_pages without a callback makes a pin that outlives the allocation. */
#define NVIDIA_P2P_CAP_PERSISTENT_PAGES
#endif

/*
 * Pins the range, whole 64 KiB pages of memory of the calling process, until put_pages. If the memory is freed
 * before that, free_callback(data) runs in the freeing thread: it must end all access, and calls free_page_table. The
 * table is gone when it returns. It can run before get_pages has returned.
 *
 * 0, -EINVAL, -ENOTSUPP, -ENOMEM or -EIO.
 */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
			 void *data);

/*
 * Waits for a callback in flight: never from that callback, nor with a lock held that it takes. In a process other than
 * that which pinned, and after the callback, it does nothing, and answers 0. A failure leaves the pin as it is.
 */
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table);

/* From the callback alone. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

#if NV_P2P_BRANCH >= 525
#define NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API

#if NV_P2P_BRANCH >= 570
#define NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING 1
#endif

/* Pins that outlive the allocation: memory that is freed stays as it is until put_pages_persistent. */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags);
#endif

#endif
