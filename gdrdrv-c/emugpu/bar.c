// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The GPU memory is BAR 2 of QEMU's ivshmem-plain device. No page stays mapped in this module, unless a
 * test sets `mixed`. A mapping would reserve a memory type for the page, and hide which type gdrdrv
 * reserves. When the driver is unbound from the device, the reference counts of the pages stay, because
 * pages are still allocated and pinned.
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
	struct pci_dev *device; /* NULL once the driver is unbound from it */
	void (*left)(void);
	phys_addr_t base;
	u32 count;

	spinlock_t lock;
	u32 *references; /* the number of references to each page */
	u32 free;
	u32 next; /* the page at which the next search for a free one starts */
	u32 run_left;
	u32 random;
} bar;

module_param_named(pages, bar.count, uint, 0444);
module_param_named(free_pages, bar.free, uint, 0444);

/* Returns the next number of a sequence that is the same each time the module is loaded. */
static u32 random(void)
{
	bar.random ^= bar.random << 13;
	bar.random ^= bar.random >> 17;
	bar.random ^= bar.random << 5;
	return bar.random;
}

/* Maps the halves of the last page with different memory types, as other drivers might. */
static bool map_last_page(struct device *device)
{
	phys_addr_t last = bar_address(bar.count - 1);

	return devm_ioremap_wc(device, last, HALF) && devm_ioremap(device, last + HALF, HALF);
}

static int device_comes(struct pci_dev *device, const struct pci_device_id *id)
{
	u32 count = pci_resource_len(device, IVSHMEM_BAR) / EMUGPU_PAGE_SIZE;
	int error;

	if (bar.device || (bar.references && count != bar.count))
		return -EBUSY;
	error = pcim_enable_device(device);
	if (error)
		return error;
	bar.base = pci_resource_start(device, IVSHMEM_BAR);
	if (!bar.references) {
		bar.count = count;
		bar.free = count;
		bar.references = vzalloc(array_size(count, sizeof(*bar.references)));
	}
	if (!bar.references || (mixed && !map_last_page(&device->dev)))
		return -ENOMEM;
	mutex_lock(&emugpu_lock);
	bar.device = device;
	mutex_unlock(&emugpu_lock);
	return 0;
}

static void device_leaves(struct pci_dev *device)
{
	mutex_lock(&emugpu_lock);
	bar.device = NULL;
	bar.left();
	mutex_unlock(&emugpu_lock);
}

static const struct pci_device_id devices[] = { { PCI_DEVICE(IVSHMEM_VENDOR, IVSHMEM_DEVICE) }, {} };

static struct pci_driver driver = {
	.name = "emugpu",
	.id_table = devices,
	.probe = device_comes,
	.remove = device_leaves,
};

int bar_init(void (*left)(void))
{
	int error;

	bar.left = left;
	longest_run = max(longest_run, 1U);
	spin_lock_init(&bar.lock);
	bar.random = 2463534242;
	error = pci_register_driver(&driver);
	if (error || bar.device)
		return error;
	pr_err("emugpu: no ivshmem-plain device\n");
	bar_exit();
	return -ENODEV;
}

void bar_exit(void)
{
	pci_unregister_driver(&driver);
	vfree(bar.references);
}

bool bar_is_present(void)
{
	return bar.device;
}

u64 bar_bytes(void)
{
	return (u64)bar.count * EMUGPU_PAGE_SIZE;
}

u64 bar_free_bytes(void)
{
	return (u64)READ_ONCE(bar.free) * EMUGPU_PAGE_SIZE;
}

/*
 * Takes a free page, and returns its number. At least one must be free. A run of calls takes adjacent
 * free pages. The run has a random length of at most longest_run, and begins at a random page.
 */
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

/*
 * Clears a page. With `mixed`, the halves of the last page have different memory types. A mapping
 * can have only one type, so each half is then mapped separately.
 */
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

	if (!bar_is_present())
		return -ENODEV;
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
