// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Mappings: how pins are mapped into a process and unmapped.
 *
 * unmap_mapping_range() finds all vmas of a pin, wherever munmap and mremap have left them. They
 * are in the file's address_space, at the offset that is the pin's handle. The kernel puts a vma there only after mmap
 * has ended, so unmap_mapping_range() could miss page tables that mmap has filled. gdr_map_end()
 * cannot wait for a running mmap: a revocation calls it with locks of the GPU driver held, and the
 * unbinding of a device must not wait either. So mmap fills no page tables. Page faults fill them:
 * they happen only when the vma is in place.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/mem_encrypt.h>
#include <linux/mm.h>
#include <linux/pci.h>

#include "gdrdrv.h"
#include "trace.h"

#ifdef GDR_HAVE_PFN_T
#include <linux/pfn_t.h>
#define GDR_PFN(number) __pfn_to_pfn_t(number, PFN_DEV)
#else
#define GDR_PFN(number) (number)
#endif

/* ---- Types of memory ---- */

/*
 * Returns how many bytes from an offset on are physically contiguous, at most `most`. The offset
 * must be the start of a GPU page.
 */
static u64 gdr_run(const struct gdr_pin *pin, u64 offset, u64 most)
{
	u64 start = gdr_pages_address(pin, offset);
	u64 length = GDRDRV_GPU_PAGE_SIZE;

	while (length < most && gdr_pages_address(pin, offset + length) == start + length)
		length += GDRDRV_GPU_PAGE_SIZE;
	return min(length, most);
}

static void gdr_unreserve_wc(struct gdr_pin *pin, u64 end)
{
	u64 offset, run;

	for (offset = 0; offset < end; offset += run) {
		run = gdr_run(pin, offset, pin->size - offset);
		arch_io_free_memtype_wc(gdr_pages_address(pin, offset), run);
	}
}

/*
 * On x86, pages get the memory type that their physical range is reserved with. If another driver
 * has reserved a part with another type, the reservation fails, and the pages of that part get this
 * other type.
 */
static void gdr_reserve_wc(struct gdr_pin *pin)
{
	u64 offset, run;
	int err;

	for (offset = 0; offset < pin->size && !pin->wc_reserved; offset += run) {
		run = gdr_run(pin, offset, pin->size - offset);
		err = arch_io_reserve_memtype_wc(gdr_pages_address(pin, offset), run);
		if (err) {
			gdr_info("handle %#llx: not all pages can be write-combining: %d", pin->handle, err);
			gdr_unreserve_wc(pin, offset);
			return;
		}
	}
	pin->wc_reserved = true;
}

/*
 * True if this computer is a BlueField-3. It does not support arm64's memory type "normal" for memory
 * behind PCIe, so such memory must be mapped with the type "device".
 */
static bool gdr_must_be_device;

void gdr_map_init(void)
{
	static const struct pci_device_id bluefield3[] = {
		{ PCI_DEVICE(PCI_VENDOR_ID_MELLANOX, 0xa2da) }, { PCI_DEVICE(PCI_VENDOR_ID_MELLANOX, 0xa2db) }, {}
	};

	gdr_must_be_device = IS_ENABLED(CONFIG_ARM64) && pci_dev_present(bluefield3);
}

static u32 gdr_uncached_type(void)
{
	return gdr_must_be_device ? GDRDRV_MAPPING_TYPE_DEVICE : GDRDRV_MAPPING_TYPE_WC;
}

bool gdr_map_can_have(const struct gdr_pin *pin, u32 type)
{
	return type == GDRDRV_MAPPING_TYPE_NONE || type == gdr_uncached_type() ||
	       (type == GDRDRV_MAPPING_TYPE_CACHING && pin->cacheable);
}

static pgprot_t gdr_protection(u32 type, pgprot_t protection)
{
	switch (type) {
	case GDRDRV_MAPPING_TYPE_WC:
#if defined(CONFIG_X86) && !defined(GDR_NVIDIA_IS_OPENSOURCE)
		/* Does the same as the line below #else, but without GPL-only symbols. */
		return __pgprot(__sme_clr(pgprot_val(protection)) | cachemode2protval(_PAGE_CACHE_MODE_WC));
#else
		return pgprot_decrypted(pgprot_writecombine(protection));
#endif
#ifdef CONFIG_ARM64
	case GDRDRV_MAPPING_TYPE_DEVICE:
		return pgprot_decrypted(pgprot_device(protection));
#endif
	default:
		return protection;
	}
}

/* Returns the mapping type of a pin. While file->lock is held, an unmapped pin stays unmapped. */
u32 gdr_map_type(struct gdr_pin *pin)
{
	u32 type = GDRDRV_MAPPING_TYPE_NONE;

	down_read(&pin->gate);
	if (pin->live && atomic_read(&pin->vmas))
		type = pin->mapping_type;
	up_read(&pin->gate);
	return type;
}

/* ---- Pages ---- */

static void gdr_set_vm_flags(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef GDR_HAVE_VM_FLAGS_INIT
	vm_flags_init(vma, flags); /* no one else sees the vma yet */
#else
	vma->vm_flags = flags;
#endif
}

/* Returns the offset in the pin that is mapped at an address. */
static u64 gdr_offset(const struct vm_area_struct *vma, unsigned long address)
{
	const struct gdr_pin *pin = vma->vm_private_data;

	return ((vma->vm_pgoff - pin->handle) << PAGE_SHIFT) + (address - vma->vm_start);
}

