// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The memory is BAR 2 of QEMU's ivshmem-plain device. No page stays mapped here, unless a test asks for it. A
 * mapping would reserve a memory type, and hide the type of a client's mapping.
 */
#include <linux/bitmap.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "emugpu.h"

#define IVSHMEM_VENDOR 0x1af4
#define IVSHMEM_DEVICE 0x1110
#define IVSHMEM_BAR 2

#define HALF (EMUGPU_PAGE_SIZE / 2)

static uint longest_run = 8;
module_param(longest_run, uint, 0444);
MODULE_PARM_DESC(longest_run, "largest number of adjacent pages that are handed out in order (default 8)");

static bool mixed;
module_param(mixed, bool, 0444);
MODULE_PARM_DESC(mixed, "keep the last page mapped, as another driver might: one half write-combining, one uncached");

static struct {
	struct pci_dev *device;
	phys_addr_t base;
	void __iomem *combining, *uncached; /* halves of the last page, or NULL */
	u32 count;

	spinlock_t lock;
	u32 *references; /* per page */
	u32 free;
	u32 next; /* where to start looking for a free page */
	u32 run_left;
	u32 random;
} bar;

module_param_named(pages, bar.count, uint, 0444);
module_param_named(free_pages, bar.free, uint, 0444);

/* The same sequence each time the module is loaded. */
static u32 random(void)
{
	bar.random ^= bar.random << 13;
	bar.random ^= bar.random >> 17;
	bar.random ^= bar.random << 5;
	return bar.random;
}

static int find_device(u64 *size)
{
	int error;

	bar.device = pci_get_device(IVSHMEM_VENDOR, IVSHMEM_DEVICE, NULL);
	if (!bar.device) {
		pr_err("emugpu: no ivshmem-plain device\n");
		return -ENODEV;
	}
	error = pci_enable_device(bar.device);
	if (error)
		goto put;
	error = pci_request_region(bar.device, IVSHMEM_BAR, "emugpu");
	if (error)
		goto disable;
	bar.base = pci_resource_start(bar.device, IVSHMEM_BAR);
	*size = pci_resource_len(bar.device, IVSHMEM_BAR);
	return 0;

disable:
	pci_disable_device(bar.device);
put:
	pci_dev_put(bar.device);
	return error;
}

int bar_init(void)
{
	u64 size;
	int error = find_device(&size);

	if (error)
		return error;
	longest_run = max(longest_run, 1U);
	spin_lock_init(&bar.lock);
	bar.random = 2463534242;
	bar.count = size / EMUGPU_PAGE_SIZE;
	bar.free = bar.count;
	bar.references = vzalloc(array_size(bar.count, sizeof(*bar.references)));
	if (mixed) {
		bar.combining = ioremap_wc(bar_address(bar.count - 1), HALF);
		bar.uncached = ioremap(bar_address(bar.count - 1) + HALF, HALF);
	}
	if (bar.references && (!mixed || (bar.combining && bar.uncached)))
		return 0;
	bar_exit();
	return -ENOMEM;
}

void bar_exit(void)
{
	/* Linux 7.3 warns of iounmap(NULL). */
	if (bar.combining)
		iounmap(bar.combining);
	if (bar.uncached)
		iounmap(bar.uncached);
	vfree(bar.references);
	pci_release_region(bar.device, IVSHMEM_BAR);
	pci_disable_device(bar.device);
	pci_dev_put(bar.device);
}

u64 bar_bytes(void)
{
	return (u64)bar.count * EMUGPU_PAGE_SIZE;
}

u64 bar_free_bytes(void)
{
	return (u64)READ_ONCE(bar.free) * EMUGPU_PAGE_SIZE;
}

/* Takes runs of one to longest_run adjacent pages, each run from another place. There must be a free page. */
static u32 take_one(void)
{
	if (!bar.run_left) {
		bar.run_left = 1 + random() % longest_run;
		bar.next = random() % bar.count;
	}
	while (bar.references[bar.next])
		bar.next = (bar.next + 1) % bar.count;
	bar.run_left--;
	bar.references[bar.next] = 1;
	return bar.next;
}

/* A mapping has one memory type, and the last page may have two. */
static int clear_page_of_bar(u32 page)
{
	const u32 part = mixed ? HALF : EMUGPU_PAGE_SIZE;
	u32 offset;

	for (offset = 0; offset < EMUGPU_PAGE_SIZE; offset += part) {
		void __iomem *mapped = ioremap_wc(bar_address(page) + offset, part);

		if (!mapped)
			return -ENOMEM;
		memset_io(mapped, 0, part);
		iounmap(mapped);
	}
	return 0;
}

int bar_take(u32 *pages, u32 count)
{
	int error = 0;
	u32 i;

	spin_lock(&bar.lock);
	if (count > bar.free) {
		spin_unlock(&bar.lock);
		return -ENOMEM;
	}
	bar.free -= count;
	for (i = 0; i < count; i++)
		pages[i] = take_one();
	spin_unlock(&bar.lock);

	for (i = 0; i < count && !error; i++)
		error = clear_page_of_bar(pages[i]);
	for (i = 0; i < count && error; i++)
		bar_put(pages[i]);
	return error;
}

void bar_get(u32 page)
{
	spin_lock(&bar.lock);
	bar.references[page]++;
	spin_unlock(&bar.lock);
}

void bar_put(u32 page)
{
	spin_lock(&bar.lock);
	if (--bar.references[page] == 0)
		bar.free++;
	spin_unlock(&bar.lock);
}

bool bar_is_shared(u32 page)
{
	return READ_ONCE(bar.references[page]) > 1;
}

phys_addr_t bar_address(u32 page)
{
	return bar.base + (phys_addr_t)page * EMUGPU_PAGE_SIZE;
}
