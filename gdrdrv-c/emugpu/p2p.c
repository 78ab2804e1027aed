// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The functions nvidia_p2p_*, which other modules call. */
#include <linux/delay.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "emugpu.h"

static bool coherent;
module_param(coherent, bool, 0444);
MODULE_PARM_DESC(coherent, "the GPU has a coherent link: the CPU may map its memory cached, or through BAR1");

static uint bar1_pages;
module_param(bar1_pages, uint, 0644);
MODULE_PARM_DESC(bar1_pages, "most pages that can be pinned, as BAR1 may be smaller than the memory (default 0: all)");

static int held;
module_param(held, int, 0644);
MODULE_PARM_DESC(held, "number of a process whose pins and mmaps do not return while it is set, as with a GPU that hangs");

void wait_while_held(void)
{
	while (READ_ONCE(held) == current->tgid)
		usleep_range(1000, 1100);
}

static atomic64_t unchecked_bytes = ATOMIC64_INIT(0);

u64 pins_unchecked_bytes(void)
{
	return atomic64_read(&unchecked_bytes);
}

/* Fills the page table with the pages of the pin's range, and gets a reference to each. */
static int fill(struct pin *pin, struct emugpu_space *space)
{
	u64 va;
	u32 i;
	int error;

	if (!bar_is_present() || !space_has_whole(space, pin->va, pin->size))
		return -EINVAL;
	if (bar1_pages && pins_pages() + pin->size / EMUGPU_PAGE_SIZE > bar1_pages)
		return -ENOMEM;
	for (va = pin->va; va < pin->va + pin->size; va += EMUGPU_PAGE_SIZE) {
		i = pin->table.entries;
		error = space_page(space, va, &pin->numbers[i]);
		if (error)
			return error;
		bar_get(pin->numbers[i]);
		pin->pages[i].physical_address = bar_address(pin->numbers[i]);
		pin->table.pages[i] = &pin->pages[i];
		pin->table.entries++;
	}
	return 0;
}

/* Returns the error that EMUGPU_INJECT sets if this pin is the one to fail, else 0. */
static int injected(struct emugpu_space *space)
{
	if (!space->inject.nth || --space->inject.nth)
		return 0;
	return -space->inject.error;
}

static struct emugpu_space *space_of(u64 p2p_token, u32 va_space)
{
	return p2p_token || va_space ? space_of_tokens(p2p_token, va_space) : space_of_caller();
}

/*
 * Allocates 16 bytes per page, as real GPU drivers do before they check a range. Only the lower
 * 32 bits of the number of pages count. The allocation fails instead of calling the OOM killer,
 * which would end tests.
 */
