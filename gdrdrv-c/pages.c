// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Calls the GPU driver, which pins memory and returns a page table. Macros in nv-p2p.h say what the driver supports. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>

#include <nv-p2p.h>

#include "gdrdrv.h"

#ifndef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
#define NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING 0
#endif

/* From this version on, a page table has flags. */
#define GDR_TABLE_WITH_FLAGS 0x00010003
#define GDR_TABLE_CPU_CACHEABLE 0x1

#ifndef GDR_GPU_VENDOR /* for tests, vm/modules.sh defines the vendor of QEMU's device */
#define GDR_GPU_VENDOR PCI_VENDOR_ID_NVIDIA
#endif

/* A user may begin few pins above this size at a time: for each, the GPU driver allocates over 256 KiB unchecked. */
#ifndef GDR_LARGE_REQUEST /* vm/modules.sh defines a smaller limit */
#define GDR_LARGE_REQUEST (1ULL << 30)
#endif

/* The number of page tables that the module has from the GPU driver, for all processes. */
static atomic_t gdr_tables = ATOMIC_INIT(0);

/*
 * 1 once there has been a non-persistent pin. The module then stays loaded until the next boot, because
 * the GPU driver may ignore the unpin of such a pin, answer 0, and call back later.
 */
static atomic_t gdr_is_kept = ATOMIC_INIT(0);

/* The number of times that a driver was unbound from a device that may be a GPU. */
static atomic_t gdr_departures = ATOMIC_INIT(0);

/*
 * The result of gdr_largest_bar(), or 0 before the first pin. Several threads may look the size up at
 * the same time, because all of them find the same size.
 */
static u64 gdr_largest;

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
	return NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING && gdr_pages_can_persist();
}

/*
 * Gets the pages of a pin from the GPU driver.
 *
 * The GPU driver finds a non-persistent pin only by the address of its page table, among the pins of
 * the calling process. It frees the table when it has revoked the pin. If a new table got that address
 * just before gdr_pages_put() gave up the old pin, the GPU driver would end the new pin. So the lock
 * owner->tables is held for reading while the process gets a table, and for writing while it checks
 * that a pin was not revoked and gives the pin up. gdr_pin_revoke() does not take that lock.
 */
static int gdr_get(struct gdr_pin *pin, void (*revoke)(void *id))
{
	int err;
#ifdef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
	if (pin->persistent)
		return nvidia_p2p_get_pages_persistent(pin->va, pin->size, &pin->table,
						       pin->force_pcie ? NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING : 0);
#endif
	/*
	 * Older GPU drivers make the pin persistent if there is no callback. With 0 for both tokens,
	 * the GPU driver pins only memory of the calling process. With other tokens, it would not
	 * check which process is calling.
	 */
	down_read(&pin->owner->tables);
	err = nvidia_p2p_get_pages(0, 0, pin->va, pin->size, &pin->table, pin->persistent ? NULL : revoke,
				   (void *)(unsigned long)pin->id);
	up_read(&pin->owner->tables);
	if (!err && !pin->persistent && !atomic_xchg(&gdr_is_kept, 1))
		__module_get(THIS_MODULE);
	return err;
}

static int gdr_put(struct gdr_pin *pin)
{
#ifdef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
	if (pin->persistent)
		return nvidia_p2p_put_pages_persistent(pin->va, pin->table, 0);
#endif
	return nvidia_p2p_put_pages(0, 0, pin->va, pin->table);
}

/*
 * Returns the size of the largest memory BAR of a GPU. Returns 1 TiB if there is none, or if the
 * CPU is not an x86. Other CPUs may reach GPU memory by other means than a BAR.
 */
static u64 gdr_largest_bar(void)
{
	struct pci_dev *gpu = NULL;
	u64 largest = 0;
	int bar;

	while (IS_ENABLED(CONFIG_X86) && (gpu = pci_get_device(GDR_GPU_VENDOR, PCI_ANY_ID, gpu)))
		for (bar = 0; bar < PCI_STD_NUM_BARS; bar++)
			if (pci_resource_flags(gpu, bar) & IORESOURCE_MEM)
				largest = max_t(u64, largest, pci_resource_len(gpu, bar));
	return largest ?: 1ULL << 40;
}

/*
 * Returns whether a GPU can have that many bytes pinned. A larger request must not get to the GPU
 * driver, which allocates memory for each GPU page before it looks at the range, and accounts that
 * memory to no process.
 */
bool gdr_pages_can_exist(u64 size)
{
	if (size > READ_ONCE(gdr_largest)) /* gdr_largest is 0 or outdated, or size is too large */
		WRITE_ONCE(gdr_largest, gdr_largest_bar());
	return size <= READ_ONCE(gdr_largest);
}

int gdr_pages_get(struct gdr_pin *pin, void (*revoke)(void *id))
{
	/*
	 * The GPU driver allocates memory for each GPU page, so a user may have only a few large
	 * requests at a time.
	 */
	const bool is_large = pin->size > GDR_LARGE_REQUEST;
	struct timespec64 start, end;
	int err;

	if (is_large && down_killable(&pin->user->large))
		return -EINTR;
	pin->departures = atomic_read_acquire(&gdr_departures);
	ktime_get_raw_ts64(&start);
	/* Counts the table first, because gdr_pages_free() may run before gdr_get() returns. */
	atomic_inc(&gdr_tables);
	err = gdr_get(pin, revoke);
	if (err)
		atomic_dec(&gdr_tables);
	ktime_get_raw_ts64(&end);
	if (is_large)
		up(&pin->user->large);
	pin->pin_ns = timespec64_to_ns(&end) - timespec64_to_ns(&start);
	return err;
}

