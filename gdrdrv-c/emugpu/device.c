// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The device /dev/emugpu, whose interface emugpu_uapi.h documents. */
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "emugpu.h"

static int branch = NV_P2P_BRANCH;
module_param(branch, int, 0444);
MODULE_PARM_DESC(branch, "branch of the GPU driver whose interface emugpu provides; tests read it");

DEFINE_MUTEX(emugpu_lock);

static int device_open(struct inode *inode, struct file *file)
{
	struct emugpu_space *space;

	mutex_lock(&emugpu_lock);
	space = space_of_caller() ? NULL : space_new(file->f_mapping);
	mutex_unlock(&emugpu_lock);
	if (!space)
		return -EBUSY; /* A process has only one GPU address space. */
	file->private_data = space;
	return 0;
}

/*
 * The memory is freed when the last process closes the file, as on a real GPU. So a forked child
 * that inherits the file keeps the memory alive.
 */
static int device_release(struct inode *inode, struct file *file)
{
	struct emugpu_space *space = file->private_data;

	mutex_lock(&emugpu_lock);
	space_free(space);
	mutex_unlock(&emugpu_lock);
	return 0;
}

/* The argument of any command. */
union argument {
	struct emugpu_create create;
	struct emugpu_map map;
	struct emugpu_range range;
	struct emugpu_status status;
	struct emugpu_inject inject;
	u32 handle;
};

static int run(struct emugpu_space *space, unsigned int command, union argument *argument)
{
	switch (command) {
	case EMUGPU_CREATE:
		return space_create(space, &argument->create);
	case EMUGPU_MAP:
		return space_map(space, &argument->map);
	case EMUGPU_UNMAP:
		return space_unmap(space, argument->range.va, argument->range.size);
	case EMUGPU_RELEASE:
		return space_release(space, argument->handle);
	case EMUGPU_RENEW:
		return space_renew(space, argument->range.va, argument->range.size);
	case EMUGPU_STATUS:
		argument->status.bytes = bar_bytes();
		argument->status.free_bytes = bar_free_bytes();
		argument->status.page_tables = pins_count();
		argument->status.unchecked_bytes = pins_unchecked_bytes();
		return 0;
	case EMUGPU_INJECT:
		space->inject = argument->inject;
		return 0;
	default:
		return -ENOTTY;
	}
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long address)
{
	struct emugpu_space *space = file->private_data;
	void __user *user = (void __user *)address;
	union argument argument = {};
	size_t size = _IOC_SIZE(command);
	int result;

	if (!is_caller(&space->owner))
		return -EACCES;
	if (size > sizeof(argument))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&argument, user, size))
		return -EFAULT;
	mutex_lock(&emugpu_lock);
	result = run(space, command, &argument);
	mutex_unlock(&emugpu_lock);
	if (!result && _IOC_DIR(command) & _IOC_READ && copy_to_user(user, &argument, size))
		return -EFAULT;
	return result;
}

static vm_fault_t view_fault(struct vm_fault *fault)
{
	struct vm_area_struct *vma = fault->vma;
	u64 offset = (u64)fault->pgoff << PAGE_SHIFT;
	u32 page = (u32)offset / EMUGPU_PAGE_SIZE;
	vm_fault_t result = VM_FAULT_SIGBUS;
	struct emugpu_object *object;
	phys_addr_t at;

	mutex_lock(&emugpu_lock);
	object = space_object(vma->vm_file->private_data, offset >> 32);
	if (bar_is_present() && object && page < object->count) {
		at = bar_address(object->pages[page]) + offset % EMUGPU_PAGE_SIZE;
		result = vmf_insert_pfn(vma, fault->address, PHYS_PFN(at));
	}
	mutex_unlock(&emugpu_lock);
	return result;
}

static const struct vm_operations_struct view_operations = { .fault = view_fault };

static int device_mmap(struct file *file, struct vm_area_struct *vma)
{
	const unsigned long flags = VM_PFNMAP | VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP;
	const struct emugpu_space *space = file->private_data;

	if (!is_caller(&space->owner))
		return -EACCES;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	wait_while_held();
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_init(vma, vma->vm_flags | flags);
#else
	vma->vm_flags |= flags;
#endif
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_ops = &view_operations;
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.unlocked_ioctl = device_ioctl,
	.mmap = device_mmap,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "emugpu",
	.fops = &operations,
	.mode = 0666,
};

static int __init emugpu_init(void)
{
	int error = bar_init(spaces_zap_views);

	if (error)
		return error;
	error = misc_register(&device);
	if (error) {
		bar_exit();
		return error;
	}
	pr_info("emugpu: %llu MiB of memory\n", bar_bytes() >> 20);
	return 0;
}

static void __exit emugpu_exit(void)
{
	misc_deregister(&device);
	WARN(pins_count() || bar_free_bytes() != bar_bytes(), "emugpu: %llu page tables were not returned\n",
	     pins_count());
	pins_exit();
	bar_exit();
}

module_init(emugpu_init);
module_exit(emugpu_exit);

MODULE_DESCRIPTION("GPU driver without a GPU, for tests of its peers");
MODULE_LICENSE("Dual MIT/GPL");