static void *allocate_unchecked(u64 size)
{
	const u32 pages = size / EMUGPU_PAGE_SIZE;
	const size_t bytes = (size_t)pages * (sizeof(u64) + 2 * sizeof(u32));

	atomic64_add(bytes, &unchecked_bytes);
	return kvmalloc(bytes, GFP_KERNEL | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
}

/* Returns whether the pages at the pin's addresses are still those in its table. */
static bool is_current(const struct pin *pin, struct emugpu_space *space)
{
	u32 i, page;

	for (i = 0; i < pin->table.entries; i++)
		if (space_page(space, pin->va + (u64)i * EMUGPU_PAGE_SIZE, &page) || page != pin->numbers[i])
			return false;
	return true;
}

static int get_checked_pages(u64 p2p_token, u32 va_space, u64 va, u64 size, struct nvidia_p2p_page_table **table,
			     void (*free_callback)(void *data), void *data)
{
	struct emugpu_space *space;
	struct pin *pin;
	u32 delay;
	int error;

	if (!va || !size || va % EMUGPU_PAGE_SIZE || size % EMUGPU_PAGE_SIZE || size > bar_bytes() || va + size < va)
		return -EINVAL;
	pin = pin_new(va, size);
	if (!pin)
		return -ENOMEM;
#ifdef NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE
	pin->table.flags = coherent ? NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE : 0;
#endif
	pin->free_callback = free_callback;
	pin->data = data;

	mutex_lock(&emugpu_lock);
	space = space_of(p2p_token, va_space);
	error = space ? injected(space) : -EINVAL;
	if (!error)
		error = fill(pin, space);
	if (!error && free_callback) {
		/* While the lock is dropped, the memory may be freed. On a real GPU this may happen, too. */
		delay = space->inject.pin_delay;
		mutex_unlock(&emugpu_lock);
		pause_for(delay);
		mutex_lock(&emugpu_lock);
		space = space_of(p2p_token, va_space);
		error = space && is_current(pin, space) ? 0 : -EINVAL;
	}
	if (error) {
		mutex_unlock(&emugpu_lock);
		pin_free(pin);
		return error;
	}
	pin->space = space;
	pin_add(pin);
	*table = &pin->table;
	delay = space->inject.pin_delay;
	mutex_unlock(&emugpu_lock);

	/* From here on the free callback can run. */
	pause_for(delay);
	return 0;
}

static int get_pages(u64 p2p_token, u32 va_space, u64 va, u64 size, struct nvidia_p2p_page_table **table,
		     void (*free_callback)(void *data), void *data)
{
	void *unchecked = allocate_unchecked(size);
	int error = -ENOMEM;

	if (unchecked)
		error = get_checked_pages(p2p_token, va_space, va, size, table, free_callback, data);
	wait_while_held(); /* failed calls wait, too */
	kvfree(unchecked);
	if (error)
		*table = (void *)0xdbdbdbdbdbdbdbdb; /* any use of this address crashes */
	return error;
}

/*
 * Ends the pin that has this table. If no pin has it and `frees_again` is true, a real GPU driver
 * would free the table a second time. emugpu warns instead.
 */
static int put_pages(u64 p2p_token, u32 va_space, struct nvidia_p2p_page_table *table, bool frees_again)
{
	struct emugpu_space *space;
	struct pin *pin;
	u32 delay;
	int error;

	mutex_lock(&emugpu_lock);
	space = space_of_caller();
	delay = space ? space->inject.put_delay : 0;
	mutex_unlock(&emugpu_lock);
	pause_for(delay);

	mutex_lock(&emugpu_lock); /* With the lock held, no callback is running. */
	space = space_of(p2p_token, va_space);
	if (space && space->inject.nth_put && !--space->inject.nth_put) {
		error = -space->inject.put_error;
		mutex_unlock(&emugpu_lock);
		return error;
	}
	pin = pin_take(table, space);
	mutex_unlock(&emugpu_lock);
	WARN(!pin && frees_again && (space || !p2p_token), "emugpu: a page table is freed again\n");
	if (pin)
		pin_free(pin);
	return 0;
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
			 void *data)
{
	if (p2p_token && !va_space)
		return -EIO;
#ifdef NVIDIA_P2P_CAP_PERSISTENT_PAGES
	if (!free_callback && p2p_token)
		return -EINVAL;
#else
	if (!free_callback)
		return -EINVAL;
#endif
	if (!page_table)
		return -EINVAL;
	return get_pages(p2p_token, va_space, virtual_address, length, page_table, free_callback, data);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address, struct nvidia_p2p_page_table *page_table)
{
	return put_pages(p2p_token, va_space, page_table, p2p_token);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin = container_of(page_table, struct pin, table);

	WARN(!pin->revoked, "emugpu: free_page_table outside a free callback\n");
	pause_for(pin->space->inject.callback_delay);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

#ifdef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
				    u32 flags)
{
#ifdef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
	if (flags == NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING && !coherent)
		return -ENOTSUPP; /* Without a coherent link, PCIe is the only path. */
	flags &= ~NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING;
#endif
	if (!page_table || flags)
		return -EINVAL;
	return get_pages(0, 0, virtual_address, length, page_table, NULL, NULL);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags)
{
	return flags ? -EINVAL : put_pages(0, 0, page_table, true);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages_persistent);
#endif
