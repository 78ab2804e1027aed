// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Mappings: how pins come into the address space of a process, and out of it again.
 *
 * The kernel finds a mapping's ranges for us, wherever munmap and mremap have left them: they are the vmas of the
 * file's address_space at the pin's handle. It does so only from the end of mmap on. A zap must not miss one that
 * is on its way, hence:
 *   - pins that can be revoked are mapped by page faults, which find the vma in place;
 *   - persistent ones are mapped at once, so that no copy has to wait for a page fault, and only the process itself
 *     ends them: it waits for its own mmaps.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/mm.h>
#ifdef CONFIG_ARM64
#include <asm/cputype.h>
#endif

#include "gdrdrv.h"

/* ---- Types of memory ---- */

/* Bytes from the offset on that are physically contiguous. */
static u64 gdr_run(const struct gdr_pin *pin, u64 offset)
{
	u64 start = gdr_pages_address(pin, offset);
	u64 length = GDRDRV_GPU_PAGE_SIZE;

	while (offset + length < pin->size && gdr_pages_address(pin, offset + length) == start + length)
		length += GDRDRV_GPU_PAGE_SIZE;
	return length;
}

static void gdr_unreserve_wc(struct gdr_pin *pin, u64 end)
{
	u64 offset, run;

	for (offset = 0; offset < end; offset += run) {
		run = gdr_run(pin, offset);
		arch_io_free_memtype_wc(gdr_pages_address(pin, offset), run);
	}
}

/* On x86, pages inserted one by one get the type that their physical range was reserved with, else uncached. */
static int gdr_reserve_wc(struct gdr_pin *pin)
{
	u64 offset, run;
	int err;

	if (pin->wc_reserved)
		return 0;
	for (offset = 0; offset < pin->size; offset += run) {
		run = gdr_run(pin, offset);
		err = arch_io_reserve_memtype_wc(gdr_pages_address(pin, offset), run);
		if (err) {
			gdr_unreserve_wc(pin, offset);
			return err;
		}
	}
	pin->wc_reserved = true;
	return 0;
}

/*
 * Arm's Cortex-A78AE, the cores of BlueField-3, cannot take normal memory behind PCIe. It is in other machines,
 * too, for which device memory is right as well, if slow.
 */
static bool gdr_must_be_device(void)
{
#ifdef CONFIG_ARM64
	return read_cpuid_implementor() == ARM_CPU_IMP_ARM && read_cpuid_part_number() == 0xD42;
#else
	return false;
#endif
}

bool gdr_map_can_have(const struct gdr_pin *pin, u32 type)
{
	switch (type) {
	case GDRDRV_MAPPING_TYPE_NONE:
		return true;
	case GDRDRV_MAPPING_TYPE_WC:
		return !gdr_must_be_device();
	case GDRDRV_MAPPING_TYPE_CACHING:
		return pin->cacheable;
	case GDRDRV_MAPPING_TYPE_DEVICE:
		return gdr_must_be_device();
	default:
		return false;
	}
}

static u32 gdr_best_type(const struct gdr_pin *pin)
{
	if (pin->cacheable)
		return GDRDRV_MAPPING_TYPE_CACHING;
	return gdr_must_be_device() ? GDRDRV_MAPPING_TYPE_DEVICE : GDRDRV_MAPPING_TYPE_WC;
}

static pgprot_t gdr_protection(u32 type, pgprot_t protection)
{
	switch (type) {
	case GDRDRV_MAPPING_TYPE_WC:
		return pgprot_decrypted(pgprot_writecombine(protection));
	case GDRDRV_MAPPING_TYPE_DEVICE:
		return pgprot_decrypted(pgprot_device(protection));
	default:
		return protection;
	}
}

/* The type of the mapping that a pin has now. */
u32 gdr_map_type(struct gdr_pin *pin)
{
	u32 type = GDRDRV_MAPPING_TYPE_NONE;

	lockdep_assert_held(&pin->file->lock);
	down_read(&pin->gate);
	if (pin->live && atomic_read(&pin->vmas))
		type = pin->mapping_type;
	up_read(&pin->gate);
	return type;
}

/* ---- Pages ---- */

/* Fills the page tables of a part of a vma. The pin must be live, its gate be held. */
static vm_fault_t gdr_fill(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	struct gdr_pin *pin = vma->vm_private_data;
	u64 offset = ((vma->vm_pgoff - pin->handle) << PAGE_SHIFT) + (start - vma->vm_start);
	vm_fault_t result = VM_FAULT_NOPAGE;

	for (; start < end && result == VM_FAULT_NOPAGE; start += PAGE_SIZE, offset += PAGE_SIZE) {
		result = vmf_insert_pfn(vma, start, PHYS_PFN(gdr_pages_address(pin, offset)));
		cond_resched();
	}
	return result;
}

