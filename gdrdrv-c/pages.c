// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The GPU driver, which pins memory and answers with a page table. What it can do depends on its release, and is
 * told by macros of its header.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/mm.h>

#include <nv-p2p.h>

#include "gdrdrv.h"

/* From this version on, a page table has flags. */
#define GDR_TABLE_WITH_FLAGS 0x00010003
#define GDR_TABLE_CPU_CACHEABLE 0x1

/* Page tables that we have, of all processes. */
static atomic_t gdr_tables = ATOMIC_INIT(0);

int gdr_pages_tables(void)
{
	return atomic_read(&gdr_tables);
}

#ifdef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API

bool gdr_pages_can_persist(void)
{
	return gdr_use_persistent_mapping;
}

static int gdr_get_persistent(struct gdr_pin *pin)
{
	u32 flags = 0;

#ifdef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
	if (pin->force_pcie)
		flags = NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING;
#endif
	return nvidia_p2p_get_pages_persistent(pin->va, pin->size, &pin->table, flags);
}

static int gdr_put_persistent(struct gdr_pin *pin)
{
	return nvidia_p2p_put_pages_persistent(pin->va, pin->table, 0);
}

#else

bool gdr_pages_can_persist(void)
{
	return false;
}

static int gdr_get_persistent(struct gdr_pin *pin)
{
	return -EOPNOTSUPP;
}

static int gdr_put_persistent(struct gdr_pin *pin)
{
	return -EOPNOTSUPP;
}

#endif

bool gdr_pages_can_force_pcie(void)
{
#ifdef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
	return gdr_pages_can_persist();
#else
	return false;
#endif
}

int gdr_pages_get(struct gdr_pin *pin)
{
	u64 start = ktime_get_ns();
	int err;

	/* Counted before, as gdr_pages_free() may run before we get to see the success. */
	atomic_inc(&gdr_tables);
	if (pin->persistent)
		err = gdr_get_persistent(pin);
	else
		err = nvidia_p2p_get_pages(pin->p2p_token, pin->va_space, pin->va, pin->size, &pin->table,
					   gdr_pin_revoke, pin);
	if (err)
		atomic_dec(&gdr_tables);
	pin->pin_ns = ktime_get_ns() - start;
	return err;
}

static bool gdr_table_fits(const struct nvidia_p2p_page_table *table, u64 size)
{
	return NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table) && table->page_size == NVIDIA_P2P_PAGE_SIZE_64KB &&
	       table->entries >= size >> GDRDRV_GPU_PAGE_SHIFT;
}

static bool gdr_table_cacheable(const struct nvidia_p2p_page_table *table)
{
#if NVIDIA_P2P_PAGE_TABLE_VERSION >= GDR_TABLE_WITH_FLAGS
	return table->flags & GDR_TABLE_CPU_CACHEABLE;
#else
	/* Memory with page structs is memory of the machine's own kind: POWER9, Grace. */
	return !IS_ENABLED(CONFIG_X86) && pfn_valid(PHYS_PFN(table->pages[0]->physical_address));
#endif
}

/* Whether the table is one that we can read, and what may be done with it. Revoked pages are none of our concern. */
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

/* Physical address of a byte of the pin. The pin must be live, its gate be held. */
u64 gdr_pages_address(const struct gdr_pin *pin, u64 offset)
{
	const struct nvidia_p2p_page *page = pin->table->pages[offset >> GDRDRV_GPU_PAGE_SHIFT];

	return page->physical_address + (offset & (GDRDRV_GPU_PAGE_SIZE - 1));
}

/*
 * Gives the pages back, or waits until gdr_pin_revoke() has done so. After this, the GPU driver does not know the
 * pin any more.
 */
void gdr_pages_put(struct gdr_pin *pin)
{
	int err = 0;

	if (pin->persistent)
		err = gdr_put_persistent(pin);
	else if (!READ_ONCE(pin->revoked))
		/* Which a revocation may overtake: this waits for it then, and fails. */
		err = nvidia_p2p_put_pages(pin->p2p_token, pin->va_space, pin->va, pin->table);

	if (READ_ONCE(pin->revoked)) {
		wait_for_completion(&pin->revocation);
		return;
	}
	if (err)
		gdr_err("the GPU driver does not take pages back: %d", err);
	atomic_dec(&gdr_tables);
}

/* Gives revoked pages back. */
void gdr_pages_free(struct gdr_pin *pin)
{
	int err = nvidia_p2p_free_page_table(pin->table);

	if (err)
		gdr_err("the GPU driver does not take a revoked page table back: %d", err);
	atomic_dec(&gdr_tables);
}
