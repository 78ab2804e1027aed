// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Owners are processes that have opened the device, and users. Each has counts of all its pins. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/spinlock.h>

#include "gdrdrv.h"

/*
 * The GPU driver gets at most this many large requests of a user at a time. A request hangs if its
 * GPU hangs. Requests for other GPUs then still work, unless this many requests hang.
 */
#define GDR_LARGE_AT_A_TIME 16

static DEFINE_HASHTABLE(gdr_owners, 8);
static DEFINE_SPINLOCK(gdr_owners_lock); /* protects all owners and their counts */

/* The number of pins that a limit has refused. */
atomic64_t gdr_owner_refused = ATOMIC64_INIT(0);

/*
 * Each entry allows one log line per minute. The hash of a user selects the entry, so a user hides
 * another user's line only if their hashes are equal.
 */
#define GDR_LOG_BITS 8
static struct ratelimit_state gdr_owner_log[1 << GDR_LOG_BITS] = {
	[0 ... (1 << GDR_LOG_BITS) - 1] = RATELIMIT_STATE_INIT(gdr_owner_log, 60 * HZ, 1)
};

bool gdr_owner_is_caller(const struct gdr_owner *owner)
{
	return current->tgid == owner->pid && current->group_leader->start_boottime == owner->start;
}

/* Returns the owner with a reference for the caller. Makes an owner if there is none. NULL: there is no memory. */
static struct gdr_owner *gdr_owner_get(pid_t pid, u64 start, kuid_t uid)
{
	struct gdr_owner *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT), *owner;
	const u64 key = pid ?: __kuid_val(uid);

	if (!new)
		return NULL;
	new->pid = pid;
	new->start = start;
	new->uid = uid;
	init_rwsem(&new->tables);
	sema_init(&new->large, GDR_LARGE_AT_A_TIME);
	spin_lock(&gdr_owners_lock);
	hash_for_each_possible(gdr_owners, owner, node, key)
		if (owner->pid == pid && owner->start == start && uid_eq(owner->uid, uid))
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

/* Returns the current process as an owner, with a reference that the caller drops. NULL: there is no memory. */
struct gdr_owner *gdr_owner_get_process(void)
{
	return gdr_owner_get(current->tgid, current->group_leader->start_boottime, GLOBAL_ROOT_UID);
}

/* Returns the current user as an owner, with a reference that the caller drops. NULL: there is no memory. */
struct gdr_owner *gdr_owner_get_user(void)
{
	return gdr_owner_get(0, 0, current_uid());
}

/* Adds a pin to the counts. Returns false if that would exceed a limit. A limit of 0 means no limit. */
static bool gdr_owner_add(struct gdr_owner *owner, u64 bytes, u64 most_pins, u64 most_mib)
{
	u64 most_bytes = most_mib << 20 ?: U64_MAX;

	if (owner->pins >= (most_pins ?: U64_MAX) || owner->bytes > most_bytes || bytes > most_bytes - owner->bytes)
		return false;
	owner->refs++;
	owner->pins++;
	owner->bytes += bytes;
	return true;
}

/* Drops a reference to the owner, and subtracts from its counts of pins and bytes. */
static void gdr_owner_drop(struct gdr_owner *owner, u64 pins, u64 bytes)
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

void gdr_owner_put(struct gdr_owner *owner)
{
	gdr_owner_drop(owner, 0, 0);
}

/*
 * Counts a pin for a process and a user. The pin gets references to both, because it may exist
 * longer than its file.
 */
int gdr_owner_charge(struct gdr_owner *process, struct gdr_owner *user, u64 bytes)
{
	const char *limited = NULL;

	spin_lock(&gdr_owners_lock);
	if (!gdr_owner_add(process, bytes, READ_ONCE(gdr_max_pins), READ_ONCE(gdr_max_pinned_mib))) {
		limited = "max_pins or max_pinned_mib";
	} else if (!gdr_owner_add(user, bytes, READ_ONCE(gdr_max_pins_per_user),
				  READ_ONCE(gdr_max_pinned_mib_per_user))) {
		process->refs--; /* not the last reference, because the file has one, too */
		process->pins--;
		process->bytes -= bytes;
		limited = "max_pins_per_user or max_pinned_mib_per_user";
	}
	spin_unlock(&gdr_owners_lock);
	if (!limited)
		return 0;
	atomic64_inc(&gdr_owner_refused);
	if (__ratelimit(&gdr_owner_log[hash_32(__kuid_val(user->uid), GDR_LOG_BITS)]))
		pr_notice("process %d, uid %u, may not pin %llu bytes more: unpin, or raise %s\n", process->pid,
			  __kuid_val(user->uid), bytes, limited);
	return -ENOMEM;
}

void gdr_owner_uncharge(struct gdr_owner *process, struct gdr_owner *user, u64 bytes)
{
	gdr_owner_drop(process, 1, bytes);
	gdr_owner_drop(user, 1, bytes);
}
