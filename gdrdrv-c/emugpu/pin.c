// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* nvidia_p2p_*: the functions that other modules call. */
#include <linux/delay.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "emugpu.h"
#include "nv-p2p.h"

static bool coherent;
module_param(coherent, bool, 0444);
MODULE_PARM_DESC(coherent, "the GPU has a coherent link: the CPU may map its memory cached, or through BAR1");

/* A page table that a client holds. */
struct pin {
	struct nvidia_p2p_page_table table;
	struct list_head node;
	struct emugpu_space *space; /* of an ordinary pin; a persistent pin may exist longer than its space */
	u64 va;
	u64 size;
	void (*free_callback)(void *data); /* NULL: persistent */
	void *data;
	bool revoked; /* its free callback is running */
	u32 *numbers; /* of the pages */
	struct nvidia_p2p_page *pages;
};

/* All pins except revoked ones, which are still counted. */
static LIST_HEAD(pins);
static atomic_t count = ATOMIC_INIT(0);

static u8 uuid[16] = "GPU-emulated";

u64 pins_count(void)
{
	return atomic_read(&count);
}

static void free_pin(struct pin *pin)
{
	u32 i;

	for (i = 0; i < pin->table.entries; i++)
		bar_put(pin->numbers[i]);
	kvfree(pin->table.pages);
	kvfree(pin->pages);
	kvfree(pin->numbers);
	memset(&pin->table, 0xdb, sizeof(pin->table)); /* makes any later use visible */
	kfree(pin);
	atomic_dec(&count);
}

static struct pin *new_pin(u64 va, u64 size)
{
	size_t pages = size / EMUGPU_PAGE_SIZE;
	struct pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL);

	if (!pin)
		return NULL;
	atomic_inc(&count);
	pin->va = va;
	pin->size = size;
	pin->table.version = NVIDIA_P2P_PAGE_TABLE_VERSION;
	pin->table.page_size = NVIDIA_P2P_PAGE_SIZE_64KB;
	pin->table.gpu_uuid = uuid;
#ifdef NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE
	pin->table.flags = coherent ? NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE : 0;
#endif
	pin->table.pages = kvcalloc(pages, sizeof(*pin->table.pages), GFP_KERNEL);
	pin->pages = kvcalloc(pages, sizeof(*pin->pages), GFP_KERNEL);
	pin->numbers = kvcalloc(pages, sizeof(*pin->numbers), GFP_KERNEL);
	if (pin->table.pages && pin->pages && pin->numbers)
		return pin;
	free_pin(pin);
	return NULL;
}

/* Gets the pages of the range of the pin. */
static int fill(struct pin *pin, struct emugpu_space *space)
{
	u64 va;
	u32 i;
	int error;

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

/* Whether this pin is the one to fail (EMUGPU_INJECT). */
static int injected(struct emugpu_space *space)
{
	if (!space->inject.nth || --space->inject.nth)
		return 0;
	return -space->inject.error;
}

static int get_pages(u64 va, u64 size, struct nvidia_p2p_page_table **table, void (*free_callback)(void *data),
		     void *data)
{
	struct emugpu_space *space;
	struct pin *pin;
	u32 delay;
	int error;

	if (!va || !size || va % EMUGPU_PAGE_SIZE || size % EMUGPU_PAGE_SIZE || size > bar_bytes() || va + size < va)
		return -EINVAL;
	pin = new_pin(va, size);
	if (!pin)
		return -ENOMEM;
	pin->free_callback = free_callback;
	pin->data = data;

	mutex_lock(&emugpu_lock);
	space = space_of_caller();
	error = space ? injected(space) : -EINVAL;
	if (!error)
		error = fill(pin, space);
	if (error) {
		mutex_unlock(&emugpu_lock);
		free_pin(pin);
		return error;
	}
	pin->space = space;
	list_add(&pin->node, &pins);
	*table = &pin->table;
	delay = space->inject.pin_delay;
	mutex_unlock(&emugpu_lock);

	/* From here on the free callback can run. */
	if (delay)
		usleep_range(delay, delay + delay / 8 + 1);
	return 0;
}

/*
 * Undoes a pin. Ordinary pins are searched only in the caller's address space: for one of another process, or one
 * whose free callback came first, it returns 0 and does nothing. Persistent ones are found anywhere.
 */
static int put_pages(u64 va, struct nvidia_p2p_page_table *table)
{
	struct pin *pin, *found = NULL;
	struct emugpu_space *space;

	mutex_lock(&emugpu_lock); /* With the lock held, no callback is running. */
	space = space_of_caller();
	if (space && space->inject.nth_put && !--space->inject.nth_put) {
		mutex_unlock(&emugpu_lock);
		return -ENOMEM;
	}
	list_for_each_entry(pin, &pins, node)
		if (&pin->table == table && pin->va == va && (!pin->free_callback || pin->space == space)) {
			found = pin;
			list_del(&pin->node);
			break;
		}
	mutex_unlock(&emugpu_lock);
	if (found)
		free_pin(found);
	return 0;
}

static void delay_callback(const struct emugpu_space *space)
{
	const u32 delay = space->inject.callback_delay;

	if (delay)
		usleep_range(delay, delay * 9 / 8 + 1);
}

void pins_lose(struct emugpu_space *space, u64 va, u64 size)
{
	struct pin *pin, *next;
	LIST_HEAD(lost);

	list_for_each_entry_safe(pin, next, &pins, node)
		if (pin->free_callback && pin->space == space && pin->va < va + size && va < pin->va + pin->size)
			list_move_tail(&pin->node, &lost);
	list_for_each_entry_safe(pin, next, &lost, node) {
		delay_callback(space);
		list_del(&pin->node);
		pin->revoked = true;
		pin->free_callback(pin->data);
		free_pin(pin);
	}
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
			 void *data)
{
	u32 process = task_tgid_vnr(current);

	if (p2p_token && !va_space)
		return -EIO;
	if ((p2p_token || va_space) && (p2p_token != ((u64)process << 16 | 1) || va_space != process))
		return -EINVAL;
#ifdef NVIDIA_P2P_CAP_PERSISTENT_PAGES
	if (!free_callback && p2p_token)
		return -EINVAL;
#else
	if (!free_callback)
		return -EINVAL;
#endif
	if (!page_table)
		return -EINVAL;
	return get_pages(virtual_address, length, page_table, free_callback, data);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address, struct nvidia_p2p_page_table *page_table)
{
	return put_pages(virtual_address, page_table);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin = container_of(page_table, struct pin, table);

	WARN(!pin->revoked, "emugpu: free_page_table outside a free callback\n");
	delay_callback(pin->space);
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
	return get_pages(virtual_address, length, page_table, NULL, NULL);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags)
{
	return flags ? -EINVAL : put_pages(virtual_address, page_table);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages_persistent);
#endif
