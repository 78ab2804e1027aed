/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * emugpu: an emulated GPU driver. It provides the pinning interface of nv-p2p.h over memory of a PCI device. Where
 * that leaves a GPU driver a choice, emugpu chooses the hardest for a client, as comments in nv-p2p.h say.
 *
 *   device.c   /dev/emugpu: files, commands, mmap
 *   p2p.c      nvidia_p2p_*: pins and unpins
 *   space.c    address spaces: objects and their mappings
 *   pin.c      page tables, their owners, free callbacks
 *   bar.c      the memory: 64 KiB pages, counted
 *
 * Locks, each taken before those below it:
 *
 *   mmap_lock      of a process, when it accesses an object: device.c's fault handler
 *   emugpu_lock    spaces, objects, mappings, and the list of page tables. Free callbacks run with it held, as
 *                  those of the real driver run with its locks held: a client that calls back, or that waits
 *                  here with a lock that its callback takes, deadlocks
 *   (bar.c, pin.c) page counts; free page tables
 */
#ifndef EMUGPU_H
#define EMUGPU_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "emugpu_uapi.h"
#include "nv-p2p.h"

extern struct mutex emugpu_lock;

/* A process. Its number does not identify it, because another process may have it by now. */
struct process {
	pid_t tgid;
	u64 start;
};

static inline struct process caller(void)
{
	return (struct process){ current->tgid, current->group_leader->start_boottime };
}

static inline bool is_caller(const struct process *process)
{
	const struct process this = caller();

	return process->tgid == this.tgid && process->start == this.start;
}

/* ---- bar.c ---- */

/* Calls `left`, with emugpu_lock held, when the device has left. */
int bar_init(void (*left)(void));
void bar_exit(void);
/* Returns whether the device is there. Called with emugpu_lock held. */
bool bar_is_present(void);
u64 bar_bytes(void);
u64 bar_free_bytes(void);

/* Takes `count` zeroed pages, physically scattered, with one reference each. */
int bar_take(u32 *pages, u32 count);
void bar_get(u32 page);
void bar_put(u32 page);
bool bar_is_shared(u32 page);
phys_addr_t bar_address(u32 page);

/* ---- space.c ---- */

/* Physical memory. */
struct emugpu_object {
	struct emugpu_space *space;
	u32 handle; /* 0 once released */
	u32 flags;
	u32 holders; /* the handle, and mappings */
	u32 count;
	u32 pages[];
};

/* The GPU address space of a process. */
struct emugpu_space {
	struct list_head node; /* in the list of all spaces */
	struct list_head mappings;
	struct process owner;
	struct address_space *views; /* the CPU's mappings of it */
	struct emugpu_inject inject;
};

struct emugpu_space *space_new(struct address_space *views);
/* Frees the space and its memory. */
void space_free(struct emugpu_space *space);
/* The space of the calling process, or NULL. */
struct emugpu_space *space_of_caller(void);
/* The space that the tokens name, or NULL. It need not be the caller's. */
struct emugpu_space *space_of_tokens(u64 p2p_token, u32 va_space);
/* Unmaps all memory from the CPU. The next access faults. */
void spaces_zap_views(void);

int space_create(struct emugpu_space *space, struct emugpu_create *create);
int space_map(struct emugpu_space *space, const struct emugpu_map *map);
int space_unmap(struct emugpu_space *space, u64 va, u64 size);
int space_release(struct emugpu_space *space, u32 handle);
int space_renew(struct emugpu_space *space, u64 va, u64 size);

/* The object of a handle, or NULL. */
struct emugpu_object *space_object(struct emugpu_space *space, u32 handle);
/* Returns whether one mapping has the whole range. */
bool space_has_whole(struct emugpu_space *space, u64 va, u64 size);
/* The page at an address if it can be pinned, else -EINVAL. */
int space_page(struct emugpu_space *space, u64 va, u32 *page);

/* ---- pin.c ---- */

/* A page table that a client holds, or a free one. */
struct pin {
	struct nvidia_p2p_page_table table;
	struct list_head node;
	struct emugpu_space *space; /* of an ordinary pin; a persistent pin may exist longer than its space */
	u64 va;
	u64 size;
	void (*free_callback)(void *data); /* NULL: persistent */
	void *data;
	bool revoked; /* its free callback is running */
	u32 *numbers; /* of the pages */
	struct nvidia_p2p_page *pages;
};

/* A pin without pages, which only the caller knows, or NULL. */
struct pin *pin_new(u64 va, u64 size);
/* Frees the pin, and returns its pages. */
void pin_free(struct pin *pin);
/* Adds it to the list, with emugpu_lock held. Its free callback can run from the unlock on. */
void pin_add(struct pin *pin);
/*
 * Takes the pin with this table from the list, with emugpu_lock held, or returns NULL. Ordinary pins are found only
 * in their address space, persistent ones anywhere.
 */
struct pin *pin_take(struct nvidia_p2p_page_table *table, struct emugpu_space *space);
/* Runs the free callbacks of ordinary pins with a page in the range. */
void pins_lose(struct emugpu_space *space, u64 va, u64 size);
u64 pins_count(void);
/* Pages of all pins, with emugpu_lock held. A page that is pinned twice counts twice. */
u64 pins_pages(void);
void pins_exit(void);
void pause_for(u32 microseconds);

/* ---- p2p.c ---- */

/* Bytes of all allocations for pins, before any check. */
u64 pins_unchecked_bytes(void);
void wait_while_held(void);

#endif
