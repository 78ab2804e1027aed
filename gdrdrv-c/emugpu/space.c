// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Address spaces, with objects and their mappings. All functions run with emugpu_lock held. */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "emugpu.h"

/* GPU addresses have at most 57 bits. */
#define LAST_ADDRESS (1ULL << 57)

/* The objects of all spaces, by handle. Handles are unique over all spaces, so each mmap offset means one object. */
static DEFINE_XARRAY_ALLOC1(objects);

static LIST_HEAD(spaces);

/* A part of an object that is mapped into an address space. */
struct mapping {
	struct list_head node; /* in the space's list, which is sorted by address */
	u64 va;
	u64 size;
	struct emugpu_object *object;
	u32 first; /* index of the object's page that is mapped at `va` */
};

static bool is_range(u64 va, u64 size)
{
	return va && size && !(va % EMUGPU_PAGE_SIZE) && !(size % EMUGPU_PAGE_SIZE) && va < LAST_ADDRESS &&
	       size <= LAST_ADDRESS - va;
}

/* ---- GPU address spaces ---- */

struct emugpu_space *space_new(struct address_space *views)
{
	struct emugpu_space *space = kzalloc(sizeof(*space), GFP_KERNEL);

	if (!space)
		return NULL;
	INIT_LIST_HEAD(&space->mappings);
	space->owner = caller();
	space->views = views;
	list_add(&space->node, &spaces);
	return space;
}

struct emugpu_space *space_of_caller(void)
{
	struct emugpu_space *space;

	list_for_each_entry(space, &spaces, node)
		if (is_caller(&space->owner))
			return space;
	return NULL;
}

struct emugpu_space *space_of_tokens(u64 p2p_token, u32 va_space)
{
	struct emugpu_space *space;

	list_for_each_entry(space, &spaces, node)
		if (p2p_token == EMUGPU_TOKEN(space->owner.tgid) && va_space == (u32)space->owner.tgid)
			return space;
	return NULL;
}

static void drop(struct emugpu_object *object)
{
	u32 i;

	if (--object->holders)
		return;
	for (i = 0; i < object->count; i++)
		bar_put(object->pages[i]);
	kvfree(object);
}

/* Unmaps pages of an object from the CPU, so that the next access faults. */
static void zap_views(struct emugpu_object *object, u32 handle, u32 first, u32 count)
{
	unmap_mapping_range(object->space->views, EMUGPU_OFFSET(handle) + (u64)first * EMUGPU_PAGE_SIZE,
			    (u64)count * EMUGPU_PAGE_SIZE, 1);
}

void spaces_zap_views(void)
{
	struct emugpu_space *space;

	list_for_each_entry(space, &spaces, node)
		unmap_mapping_range(space->views, 0, 0, 1);
}

static void unmap(struct emugpu_space *space, struct mapping *mapping)
{
	list_del(&mapping->node);
	pins_lose(space, mapping->va, mapping->size);
	drop(mapping->object);
	kfree(mapping);
}

static void release(struct emugpu_object *object)
{
	u32 handle = object->handle;

	xa_erase(&objects, handle);
	object->handle = 0;
	zap_views(object, handle, 0, object->count);
	drop(object);
}

void space_free(struct emugpu_space *space)
{
	struct emugpu_object *object;
	struct mapping *mapping, *next;
	unsigned long handle;

	list_for_each_entry_safe(mapping, next, &space->mappings, node)
		unmap(space, mapping);
	xa_for_each(&objects, handle, object)
		if (object->space == space)
			release(object);
	list_del(&space->node);
	kfree(space);
}

/* ---- Objects ---- */

struct emugpu_object *space_object(struct emugpu_space *space, u32 handle)
{
	struct emugpu_object *object = xa_load(&objects, handle);

	return object && object->space == space ? object : NULL;
}

int space_create(struct emugpu_space *space, struct emugpu_create *create)
{
	struct emugpu_object *object;
	static u32 next_handle;
	u32 count;
	int error;

	if (create->flags & ~EMUGPU_RDMA || !is_range(EMUGPU_PAGE_SIZE, create->size) ||
	    create->size > EMUGPU_OFFSET(1) - EMUGPU_PAGE_SIZE)
		return -EINVAL;
	count = create->size / EMUGPU_PAGE_SIZE;
	object = kvzalloc(struct_size(object, pages, count), GFP_KERNEL);
	if (!object)
		return -ENOMEM;
	object->space = space;
	object->flags = create->flags;
	object->holders = 1;
	error = bar_take(object->pages, count);
	if (error) {
		kvfree(object);
		return error;
	}
	object->count = count;

	/* Handles are allocated cyclically, so that they are reused as late as possible. */
	error = xa_alloc_cyclic(&objects, &object->handle, object, XA_LIMIT(1, INT_MAX), &next_handle, GFP_KERNEL);
	if (error < 0) {
		drop(object);
		return error;
	}
	create->handle = object->handle;
	return 0;
}

