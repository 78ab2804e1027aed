// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Pins are page tables that clients (such as gdrdrv) hold. A free of pinned memory runs the pins' callbacks, if any. */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "emugpu.h"

/* Revoked pins are not in this list, but `count` includes them until they are freed. */
static LIST_HEAD(pins);
static atomic_t count = ATOMIC_INIT(0);
module_param_named(page_tables, count.counter, int, 0444);
MODULE_PARM_DESC(page_tables, "number of page tables that clients hold");

/* Freed pins. A new pin reuses the one freed last. So if a client still uses a freed pin, a test soon fails. */
static LIST_HEAD(unused);
static DEFINE_SPINLOCK(unused_lock);

static u8 uuid[16] = "emulated GPU \x01\x23\xfe"; /* the bytes of EMUGPU_UUID */

u64 pins_count(void)
{
	return atomic_read(&count);
}

u64 pins_pages(void)
{
	struct pin *pin;
	u64 pages = 0;

	list_for_each_entry(pin, &pins, node)
		pages += pin->table.entries;
	return pages;
}

void pins_exit(void)
{
	struct pin *pin, *next;

	list_for_each_entry_safe(pin, next, &unused, node)
		kfree(pin);
}

void pin_free(struct pin *pin)
{
	u32 i;

	for (i = 0; i < pin->table.entries; i++)
		bar_put(pin->numbers[i]);
	kvfree(pin->table.pages);
	kvfree(pin->pages);
	kvfree(pin->numbers);
	memset(pin, 0, sizeof(*pin));
	memset(&pin->table, 0xdb, sizeof(pin->table)); /* makes any later use of the table visible */
	spin_lock(&unused_lock);
	list_add(&pin->node, &unused);
	spin_unlock(&unused_lock);
	atomic_dec(&count);
}

static struct pin *zeroed_pin(void)
{
	struct pin *pin;

	spin_lock(&unused_lock);
	pin = list_first_entry_or_null(&unused, struct pin, node);
	if (pin)
		list_del(&pin->node);
	spin_unlock(&unused_lock);
	if (!pin)
		return kzalloc(sizeof(*pin), GFP_KERNEL);
	memset(pin, 0, sizeof(*pin));
	return pin;
}

struct pin *pin_new(u64 va, u64 size)
{
	size_t pages = size / EMUGPU_PAGE_SIZE;
	struct pin *pin = zeroed_pin();

	if (!pin)
		return NULL;
	atomic_inc(&count);
	pin->va = va;
	pin->size = size;
	pin->table.version = NVIDIA_P2P_PAGE_TABLE_VERSION;
	pin->table.page_size = NVIDIA_P2P_PAGE_SIZE_64KB;
	pin->table.gpu_uuid = uuid;
	pin->table.pages = kvcalloc(pages, sizeof(*pin->table.pages), GFP_KERNEL);
	pin->pages = kvcalloc(pages, sizeof(*pin->pages), GFP_KERNEL);
	pin->numbers = kvcalloc(pages, sizeof(*pin->numbers), GFP_KERNEL);
	if (pin->table.pages && pin->pages && pin->numbers)
		return pin;
	pin_free(pin);
	return NULL;
}

void pin_add(struct pin *pin)
{
	list_add(&pin->node, &pins);
}

struct pin *pin_take(struct nvidia_p2p_page_table *table, struct emugpu_space *space)
{
	struct pin *pin;

	list_for_each_entry(pin, &pins, node)
		if (&pin->table == table && (!pin->free_callback || pin->space == space)) {
			list_del(&pin->node);
			return pin;
		}
	return NULL;
}

void pause_for(u32 microseconds)
{
	if (microseconds)
		usleep_range(microseconds, microseconds + microseconds / 8 + 1);
}

struct lost_pin {
	struct work_struct work;
	struct completion done;
	struct pin *pin;
};

static void call_back(struct work_struct *work)
{
	struct lost_pin *lost = container_of(work, struct lost_pin, work);

	lost->pin->free_callback(lost->pin->data);
	complete(&lost->done);
}

void pins_lose(struct emugpu_space *space, u64 va, u64 size)
{
	static bool in_kernel_thread;
	struct lost_pin lost_pin;
	struct pin *pin, *next;
	LIST_HEAD(lost);

	list_for_each_entry_safe(pin, next, &pins, node)
		if (pin->free_callback && pin->space == space && pin->va < va + size && va < pin->va + pin->size)
			list_move_tail(&pin->node, &lost);
	list_for_each_entry_safe(pin, next, &lost, node) {
		pause_for(space->inject.callback_delay);
		list_del(&pin->node);
		pin->revoked = true;
		/*
		 * Every second callback runs in a kernel thread, so that clients cannot rely on the
		 * freeing thread's user memory.
		 */
		in_kernel_thread = !in_kernel_thread;
		lost_pin.pin = pin;
		init_completion(&lost_pin.done);
		INIT_WORK_ONSTACK(&lost_pin.work, call_back);
		if (in_kernel_thread)
			schedule_work(&lost_pin.work);
		else
			call_back(&lost_pin.work);
		wait_for_completion(&lost_pin.done); /* not flush_work(), which is GPL-only */
		destroy_work_on_stack(&lost_pin.work);
		pin_free(pin);
	}
}
