// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Pins, from their creation until their pages are returned, and handles of pins. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>

#include "gdrdrv.h"
#include "trace.h"

/*
 * The pins of all files, by id, until their pages are returned to the GPU driver. The GPU driver is given only the id,
 * because it may call back after a pin has ended, and an id without a pin does no harm.
 */
static DEFINE_XARRAY(gdr_pins);
atomic64_t gdr_pin_last_id = ATOMIC64_INIT(0);

/* Returns the first pin in this range of ids, with a reference for the caller, or NULL. */
struct gdr_pin *gdr_pin_by_id(unsigned long first, unsigned long last)
{
	struct gdr_pin *pin;

	xa_lock(&gdr_pins); /* until the unlock, gdr_pins keeps its reference to each of its pins */
	pin = xa_find(&gdr_pins, &first, last, XA_PRESENT);
	if (pin)
		kref_get(&pin->refs);
	xa_unlock(&gdr_pins);
	return pin;
}

static void gdr_pin_free(struct kref *refs)
{
	struct gdr_pin *pin = container_of(refs, struct gdr_pin, refs);

	gdr_file_put(pin->file);
	kfree(pin);
}

void gdr_pin_put(struct gdr_pin *pin)
{
	kref_put(&pin->refs, gdr_pin_free);
}

/* Removes a pin from gdr_pins. It no longer counts towards the limits of its process and its user. */
static void gdr_pin_forget(struct gdr_pin *pin)
{
	xa_erase(&gdr_pins, pin->id);
	gdr_owner_uncharge(pin->owner, pin->user, pin->size);
	gdr_pin_put(pin);
}

/* Sets the range of the pin to the requested one, rounded out to whole GPU pages. */
static int gdr_pin_set_range(struct gdr_pin *pin, u64 addr, u64 size)
{
	u64 ragged, end;

	pin->va = round_down(addr, GDRDRV_GPU_PAGE_SIZE);
	pin->offset = addr - pin->va;
	if (!addr || check_add_overflow(pin->offset, size, &ragged))
		goto invalid;
	pin->size = round_up(ragged, GDRDRV_GPU_PAGE_SIZE);
	/* Rounding up may have wrapped the size to 0. */
	if (!pin->size || check_add_overflow(pin->va, pin->size, &end) || !gdr_pages_can_exist(pin->size))
		goto invalid;
	return 0;

invalid:
	gdr_info("invalid range: %#llx, %#llx bytes", addr, size);
	return -EINVAL;
}

/* Gives the pin a handle, and adds it to the pins of its file. */
static int gdr_pin_publish(struct gdr_pin *pin, u64 *handle)
{
	struct gdr_file *file = pin->file;
	u64 next;
	int err;

	mutex_lock(&file->lock);
	pin->handle = file->next_handle;
	next = pin->handle + max(1ULL, pin->size >> PAGE_SHIFT);
	/* LLONG_MAX is the largest offset for mmap. */
	err = next > LLONG_MAX >> PAGE_SHIFT ? -ENOMEM :
					       xa_insert(&file->pins, pin->handle, pin, GFP_KERNEL_ACCOUNT);
	if (!err) {
		file->next_handle = next;
		/*
		 * Reads the handle with the lock held, because another thread may end the pin after the unlock.
		 */
		*handle = pin->handle;
		trace_gdrdrv_pin(pin);
	}
	mutex_unlock(&file->lock);
	return err;
}

/*
 * Ends access to the pins of a device whose driver was unbound, because another driver may get the
 * device, or another device may get its addresses. The pins stay until they are unpinned. For pins
 * that are being made, gdr_pages_check() notices that a driver was unbound.
 */
static int gdr_pin_device_event(struct notifier_block *block, unsigned long event, void *device)
{
	struct gdr_pin *pin;
	u64 id = 0;

	if (event != BUS_NOTIFY_UNBOUND_DRIVER || !gdr_pages_depart(to_pci_dev(device)))
		return NOTIFY_DONE;
	for (; (pin = gdr_pin_by_id(id, ULONG_MAX)); gdr_pin_put(pin)) {
		id = pin->id + 1;
		if (gdr_pages_are_of(pin, to_pci_dev(device)))
			gdr_map_end(pin);
	}
	return NOTIFY_DONE;
}

static struct notifier_block gdr_pin_notifier = { .notifier_call = gdr_pin_device_event };

int gdr_pin_init(void)
{
	return GDR_CAN_USE_GPL ? bus_register_notifier(&pci_bus_type, &gdr_pin_notifier) : 0;
}

/* Undoes gdr_pin_init(), and frees the pins whose pages were not returned to the GPU driver. */
void gdr_pin_exit(void)
{
	struct gdr_pin *pin;
	unsigned long id;

	if (GDR_CAN_USE_GPL)
		bus_unregister_notifier(&pci_bus_type, &gdr_pin_notifier);
	if (gdr_pages_tables())
		pr_err("%d page tables were not returned to the GPU driver\n", gdr_pages_tables());
	xa_for_each(&gdr_pins, id, pin)
		gdr_pin_forget(pin);
}

