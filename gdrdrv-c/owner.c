// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Processes that have opened the device, and users, and what each has pinned through all files. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hashtable.h>
#include <linux/spinlock.h>

#include "gdrdrv.h"

struct gdr_owner {
	struct hlist_node node;
	pid_t pid;   /* of a process, or 0 for a user */
	u64 start;   /* another process may have its number by now */
	kuid_t uid;  /* of a user */
	u64 refs;    /* files and pins */
	u64 pins;
	u64 bytes;
};

static DEFINE_HASHTABLE(gdr_owners, 8);
static DEFINE_SPINLOCK(gdr_owners_lock); /* all owners and their counts */

/* Pins that were refused by a limit. */
atomic64_t gdr_owner_refused = ATOMIC64_INIT(0);

bool gdr_owner_is_caller(const struct gdr_owner *owner)
{
	return current->tgid == owner->pid && current->group_leader->start_boottime == owner->start;
}

/* Returns the calling process or its user with another reference, or NULL without memory. */
struct gdr_owner *gdr_owner_get(bool user)
{
	struct gdr_owner *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT), *owner;
	u64 key;

	if (!new)
		return NULL;
	if (user) {
		new->uid = current_uid();
	} else {
		new->pid = current->tgid;
		new->start = current->group_leader->start_boottime;
	}
	key = user ? __kuid_val(new->uid) : new->pid;
	spin_lock(&gdr_owners_lock);
	hash_for_each_possible(gdr_owners, owner, node, key)
		if (owner->pid == new->pid && owner->start == new->start && uid_eq(owner->uid, new->uid))
			break;
	if (!owner) {
		owner = new;
		new = NULL;
		hash_add(gdr_owners, &owner->node, key);
	}
	owner->refs++;
	spin_unlock(&gdr_owners_lock);
	kfree(new);
	return owner;
}

/* Adds a pin to the counts, unless that exceeds a limit. 0 is no limit. */
static bool gdr_owner_add(struct gdr_owner *owner, u64 bytes, u64 most_pins, u64 most_mib)
{
	u64 most_bytes = most_mib << 20 ?: U64_MAX;

	if (owner->pins >= (most_pins ?: U64_MAX) || owner->bytes > most_bytes || bytes > most_bytes - owner->bytes)
		return false;
	owner->pins++;
	owner->bytes += bytes;
	return true;
}

/* Counts a pin, which may exist longer than the files, or drops the reference to its user. */
int gdr_owner_charge(struct gdr_owner *process, struct gdr_owner *user, u64 bytes)
{
	static DEFINE_RATELIMIT_STATE(once_a_minute, 60 * HZ, 1);
	const char *limited = NULL;

	spin_lock(&gdr_owners_lock);
	if (!gdr_owner_add(process, bytes, READ_ONCE(gdr_max_pins), READ_ONCE(gdr_max_pinned_mib))) {
		limited = "max_pins or max_pinned_mib";
	} else if (!gdr_owner_add(user, bytes, READ_ONCE(gdr_max_pins_per_user),
				  READ_ONCE(gdr_max_pinned_mib_per_user))) {
		process->pins--;
		process->bytes -= bytes;
		limited = "max_pins_per_user or max_pinned_mib_per_user";
	} else {
		process->refs++;
	}
	spin_unlock(&gdr_owners_lock);
	if (!limited)
		return 0;
	atomic64_inc(&gdr_owner_refused);
	if (__ratelimit(&once_a_minute))
		pr_notice("process %d, uid %u, may not pin %llu bytes more: unpin, or raise %s\n", process->pid,
			  __kuid_val(user->uid), bytes, limited);
	gdr_owner_drop(user, 0, 0);
	return -ENOMEM;
}

/* Drops a reference, and this many pins and bytes. */
void gdr_owner_drop(struct gdr_owner *owner, u64 pins, u64 bytes)
{
	bool unused;

	spin_lock(&gdr_owners_lock);
	owner->pins -= pins;
	owner->bytes -= bytes;
	unused = !--owner->refs;
	if (unused)
		hash_del(&owner->node);
	spin_unlock(&gdr_owners_lock);
	if (unused)
		kfree(owner);
}