/* Fills the page tables of a part of a vma. The pin must be live, with its gate held. */
static vm_fault_t gdr_fill(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	struct gdr_pin *pin = vma->vm_private_data;
	u64 offset = gdr_offset(vma, start);
	vm_fault_t result = VM_FAULT_NOPAGE;

	for (; start < end && result == VM_FAULT_NOPAGE; start += PAGE_SIZE, offset += PAGE_SIZE) {
		result = vmf_insert_pfn(vma, start, PHYS_PFN(gdr_pages_address(pin, offset)));
		cond_resched();
	}
	return result;
}

/* Fills the page table around the address. With 4 KiB pages, one fault fills 2 MiB. */
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

#ifdef GDR_HAVE_HUGE_PAGES
/* Maps a huge page (2 MiB, if pages have 4 KiB) at the address, if the memory is aligned and contiguous. */
static vm_fault_t gdr_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct gdr_pin *pin = vma->vm_private_data;
	unsigned long start = vmf->address & PMD_MASK;
	u64 offset = gdr_offset(vma, start);
	vm_fault_t result = VM_FAULT_FALLBACK; /* the kernel then calls gdr_fault() */

	if (order != PMD_ORDER || start < vma->vm_start || start + PMD_SIZE > vma->vm_end)
		return result;
	down_read(&pin->gate);
	if (pin->live && (pin->wc_reserved || pin->mapping_type != GDRDRV_MAPPING_TYPE_WC) &&
	    IS_ALIGNED(gdr_pages_address(pin, offset), PMD_SIZE) &&
	    gdr_run(pin, offset, PMD_SIZE) == PMD_SIZE)
		/* If a huge page is mapped already, only its protection changes. */
		result = vmf_insert_pfn_pmd(vmf, GDR_PFN(PHYS_PFN(gdr_pages_address(pin, offset))),
					    !pmd_none(vmf->orig_pmd));
	up_read(&pin->gate);
	return result;
}

/* Chooses an address whose offset in a huge page is that of the pin's physical address. Huge pages need this. */
unsigned long gdr_map_address(struct file *filp, unsigned long addr, unsigned long len, unsigned long pgoff,
			      unsigned long flags)
{
	struct gdr_file *file = filp->private_data;
	struct gdr_pin *pin;

	mutex_lock(&file->lock);
	pin = gdr_pin_find(file, pgoff);
	if (pin)
		pgoff = PHYS_PFN(pin->physical);
	mutex_unlock(&file->lock);
	return thp_get_unmapped_area(filp, addr, len, pgoff, flags);
}
#endif

/*
 * Counts a new vma of the pin. The kernel calls this for vmas that munmap, mprotect or mremap makes
 * from another vma.
 */
static void gdr_vma_open(struct vm_area_struct *vma)
{
	struct gdr_pin *pin = vma->vm_private_data;

	kref_get(&pin->refs);
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
#ifdef GDR_HAVE_HUGE_PAGES
	.huge_fault = gdr_huge_fault,
#endif
};

/* ---- Mapping ---- */

/* Makes a new vma a mapping of the pin. Called with file->lock and pin->gate held. */
static int gdr_map_pin(struct gdr_pin *pin, struct vm_area_struct *vma)
{
	u64 size = vma->vm_end - vma->vm_start;
	u32 type;

	if (!(vma->vm_flags & VM_MAYSHARE)) { /* without write access, a shared mapping has no VM_SHARED */
		gdr_info("mappings of GPU memory must be shared: pass MAP_SHARED");
		return -EINVAL;
	}
	if (vma->vm_flags & VM_EXEC) {
		gdr_info("GPU memory holds no programs of the CPU: map it without PROT_EXEC");
		return -EACCES;
	}
	if (pin->offset) {
		gdr_info("handle %#llx cannot be mapped: its address is not a multiple of 64 KiB", pin->handle);
		return -EINVAL;
	}
	if (size > pin->size || !pin->live || atomic_read(&pin->vmas)) {
		gdr_info("handle %#llx cannot be mapped: length too large, memory freed, or already mapped",
			 pin->handle);
		return -EINVAL;
	}

	type = pin->requested_type ?: pin->cacheable ? GDRDRV_MAPPING_TYPE_CACHING : gdr_uncached_type();
	if (type == GDRDRV_MAPPING_TYPE_WC)
		gdr_reserve_wc(pin);
	vma->vm_page_prot = gdr_protection(type, vma->vm_page_prot);
	vma->vm_private_data = pin;
	gdr_set_vm_flags(vma, (vma->vm_flags & ~VM_MAYEXEC) | VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND |
			      VM_DONTDUMP);
	pin->mapping_type = type;
	vma->vm_ops = &gdr_vm_ops;
	gdr_vma_open(vma);
	trace_gdrdrv_map(pin);
	gdr_dbg("handle %#llx mapped, type %u", pin->handle, type);
	return 0;
}

int gdr_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct gdr_file *file = filp->private_data;
	struct gdr_pin *pin;
	int err = -EINVAL;

	if (!gdr_owner_is_caller(file->owner)) {
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

/*
 * Ends all access to a pin's pages, so that accesses to its mappings raise SIGBUS. Can be called
 * repeatedly and concurrently.
 */
void gdr_map_end(struct gdr_pin *pin)
{
	down_write(&pin->gate);
	pin->live = false;
	up_write(&pin->gate);

	unmap_mapping_range(&pin->file->mapping, (loff_t)pin->handle << PAGE_SHIFT, pin->size, 1);

	down_write(&pin->gate);
	if (pin->wc_reserved)
		gdr_unreserve_wc(pin, pin->size);
	pin->wc_reserved = false;
	up_write(&pin->gate);
}
