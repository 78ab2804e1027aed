/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * emugpu is an emulated GPU driver. A PCI device's memory takes the place of GPU memory. Modules pin
 * it through the interface that nv-p2p.h describes. Where this interface leaves a GPU driver a
 * choice, emugpu chooses what is hardest for such a module (a client).
 *
 *   device.c   /dev/emugpu: files, commands, mmap
 *   p2p.c      nvidia_p2p_*: pins and unpins
 *   space.c    address spaces: objects and their mappings
 *   pin.c      page tables, their owners, free callbacks
 *   bar.c      the memory: 64 KiB pages, counted
 *
 * Locks, each taken before those below it:
 *
 *   mmap_lock      of a process: held by the kernel during device.c's fault handler
 *   emugpu_lock    protects spaces, objects, mappings, and the list of page tables. Free callbacks run
 *                  with it held, as those of the real driver run with its locks held. A client
 *                  deadlocks if its callback calls emugpu, or if it calls emugpu with a lock held that
 *                  its callback takes
 *   (bar.c, pin.c) locks that protect the counts of pages, and the page tables kept for reuse
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

/* Identifies a process by its number and its start, because numbers are reused. */
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

/* Finds the PCI device whose BAR is the GPU memory. `left` is called, with emugpu_lock held, when emugpu is unbound. */
int bar_init(void (*left)(void));
void bar_exit(void);
/* Returns whether emugpu is bound to the device. Called with emugpu_lock held. */
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

/* Physical memory that a process has allocated. */
struct emugpu_object {
	struct emugpu_space *space;
	u32 handle; /* 0 once released */
	u32 flags;
	u32 holders; /* number of mappings, plus one for the handle */
	u32 count;
	u32 pages[];
};

/* The GPU address space of a process. */
struct emugpu_space {
	struct list_head node; /* in the list of all spaces */
	struct list_head mappings;
	struct process owner;
	struct address_space *views; /* the CPU's mappings of this space's objects */
	struct emugpu_inject inject;
};

struct emugpu_space *space_new(struct address_space *views);
/* Frees the space and its memory. */
void space_free(struct emugpu_space *space);
/* Returns the space of the calling process, or NULL. */
struct emugpu_space *space_of_caller(void);
/* Returns the address space that the tokens name, or NULL. It may belong to another process. */
struct emugpu_space *space_of_tokens(u64 p2p_token, u32 va_space);
/* Unmaps all GPU memory from the CPU, so that the next access faults. */
void spaces_zap_views(void);

int space_create(struct emugpu_space *space, struct emugpu_create *create);
int space_map(struct emugpu_space *space, const struct emugpu_map *map);
int space_unmap(struct emugpu_space *space, u64 va, u64 size);
int space_release(struct emugpu_space *space, u32 handle);
int space_renew(struct emugpu_space *space, u64 va, u64 size);

/* Returns the object of a handle, or NULL. */
struct emugpu_object *space_object(struct emugpu_space *space, u32 handle);
/* Returns whether a single mapping covers the whole range. */
bool space_has_whole(struct emugpu_space *space, u64 va, u64 size);
/* Stores the number of the page at an address. Returns -EINVAL if it cannot be pinned. */
int space_page(struct emugpu_space *space, u64 va, u32 *page);

/* ---- pin.c ---- */

/* A pin with its page table, which a client such as gdrdrv holds. Freed pins are kept for reuse. */
struct pin {
	struct nvidia_p2p_page_table table;
	struct list_head node;
	struct emugpu_space *space; /* not valid for a persistent pin, which may outlive the space */
	u64 va;
	u64 size;
	void (*free_callback)(void *data); /* NULL for a persistent pin */
	void *data;
	bool revoked; /* its free callback is running */
	u32 *numbers; /* numbers of the pages in the BAR */
	struct nvidia_p2p_page *pages;
};

/* Returns a new pin that has no pages and is not in the list, or NULL if there is no memory. */
struct pin *pin_new(u64 va, u64 size);
/* Frees the pin, and drops its references to pages. */
void pin_free(struct pin *pin);
/* Adds the pin to the list, with emugpu_lock held. After the unlock, its free callback can run. */
void pin_add(struct pin *pin);
/*
 * Removes the pin with this table from the list, with emugpu_lock held, and returns it. Returns
 * NULL if there is none. Persistent pins are found in any address space, other pins only in
 * their own.
 */
struct pin *pin_take(struct nvidia_p2p_page_table *table, struct emugpu_space *space);
/* Ends the pins with pages in the range, except persistent ones, and runs their free callbacks. */
void pins_lose(struct emugpu_space *space, u64 va, u64 size);
u64 pins_count(void);
/*
 * Returns the number of pages of all pins. A page that is pinned twice counts twice. Called with
 * emugpu_lock held.
 */
u64 pins_pages(void);
void pins_exit(void);
void pause_for(u32 microseconds);

/* ---- p2p.c ---- */

/* Returns how many bytes were allocated, in total, for requests to pin whose ranges were not yet checked. */
u64 pins_unchecked_bytes(void);
void wait_while_held(void);

#endif
