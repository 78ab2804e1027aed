// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Processes that have opened the device, and what each has pinned through all its files. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "gdrdrv.h"

struct gdr_owner {
	struct list_head node;
	pid_t pid;
	u64 start;   /* another process may have its number by now */
	u64 files;
	u64 pins;
	u64 bytes;
};

static LIST_HEAD(gdr_owners);
static DEFINE_SPINLOCK(gdr_owners_lock); /* the list and all its counts */

bool gdr_owner_is_caller(const struct gdr_owner *owner)
{
	return current->tgid == owner->pid && current->group_leader->start_boottime == owner->start;
}

/* Releases the lock, and frees the process if nothing is left of it. */
static void gdr_owner_unlock(struct gdr_owner *owner) __releases(&gdr_owners_lock)
{
	bool unused = !owner->files && !owner->pins;

	if (unused)
		list_del(&owner->node);
	spin_unlock(&gdr_owners_lock);
	if (unused)
		kfree(owner);
}

/* Returns the calling process for a new file, or NULL without memory. */
struct gdr_owner *gdr_owner_open(void)
{
	struct gdr_owner *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT), *owner;

	if (!new)
		return NULL;
	new->pid = current->tgid;
	new->start = current->group_leader->start_boottime;
	spin_lock(&gdr_owners_lock);
	list_add_tail(&new->node, &gdr_owners);
	list_for_each_entry(owner, &gdr_owners, node)
		if (gdr_owner_is_caller(owner))
			break; /* at new, if the process has no other */
	owner->files++;
	gdr_owner_unlock(new);
	return owner;
}

void gdr_owner_close(struct gdr_owner *owner)
{
	spin_lock(&gdr_owners_lock);
	owner->files--;
	gdr_owner_unlock(owner);
}

/* Counts a pin, which may exist longer than the files. */
int gdr_owner_charge(struct gdr_owner *owner, u64 bytes)
{
	u64 most_pins = READ_ONCE(gdr_max_pins) ?: U64_MAX;
	u64 most_bytes = (u64)READ_ONCE(gdr_max_pinned_mib) << 20 ?: U64_MAX;
	int err = 0;

	spin_lock(&gdr_owners_lock);
	if (owner->pins < most_pins && owner->bytes <= most_bytes && bytes <= most_bytes - owner->bytes) {
		owner->pins++;
		owner->bytes += bytes;
	} else {
		err = -ENOMEM;
	}
	spin_unlock(&gdr_owners_lock);
	if (err)
		gdr_info("process %d may not pin %llu bytes more: raise max_pins or max_pinned_mib", owner->pid, bytes);
	return err;
}

void gdr_owner_uncharge(struct gdr_owner *owner, u64 bytes)
{
	spin_lock(&gdr_owners_lock);
	owner->pins--;
	owner->bytes -= bytes;
	gdr_owner_unlock(owner);
}
