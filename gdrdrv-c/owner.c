// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Processes that have opened the device, and what each has pinned through all its files. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hashtable.h>
#include <linux/spinlock.h>

#include "gdrdrv.h"

struct gdr_owner {
	struct hlist_node node;
	pid_t pid;
	u64 start;   /* another process may have its number by now */
	u64 files;
	u64 pins;
	u64 bytes;
};

static DEFINE_HASHTABLE(gdr_owners, 8); /* by pid */
static DEFINE_SPINLOCK(gdr_owners_lock); /* all owners and their counts */

bool gdr_owner_is_caller(const struct gdr_owner *owner)
{
	return current->tgid == owner->pid && current->group_leader->start_boottime == owner->start;
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
	hash_for_each_possible(gdr_owners, owner, node, new->pid)
		if (gdr_owner_is_caller(owner))
			break;
	if (!owner) {
		owner = new;
		new = NULL;
		hash_add(gdr_owners, &owner->node, owner->pid);
	}
	owner->files++;
	spin_unlock(&gdr_owners_lock);
	kfree(new);
	return owner;
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

/* Files were closed, or pins of this many bytes have ended. */
void gdr_owner_drop(struct gdr_owner *owner, u64 files, u64 pins, u64 bytes)
{
	bool unused;

	spin_lock(&gdr_owners_lock);
	owner->files -= files;
	owner->pins -= pins;
	owner->bytes -= bytes;
	unused = !owner->files && !owner->pins;
	if (unused)
		hash_del(&owner->node);
	spin_unlock(&gdr_owners_lock);
	if (unused)
		kfree(owner);
}
