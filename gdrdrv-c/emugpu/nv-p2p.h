/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The pinning interface of the GPU driver, as emugpu provides it.
 *
 * Builds for a real GPU use this file from the GPU driver's sources. It differs between branches; NV_P2P_BRANCH
 * selects one, so that code for each of them can be compiled:
 *
 *   515   table without flags; pins without a callback are persistent
 *   525   separate functions for persistent pins
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

/* A table is compatible if it has the same major version, and every field that this header declares. */
#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table)                         \
	((table)->version >> 16 == NVIDIA_P2P_PAGE_TABLE_VERSION >> 16 &&       \
	 (table)->version >= NVIDIA_P2P_PAGE_TABLE_VERSION)

/* emugpu has only pages of 64 KiB. NVIDIA's gdrdrv needs the names of all, and that of the type below. */
enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
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

typedef struct nvidia_p2p_page_table nvidia_p2p_page_table_t;

#if NV_P2P_BRANCH >= 580
/* The CPU may map the pages cached. */
#define NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE 0x1
#endif

#if NV_P2P_BRANCH < 525
/* get_pages without a callback makes a pin that stays when the memory is freed. */
#define NVIDIA_P2P_CAP_PERSISTENT_PAGES
#endif

/*
 * Pins the range of whole 64 KiB pages of one allocation, until put_pages. With tokens of 0, it is memory of the
 * calling process. Otherwise they name the process, which need not be the caller. If the memory is freed before that,
 * free_callback(data) runs in the freeing thread, or in one of the kernel's for which that waits. It must end all
 * access, and call free_page_table. The table is invalid once it returns. The callback can run before get_pages has
 * returned. If memory is freed before its callback is registered, get_pages fails with -EINVAL, without a callback.
 *
 * 16 bytes for each 64 KiB of the length are allocated, and not accounted to the process, before the range is checked.
 * The table can be at the address of one that has just been freed. After a failure, *page_table is not valid.
 *
 * Returns 0, -EINVAL, -ENOTSUPP, -ENOMEM or -EIO.
 */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
			 void *data);

/*
 * Waits for a running callback, so it must not be called from that callback, nor with a lock held that the callback
 * takes. The pin is found by the address of its page table only. It is looked for among the pins of the calling
 * process, or of the process that the tokens name. It returns 0 if there is none, because the process is another, the
 * callback came first, or the resource manager has forgotten the process. Without tokens it does nothing then, and the
 * callback may still come. With tokens it frees the table again. A failure leaves the pin unchanged; after -ENOMEM,
 * another call can succeed.
 */
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table);

/* May be called from the callback only. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

#if NV_P2P_BRANCH >= 525
#define NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API

#if NV_P2P_BRANCH >= 570
#define NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING 1
#endif

/*
 * Pins that stay when the memory is freed. They end by put_pages_persistent of any process, which uses freed memory if
 * the table is not, or no longer, that of such a pin.
 */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags);
#endif

#endif
