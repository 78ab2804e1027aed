/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The pinning interface of the GPU driver, as emugpu provides it.
 *
 * Builds for a real GPU use the file of the same name from the GPU driver's sources. The interface
 * differs between branches of the GPU driver. NV_P2P_BRANCH selects one, so that code for each of
 * them can be compiled:
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

/* A version has the major number in the upper half, and the minor number in the lower half. */
#if NV_P2P_BRANCH >= 580
#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00020000
#else
#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00010002
#endif

/* A table is compatible if it has the same major version, and every field that this header declares. */
#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table)                         \
	((table)->version >> 16 == NVIDIA_P2P_PAGE_TABLE_VERSION >> 16 &&       \
	 (table)->version >= NVIDIA_P2P_PAGE_TABLE_VERSION)

/* emugpu has only pages of 64 KiB. NVIDIA's gdrdrv needs the other names, too. */
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

typedef struct nvidia_p2p_page_table nvidia_p2p_page_table_t; /* NVIDIA's gdrdrv uses this name */

#if NV_P2P_BRANCH >= 580
/* The CPU may map the pages cached. */
#define NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE 0x1
#endif

#if NV_P2P_BRANCH < 525
/* get_pages without a callback makes a pin that stays when the memory is freed. */
#define NVIDIA_P2P_CAP_PERSISTENT_PAGES
#endif

/*
 * Pins a range of whole 64 KiB pages of one allocation, until put_pages. If both tokens are 0, the
 * memory must belong to the calling process. Otherwise the tokens name the process that has it,
 * which need not be the caller.
 *
 * If the memory is freed before put_pages, free_callback(data) runs in the freeing thread, or in a
 * kernel thread that the freeing thread waits for. The callback must end all access, and call
 * free_page_table. The table is invalid once the callback returns. The callback can run before
 * get_pages has returned. If the memory is freed before the callback is registered, get_pages fails
 * with -EINVAL, and there is no callback.
 *
 * Before the range is checked, 16 bytes for each 64 KiB of the length are allocated, and not
 * accounted to the process. A new table can get the address of a table that has just been freed.
 * After a failure, *page_table is not valid.
 *
 * Returns 0, -EINVAL, -ENOTSUPP, -ENOMEM or -EIO.
 */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
			 void *data);

/*
 * Unpins. Waits for a running callback. So the callback must not call this, and the caller must
 * not hold a lock that the callback takes.
 *
 * The pin is found only by the address of its page table, among the pins of the calling process, or
 * of the process that the tokens name. It is not found if another process has it, if its callback
 * has run, or if the resource manager has forgotten the process. Then the function returns 0, too.
 * Without tokens, it has done nothing, and a callback that has not run yet may still run. With
 * tokens, it has freed the table, a second time if the callback had already freed it.
 *
 * A failure leaves the pin unchanged. After -ENOMEM, another call can succeed.
 */
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table);

/* Frees the page table of a pin whose memory was freed. Only the free callback may call this. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

#if NV_P2P_BRANCH >= 525
#define NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API

#if NV_P2P_BRANCH >= 570
#define NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING 1
#endif

/*
 * Makes a pin that stays when the GPU memory is freed, until any process calls put_pages_persistent.
 * That function does not check its table. It uses freed memory if no persistent pin has the table.
 */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags);
#endif

#endif