/* Ends a pin that no file has any more. Its mappings stay as address ranges without pages. */
static void gdr_pin_end(struct gdr_pin *pin)
{
	gdr_map_end(pin);
	if (gdr_pages_put(pin))
		gdr_pin_forget(pin);
}

/*
 * Called by the GPU driver, with some of its locks held, when pinned memory is freed. No access may
 * be possible once this returns. A file that has the pin keeps it until the pin is unpinned.
 */
static void gdr_pin_revoke(void *id)
{
	struct gdr_pin *pin = gdr_pin_by_id((unsigned long)id, (unsigned long)id);
	enum gdr_fate fate;

	if (!pin)
		return; /* an unpin has ended this pin: the GPU driver returned 0 for it, but kept the memory pinned */
	trace_gdrdrv_revoke(pin);
	fate = cmpxchg(&pin->fate, GDR_PINNED, GDR_REVOKED);
	if (fate == GDR_PINNED) {
		gdr_map_end(pin);
		gdr_pages_free(pin);
		complete(&pin->revocation); /* gdr_pages_put() may be waiting */
	} else if (fate == GDR_ORPHANED) { /* its mappings have ended, and its file may be gone */
		gdr_pages_free(pin);
		gdr_pin_forget(pin);
	} /* else an unpin is ending this pin: the GPU driver returned 0 for it, but kept the memory pinned */
	gdr_pin_put(pin);
}

/* Returns a new pin that is in no list and has no pages, or NULL if there is no memory. */
static struct gdr_pin *gdr_pin_new(struct gdr_file *file, bool force_pcie)
{
	struct gdr_pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);

	if (!pin)
		return NULL;
	kref_init(&pin->refs);
	init_rwsem(&pin->gate);
	init_completion(&pin->revocation);
	refcount_inc(&file->refs);
	pin->file = file;
	pin->owner = file->owner;
	pin->pid = current->tgid;
	pin->uid = current_uid();
	strscpy(pin->command, current->group_leader->comm, sizeof(pin->command));
	strscpy(pin->gpu, "-", sizeof(pin->gpu));
	pin->since = jiffies;
	pin->force_pcie = force_pcie;
	pin->persistent = gdr_pages_can_persist();
	pin->live = true;
	return pin;
}

/* Counts the pin for its process and its user, and adds it to gdr_pins. */
static int gdr_pin_charge(struct gdr_pin *pin)
{
	struct gdr_owner *user = gdr_owner_get_user();
	int err;

	if (!user)
		return -ENOMEM;
	err = gdr_owner_charge(pin->owner, user, pin->size);
	gdr_owner_put(user);
	if (err)
		return err;
	pin->user = user;
	pin->id = atomic64_inc_return(&gdr_pin_last_id);
	err = xa_insert(&gdr_pins, pin->id, pin, GFP_KERNEL_ACCOUNT);
	if (err)
		gdr_owner_uncharge(pin->owner, pin->user, pin->size);
	return err;
}

/*
 * Gets the pages and the handle of a pin that is in gdr_pins. Ends the pin on failure. Returns
 * -ERESTART if a driver was unbound from a GPU, perhaps the one with the memory.
 */
static int gdr_pin_pages(struct gdr_pin *pin, u64 *handle)
{
	int err;

	/* The pages may be revoked from here on, even before gdr_pages_get() returns. */
	err = gdr_pages_get(pin, gdr_pin_revoke);
	if (err) {
		gdr_info("the GPU driver failed to pin %#llx, %#llx bytes: %d", pin->va, pin->size, err);
		gdr_pin_forget(pin);
		return err;
	}
	err = gdr_pages_check(pin) ?: gdr_pin_publish(pin, handle);
	if (err)
		gdr_pin_end(pin);
	return err;
}

int gdr_pin_create(struct gdr_file *file, u64 addr, u64 size, bool force_pcie, u64 *handle)
{
	struct gdr_pin *pin;
	int err;

	do {
		pin = gdr_pin_new(file, force_pcie);
		if (!pin)
			return -ENOMEM;
		err = gdr_pin_set_range(pin, addr, size) ?: gdr_pin_charge(pin);
		if (err) {
			gdr_pin_put(pin);
			return err;
		}
		err = gdr_pin_pages(pin, handle);
	} while (err == -ERESTART && !fatal_signal_pending(current));
	return err;
}

int gdr_pin_remove(struct gdr_file *file, u64 handle)
{
	struct gdr_pin *pin;

	mutex_lock(&file->lock);
	pin = xa_erase(&file->pins, handle);
	mutex_unlock(&file->lock);
	if (!pin)
		return -EINVAL;
	trace_gdrdrv_unpin(pin);
	gdr_pin_end(pin);
	return 0;
}

void gdr_pin_remove_all(struct gdr_file *file)
{
	unsigned long handle;
	struct gdr_pin *pin;

	xa_for_each(&file->pins, handle, pin)
		gdr_pin_remove(file, handle);
}
