// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Pins, from creation until their pages are returned, and their handles. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "gdrdrv.h"

static void gdr_pin_free(struct kref *refs)
{
	kfree(container_of(refs, struct gdr_pin, refs));
}

void gdr_pin_get(struct gdr_pin *pin)
{
	kref_get(&pin->refs);
}

void gdr_pin_put(struct gdr_pin *pin)
{
	kref_put(&pin->refs, gdr_pin_free);
}

/* Sets the range of the pin: the requested range, rounded out to whole GPU pages. */
static int gdr_pin_set_range(struct gdr_pin *pin, u64 addr, u64 size)
{
	u64 ragged, end;

	pin->va = round_down(addr, GDRDRV_GPU_PAGE_SIZE);
	pin->offset = addr - pin->va;
	if (!addr || check_add_overflow(pin->offset, size, &ragged))
		return -EINVAL;
	pin->size = round_up(ragged, GDRDRV_GPU_PAGE_SIZE);
	/* Rounding up may also have wrapped to 0. */
	if (!pin->size || check_add_overflow(pin->va, pin->size, &end))
		return -EINVAL;
	return 0;
}

/* Gives the pin a handle, and adds it to the list. */
static int gdr_pin_publish(struct gdr_file *file, struct gdr_pin *pin, u64 *handle)
{
	u64 next;
	int err;

	mutex_lock(&file->lock);
	pin->handle = file->next_handle;
	next = pin->handle + max(1ULL, pin->size >> PAGE_SHIFT);
	if (next > LLONG_MAX >> PAGE_SHIFT) /* the largest offset for mmap */
		err = -ENOMEM;
	else
		err = xa_insert(&file->pins, pin->handle, pin, GFP_KERNEL_ACCOUNT);
	if (!err) {
		file->next_handle = next;
		*handle = pin->handle; /* set under the lock: afterwards another thread may end the pin */
	}
	mutex_unlock(&file->lock);
	return err;
}

/* Ends a pin that is on no list. Its mappings stay as address ranges without pages. */
static void gdr_pin_end(struct gdr_pin *pin)
{
	gdr_map_end(pin);
	if (gdr_pages_put(pin))
		gdr_pin_put(pin);
}

int gdr_pin_create(struct gdr_file *file, const struct gdr_pin_request *request, u64 *handle)
{
	struct gdr_pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	int err;

	if (!pin)
		return -ENOMEM;
	kref_init(&pin->refs);
	init_rwsem(&pin->gate);
	init_completion(&pin->revocation);
	pin->file = file;
	pin->p2p_token = request->p2p_token;
	pin->va_space = request->va_space;
	pin->force_pcie = request->force_pcie;
	pin->persistent = gdr_pages_can_persist();

	err = gdr_pin_set_range(pin, request->addr, request->size);
	if (err) {
		gdr_info("invalid range: %#llx, %#llx bytes", request->addr, request->size);
		goto put;
	}
	/* The pages may be revoked from here on, even before gdr_pages_get() returns. */
	pin->live = true;
	err = gdr_pages_get(pin);
	if (err) {
		gdr_info("the GPU driver failed to pin %#llx, %#llx bytes: %d", pin->va, pin->size, err);
		goto put;
	}
	err = gdr_pages_check(pin);
	if (err)
		goto end;
	err = gdr_pin_publish(file, pin, handle);
	if (err)
		goto end;
	return 0;

end:
	gdr_pin_end(pin);
	return err;
put:
	gdr_pin_put(pin);
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

/*
 * Called by the GPU driver, with some of its locks held, when pinned memory is freed: no access may be possible once
 * this returns. If the pin is on its list, it stays there until it is unpinned.
 */
void gdr_pin_revoke(void *data)
{
	struct gdr_pin *pin = data;

	if (xchg(&pin->fate, GDR_REVOKED) == GDR_ORPHANED) {
		/* Its mappings have ended, and its file may be gone. */
		gdr_pages_free(pin);
		gdr_pin_put(pin);
		module_put(THIS_MODULE);
		return;
	}
	gdr_map_end(pin);
	gdr_pages_free(pin);
	complete(&pin->revocation); /* gdr_pages_put() may be waiting to free the pin */
}
