// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The GPU driver, which pins memory and returns a page table. Macros in its header say what its release supports. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ioport.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>

#include <nv-p2p.h>

#include "gdrdrv.h"

/* From this version on, a page table has flags. */
#define GDR_TABLE_WITH_FLAGS 0x00010003
#define GDR_TABLE_CPU_CACHEABLE 0x1

/* Number of page tables, of all processes. */
static atomic_t gdr_tables = ATOMIC_INIT(0);

int gdr_pages_tables(void)
{
	return atomic_read(&gdr_tables);
}

bool gdr_pages_can_persist(void)
{
#if defined(NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API) || defined(NVIDIA_P2P_CAP_PERSISTENT_PAGES)
	return gdr_use_persistent_mapping;
#else
	return false;
#endif
}

bool gdr_pages_can_force_pcie(void)
{
#ifdef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
	return gdr_pages_can_persist();
#else
	return false;
#endif
}

static int gdr_get(struct gdr_pin *pin)
{
#ifdef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
	u32 flags = 0;

#ifdef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
	if (pin->force_pcie)
		flags = NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING;
#endif
	if (pin->persistent)
		return nvidia_p2p_get_pages_persistent(pin->va, pin->size, &pin->table, flags);
#endif
	/* Older GPU drivers make the pin persistent if there is no callback. */
	return nvidia_p2p_get_pages(pin->p2p_token, pin->va_space, pin->va, pin->size, &pin->table,
				    pin->persistent ? NULL : gdr_pin_revoke, pin);
}

static int gdr_put(struct gdr_pin *pin)
{
#ifdef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
	if (pin->persistent)
		return nvidia_p2p_put_pages_persistent(pin->va, pin->table, 0);
#endif
	return nvidia_p2p_put_pages(pin->p2p_token, pin->va_space, pin->va, pin->table);
}

int gdr_pages_get(struct gdr_pin *pin)
{
	struct timespec64 start, end;
	int err;

	ktime_get_raw_ts64(&start);
	/* Counted first, because gdr_pages_free() may run before the call returns. */
	atomic_inc(&gdr_tables);
	err = gdr_get(pin);
	if (err)
		atomic_dec(&gdr_tables);
	ktime_get_raw_ts64(&end);
	pin->pin_ns = timespec64_to_ns(&end) - timespec64_to_ns(&start);
	return err;
}

static bool gdr_table_fits(const struct nvidia_p2p_page_table *table, u64 size)
{
	return NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table) && table->page_size == NVIDIA_P2P_PAGE_SIZE_64KB &&
	       table->entries >= size >> GDRDRV_GPU_PAGE_SHIFT;
}

/* x86 has no cached memory type for pages that are not RAM. */
static bool gdr_table_cacheable(const struct nvidia_p2p_page_table *table)
{
	if (IS_ENABLED(CONFIG_X86))
		return false;
#if NVIDIA_P2P_PAGE_TABLE_VERSION >= GDR_TABLE_WITH_FLAGS
	return table->flags & GDR_TABLE_CPU_CACHEABLE;
#elif defined(GDR_NVIDIA_IS_OPENSOURCE)
	/* GPU memory is RAM to the kernel on POWER9 and Grace. */
	return page_is_ram(PHYS_PFN(table->pages[0]->physical_address));
#else
	return false; /* page_is_ram() is a GPL-only symbol */
#endif
}

/* Checks the format of the page table, and whether the CPU may cache the pages. Skips revoked pages. */
int gdr_pages_check(struct gdr_pin *pin)
{
	int err = 0;

	down_read(&pin->gate);
	if (pin->live && !gdr_table_fits(pin->table, pin->size)) {
		gdr_err("page table of version %#x, %u pages of kind %u: build gdrdrv for the GPU driver that is loaded",
			pin->table->version, pin->table->entries, pin->table->page_size);
		err = -EINVAL;
	} else if (pin->live) {
		pin->cacheable = !pin->force_pcie && gdr_table_cacheable(pin->table);
	}
	up_read(&pin->gate);
	return err;
}

/* Physical address of a byte of the pin. The pin must be live, with its gate held. */
u64 gdr_pages_address(const struct gdr_pin *pin, u64 offset)
{
	const struct nvidia_p2p_page *page = pin->table->pages[offset >> GDRDRV_GPU_PAGE_SHIFT];

	return page->physical_address + (offset & (GDRDRV_GPU_PAGE_SIZE - 1));
}

/*
 * Returns the pages to the GPU driver, or waits until gdr_pin_revoke() has done so. Returns true if the GPU driver
 * does not know the pin any more; else it keeps the caller's reference, and drops it in gdr_pin_revoke().
 */
bool gdr_pages_put(struct gdr_pin *pin)
{
	if (pin->persistent) {
		int err = gdr_put(pin);

		if (err)
			gdr_err("the GPU driver failed to unpin %#llx: %d", pin->va, err);
		else
			atomic_dec(&gdr_tables);
		return true;
	}
	/* In processes other than the owner, the GPU driver finds no such pin, does nothing, and returns 0. */
	if (gdr_file_is_callers(pin->file) && READ_ONCE(pin->fate) == GDR_PINNED && !gdr_put(pin) &&
	    READ_ONCE(pin->fate) == GDR_PINNED) {
		atomic_dec(&gdr_tables);
		return true;
	}
	__module_get(THIS_MODULE); /* for the callback */
	if (cmpxchg(&pin->fate, GDR_PINNED, GDR_ORPHANED) == GDR_PINNED) {
		gdr_info("the GPU driver keeps %#llx pinned until its memory is freed", pin->va);
		return false;
	}
	module_put(THIS_MODULE);
	wait_for_completion(&pin->revocation);
	return true;
}

/* Frees the page table of revoked pages. */
void gdr_pages_free(struct gdr_pin *pin)
{
	int err = nvidia_p2p_free_page_table(pin->table);

	if (err)
		gdr_err("the GPU driver failed to free a revoked page table: %d", err);
	atomic_dec(&gdr_tables);
}