/* Fills the page table around the address: a fault every 2 MiB, on most machines. */
static vm_fault_t gdr_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct gdr_pin *pin = vma->vm_private_data;
	unsigned long start = max(vma->vm_start, vmf->address & PMD_MASK);
	unsigned long end = min(vma->vm_end - 1, vmf->address | ~PMD_MASK) + 1;
	vm_fault_t result = VM_FAULT_SIGBUS;

	down_read(&pin->gate);
	if (pin->live)
		result = gdr_fill(vma, start, end);
	up_read(&pin->gate);
	return result;
}

/* A range was split off, or moved. */
static void gdr_vma_open(struct vm_area_struct *vma)
{
	struct gdr_pin *pin = vma->vm_private_data;

	gdr_pin_get(pin);
	atomic_inc(&pin->vmas);
}

static void gdr_vma_close(struct vm_area_struct *vma)
{
	struct gdr_pin *pin = vma->vm_private_data;

	atomic_dec(&pin->vmas);
	gdr_pin_put(pin);
}

static const struct vm_operations_struct gdr_vm_ops = {
	.open = gdr_vma_open,
	.close = gdr_vma_close,
	.fault = gdr_fault,
};

/* ---- Mapping ---- */

static void gdr_add_vm_flags(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef GDR_HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

/* With file->lock held, and the gate. */
static int gdr_map_pin(struct gdr_pin *pin, struct vm_area_struct *vma)
{
	u32 type;
	int err;

	if (!(vma->vm_flags & VM_MAYSHARE)) { /* VM_SHARED is for files open for writing */
		gdr_info("mappings of GPU memory are shared ones: pass MAP_SHARED");
		return -EINVAL;
	}
	if (pin->offset) {
		gdr_info("handle %#llx cannot be mapped: its address is not that of a GPU page", pin->handle);
		return -EINVAL;
	}
	if (vma->vm_end - vma->vm_start > pin->size || !pin->live || atomic_read(&pin->vmas)) {
		gdr_info("handle %#llx cannot be mapped: shorter, freed, or mapped already", pin->handle);
		return -EINVAL;
	}

	type = pin->requested_type ?: gdr_best_type(pin);
	if (type == GDRDRV_MAPPING_TYPE_WC) {
		err = gdr_reserve_wc(pin);
		if (err)
			return err;
	}
	vma->vm_page_prot = gdr_protection(type, vma->vm_page_prot);
	vma->vm_private_data = pin;
	gdr_add_vm_flags(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	if (pin->persistent) {
		err = vm_fault_to_errno(gdr_fill(vma, vma->vm_start, vma->vm_end), 0);
		if (err)
			return err;
	}

	pin->mapping_type = type;
	vma->vm_ops = &gdr_vm_ops;
	gdr_vma_open(vma);
	gdr_dbg("handle %#llx mapped, type %u", pin->handle, type);
	return 0;
}

int gdr_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct gdr_file *file = filp->private_data;
	struct gdr_pin *pin;
	int err = -EINVAL;

	if (!gdr_file_is_callers(file)) {
		gdr_info("the device was opened by another process: open it in this one");
		return -EACCES;
	}
	mutex_lock(&file->lock);
	pin = gdr_pin_find(file, vma->vm_pgoff);
	if (pin) {
		down_write(&pin->gate);
		err = gdr_map_pin(pin, vma);
		up_write(&pin->gate);
	} else {
		gdr_info("no pin has the handle %#lx", vma->vm_pgoff);
	}
	mutex_unlock(&file->lock);
	return err;
}

/* No mmap of this process that is on its way now is after this. */
static void gdr_wait_for_mmaps(void)
{
	if (current->mm) {
		mmap_read_lock(current->mm);
		mmap_read_unlock(current->mm);
	}
}

/* Ends all access to a pin's pages; those who touch its mappings get SIGBUS. Can be called again, and at once. */
void gdr_map_end(struct gdr_pin *pin)
{
	down_write(&pin->gate);
	if (pin->live && pin->wc_reserved)
		gdr_unreserve_wc(pin, pin->size);
	pin->live = false;
	up_write(&pin->gate);

	if (!atomic_read(&pin->vmas))
		return;
	if (pin->persistent)
		gdr_wait_for_mmaps();
	unmap_mapping_range(&pin->file->mapping, (loff_t)pin->handle << PAGE_SHIFT, pin->size, 1);
}