static bool gdr_table_fits(const struct nvidia_p2p_page_table *table, u64 size)
{
	return NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table) && table->page_size == NVIDIA_P2P_PAGE_SIZE_64KB &&
	       table->entries >= size >> GDRDRV_GPU_PAGE_SHIFT;
}

/* Returns whether the CPU may map the pages as cached memory. On x86 it may not, because x86 can cache only RAM. */
static bool gdr_table_cacheable(const struct nvidia_p2p_page_table *table)
{
	if (IS_ENABLED(CONFIG_X86))
		return false;
#if NVIDIA_P2P_PAGE_TABLE_VERSION >= GDR_TABLE_WITH_FLAGS
	return table->flags & GDR_TABLE_CPU_CACHEABLE;
#elif defined(GDR_NVIDIA_IS_OPENSOURCE)
	/* On POWER9 and Grace, the kernel treats GPU memory as RAM, which can be cached. */
	return page_is_ram(PHYS_PFN(table->pages[0]->physical_address));
#else
	return false; /* page_is_ram() is a GPL-only symbol */
#endif
}

/* Returns the physical address of a byte of the pin. The pin must be live, and its lock `gate` held. */
u64 gdr_pages_address(const struct gdr_pin *pin, u64 offset)
{
	const struct nvidia_p2p_page *page = pin->table->pages[offset >> GDRDRV_GPU_PAGE_SHIFT];

	return page->physical_address + (offset & (GDRDRV_GPU_PAGE_SIZE - 1));
}

/* Called when a driver was unbound from the device. If the device may be a GPU, counts the event and returns true. */
bool gdr_pages_depart(struct pci_dev *device)
{
	if (device->vendor != GDR_GPU_VENDOR)
		return false;
	/*
	 * The caller must not look for pins of the device before this increment. It finds those whose
	 * gdr_pages_check() has run. For others that were begun before, that check comes later, and
	 * fails because of the increment.
	 */
	atomic_inc(&gdr_departures);
	return true;
}

/* Returns whether the pin is live, and its pages are memory of this device. */
bool gdr_pages_are_of(struct gdr_pin *pin, struct pci_dev *device)
{
	bool result = false;
	int bar;

	down_read(&pin->gate);
	for (bar = 0; bar < PCI_STD_NUM_BARS && pin->live && pin->physical; bar++)
		result |= pin->physical - pci_resource_start(device, bar) < pci_resource_len(device, bar);
	up_read(&pin->gate);
	return result;
}

/*
 * Checks the format of the page table, and copies what it says about the pin. Does nothing if the
 * pages are revoked. Returns -ERESTART if a GPU's driver was unbound after gdr_pages_get() began,
 * because the pin's memory may be on that GPU.
 */
int gdr_pages_check(struct gdr_pin *pin)
{
	int err = 0;

	down_write(&pin->gate);
	if (pin->live && atomic_read(&gdr_departures) != pin->departures) {
		err = -ERESTART;
	} else if (pin->live && !gdr_table_fits(pin->table, pin->size)) {
		gdr_err("page table of version %#x, %u pages of kind %u: build gdrdrv for the GPU driver that is loaded",
			pin->table->version, pin->table->entries, pin->table->page_size);
		err = -EINVAL;
	} else if (pin->live) {
		pin->cacheable = !pin->force_pcie && gdr_table_cacheable(pin->table);
		pin->physical = gdr_pages_address(pin, 0);
		if (pin->table->gpu_uuid)
			snprintf(pin->gpu, sizeof(pin->gpu), "GPU-%pUb", pin->table->gpu_uuid);
	}
	up_write(&pin->gate);
	return err;
}

/*
 * Gives the pages back to the GPU driver. If gdr_pin_revoke() has begun to do so, waits for it
 * instead. Returns false if the pages stay pinned.
 */
bool gdr_pages_put(struct gdr_pin *pin)
{
	bool is_put = false;
	int err;

	if (pin->persistent) {
		err = gdr_put(pin);
		if (err == -ENOMEM) {
			usleep_range(1000, 2000);
			err = gdr_put(pin);
		}
		if (err)
			gdr_err("the GPU driver failed to unpin %#llx: %d", pin->va, err);
		else
			atomic_dec(&gdr_tables);
		return err != -ENOMEM; /* other errors mean that the GPU driver has no such pin */
	}
	/* In a process other than the pin's owner, the GPU driver would find no pin, but still return 0. */
	if (gdr_owner_is_caller(pin->owner)) {
		down_write(&pin->owner->tables);
		is_put = READ_ONCE(pin->fate) == GDR_PINNED && !gdr_put(pin);
		up_write(&pin->owner->tables);
	}
	if (is_put && cmpxchg(&pin->fate, GDR_PINNED, GDR_RETURNED) == GDR_PINNED) {
		atomic_dec(&gdr_tables);
		return true;
	}
	if (cmpxchg(&pin->fate, GDR_PINNED, GDR_ORPHANED) == GDR_PINNED) {
		gdr_info("the GPU driver keeps memory pinned until it is freed, as its owner has not unpinned it");
		return false;
	}
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
