// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The memory: BAR 2 of QEMU's ivshmem-plain device, or a range of RAM that the kernel was started without.
 */
#include <linux/bitmap.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "emugpu.h"

static ulong reserved_base;
module_param(reserved_base, ulong, 0444);
MODULE_PARM_DESC(reserved_base, "physical address of reserved RAM (memmap=SIZE$ADDRESS) to use instead of a PCI device");

static ulong reserved_size;
module_param(reserved_size, ulong, 0444);
MODULE_PARM_DESC(reserved_size, "its bytes");

#define IVSHMEM_VENDOR 0x1af4
#define IVSHMEM_DEVICE 0x1110
#define IVSHMEM_BAR 2

/* Pages next to each other that are handed out one after the other, at most. */
#define LONGEST_RUN 8

static struct {
	struct pci_dev *device;
	phys_addr_t base;
	void __iomem *mapped;
	u32 count;

	spinlock_t lock;
	u32 *references; /* of each page */
	u32 free;
	u32 next; /* where to look for a free page */
	u32 run_left;
	u32 random;
} bar;

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
		pr_err("emugpu: no ivshmem-plain device, and no reserved_base given\n");
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
	bar.device = NULL;
	return error;
}

int bar_init(void)
{
	u64 size = reserved_size;
	int error = -ENOMEM;

	spin_lock_init(&bar.lock);
	bar.random = 2463534242;
	bar.base = reserved_base;
	if (!reserved_base) {
		error = find_device(&size);
		if (error)
			return error;
	}
	bar.count = size / EMUGPU_PAGE_SIZE;
	bar.free = bar.count;
	bar.references = vzalloc(array_size(bar.count, sizeof(*bar.references)));
	bar.mapped = ioremap_wc(bar.base, size);
	if (bar.count && bar.references && bar.mapped)
		return 0;
	pr_err("emugpu: %llu bytes at %pa cannot be used\n", size, &bar.base);
	bar_exit();
	return -ENOMEM;
}

void bar_exit(void)
{
	if (bar.mapped)
		iounmap(bar.mapped);
	vfree(bar.references);
	if (bar.device) {
		pci_release_region(bar.device, IVSHMEM_BAR);
		pci_disable_device(bar.device);
		pci_dev_put(bar.device);
	}
}

u64 bar_bytes(void)
{
	return (u64)bar.count * EMUGPU_PAGE_SIZE;
}

u64 bar_free_bytes(void)
{
	return (u64)READ_ONCE(bar.free) * EMUGPU_PAGE_SIZE;
}

/* Runs of one to LONGEST_RUN pages, each somewhere else. There is a free page. */
static u32 take_one(void)
{
	if (!bar.run_left) {
		bar.run_left = 1 + random() % LONGEST_RUN;
		bar.next = random() % bar.count;
	}
	while (bar.references[bar.next])
		bar.next = (bar.next + 1) % bar.count;
	bar.run_left--;
	bar.references[bar.next] = 1;
	return bar.next;
}

int bar_take(u32 *pages, u32 count)
{
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

	for (i = 0; i < count; i++)
		memset_io(bar.mapped + (u64)pages[i] * EMUGPU_PAGE_SIZE, 0, EMUGPU_PAGE_SIZE);
	return 0;
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