int space_release(struct emugpu_space *space, u32 handle)
{
	struct emugpu_object *object = space_object(space, handle);

	if (!object)
		return -ENOENT;
	release(object);
	return 0;
}

/* ---- Mappings ---- */

/* Returns the first mapping that ends after an address, or NULL. */
static struct mapping *find(struct emugpu_space *space, u64 va)
{
	struct mapping *mapping;

	list_for_each_entry(mapping, &space->mappings, node)
		if (va < mapping->va + mapping->size)
			return mapping;
	return NULL;
}

/* Returns the mapping that contains an address, or NULL. */
static struct mapping *at(struct emugpu_space *space, u64 va)
{
	struct mapping *mapping = find(space, va);

	return mapping && mapping->va <= va ? mapping : NULL;
}

static u32 *page_slot(struct mapping *mapping, u64 va)
{
	return &mapping->object->pages[mapping->first + (va - mapping->va) / EMUGPU_PAGE_SIZE];
}

int space_map(struct emugpu_space *space, const struct emugpu_map *map)
{
	struct emugpu_object *object = space_object(space, map->handle);
	struct mapping *mapping, *next = find(space, map->va);

	if (!object)
		return -ENOENT;
	if (!is_range(map->va, map->size) || map->offset % EMUGPU_PAGE_SIZE || map->padding ||
	    map->offset >= EMUGPU_OFFSET(1) ||
	    (map->offset + map->size) / EMUGPU_PAGE_SIZE > object->count)
		return -EINVAL;
	if (next && next->va < map->va + map->size)
		return -EEXIST;
	mapping = kmalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return -ENOMEM;
	mapping->va = map->va;
	mapping->size = map->size;
	mapping->object = object;
	mapping->first = map->offset / EMUGPU_PAGE_SIZE;
	object->holders++;
	list_add_tail(&mapping->node, next ? &next->node : &space->mappings);
	return 0;
}

int space_unmap(struct emugpu_space *space, u64 va, u64 size)
{
	struct mapping *mapping;
	u64 end = va + size, next = va;

	if (!is_range(va, size))
		return -EINVAL;
	while (next < end) {
		mapping = at(space, next);
		if (!mapping || mapping->va != next)
			return -EINVAL;
		next += mapping->size;
	}
	if (next != end)
		return -EINVAL;
	while (va < end) {
		mapping = at(space, va);
		va += mapping->size;
		unmap(space, mapping);
	}
	return 0;
}

bool space_has_whole(struct emugpu_space *space, u64 va, u64 size)
{
	struct mapping *mapping = at(space, va);

	return mapping && size <= mapping->va + mapping->size - va;
}

int space_page(struct emugpu_space *space, u64 va, u32 *page)
{
	struct mapping *mapping = at(space, va);

	if (!mapping || !(mapping->object->flags & EMUGPU_RDMA))
		return -EINVAL;
	*page = *page_slot(mapping, va);
	return 0;
}

/* Replaces a pinned page by a new one. */
static void replace(struct mapping *mapping, u32 *slot, u32 fresh)
{
	struct emugpu_object *object = mapping->object;

	bar_put(*slot);
	*slot = fresh;
	if (object->handle)
		zap_views(object, object->handle, slot - object->pages, 1);
}

int space_renew(struct emugpu_space *space, u64 va, u64 size)
{
	struct mapping *mapping;
	u32 count, used = 0, *fresh, *slot;
	u64 page;
	int error;

	if (!is_range(va, size))
		return -EINVAL;
	for (page = va; page < va + size; page += EMUGPU_PAGE_SIZE)
		if (!at(space, page))
			return -EINVAL;

	/* All pages that may be needed are allocated before anything changes. */
	count = size / EMUGPU_PAGE_SIZE;
	fresh = kvmalloc_array(count, sizeof(*fresh), GFP_KERNEL);
	if (!fresh)
		return -ENOMEM;
	error = bar_take(fresh, count);
	if (error)
		goto free;

	pins_lose(space, va, size);
	for (page = va; page < va + size; page += EMUGPU_PAGE_SIZE) {
		mapping = at(space, page);
		slot = page_slot(mapping, page);
		if (bar_is_shared(*slot))
			replace(mapping, slot, fresh[used++]);
	}
	while (used < count)
		bar_put(fresh[used++]);
free:
	kvfree(fresh);
	return error;
}
