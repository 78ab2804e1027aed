// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The module, its parameters, and opening and closing the device. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>

#include "gdrdrv.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

#define GDR_PARAMETER(type, name, initial, mode, description) \
	type gdr_##name = initial; \
	module_param_named(name, gdr_##name, type, mode); \
	MODULE_PARM_DESC(name, description " (default " #initial ")")

GDR_PARAMETER(bool, use_persistent_mapping, 1, 0444, "keep pins when their memory is freed, if the GPU driver can");
GDR_PARAMETER(int, dbg_enabled, 0, 0644, "log every command, and create nv_get_pages_refcount in /proc/driver/gdrdrv");
GDR_PARAMETER(int, info_enabled, 0, 0444, "log why calls fail");
GDR_PARAMETER(uint, max_pins, 0, 0644, "most pins of a process; 0 is no limit");
GDR_PARAMETER(uint, max_pinned_mib, 0, 0644, "most GPU memory of a process's pins, in MiB; 0 is no limit");
GDR_PARAMETER(uint, max_pins_per_user, 0, 0644, "most pins of all processes of a user; 0 is no limit");
GDR_PARAMETER(uint, max_pinned_mib_per_user, 0, 0644, "most GPU memory of a user's pins, in MiB; 0 is no limit");
/* 0666 is safe, because the GPU driver gives a process access only to its own GPU memory. */
static GDR_PARAMETER(ushort, mode, 0666, 0444, "permissions of /dev/gdrdrv, octal");

static int gdr_open(struct inode *inode, struct file *filp)
{
	struct gdr_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	struct gdr_owner *owner = file ? gdr_owner_get(false) : NULL;

	if (!owner) {
		kfree(file);
		return -ENOMEM;
	}
	file->owner = owner;
	mutex_init(&file->lock);
	xa_init(&file->pins);

	/* All opens of a node share the inode's mapping, but each numbers its handles from 0. */
	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = &empty_aops;
	filp->f_mapping = &file->mapping;

	filp->private_data = file;
	return 0;
}

/*
 * A descriptor is being closed. The owner's exit ends its pins, so that copies of the descriptor in other processes
 * cannot keep them. By then its last thread is exiting, and no thread is inside mmap().
 */
static int gdr_flush(struct file *filp, fl_owner_t descriptors)
{
	struct gdr_file *file = filp->private_data;

	if (gdr_owner_is_caller(file->owner) && current->flags & PF_EXITING && !atomic_read(&current->signal->live))
		gdr_pin_remove_all(file);
	return 0;
}

/* The last descriptor in any process and the last mapping are gone. */
static int gdr_release(struct inode *inode, struct file *filp)
{
	struct gdr_file *file = filp->private_data;

	gdr_pin_remove_all(file);
	xa_destroy(&file->pins);
	gdr_owner_drop(file->owner, 0, 0);
	kfree(file);
	return 0;
}

static const struct file_operations gdr_fops = {
	.owner = THIS_MODULE,
	.open = gdr_open,
	.unlocked_ioctl = gdr_ioctl,
	.mmap = gdr_mmap,
	.get_unmapped_area = gdr_map_address,
	.flush = gdr_flush,
	.release = gdr_release,
};

static struct miscdevice gdr_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &gdr_fops,
};

/* Installers and containers look up the number in /proc/devices, which does not list misc devices. */
static int gdr_major;

static int __init gdr_init(void)
{
	int err;

	if ((gdr_mode | 0066) != 0666 || (gdr_mode & 0044) >> 1 != (gdr_mode & 0022)) {
		pr_err("mode=%#o is not valid: write 0600, 0660 or 0666\n", gdr_mode);
		return -EINVAL;
	}
	err = gdr_pin_init() ?: gdr_proc_create();
	if (err)
		goto undo;
	gdr_map_init();
	gdr_major = __register_chrdev(0, 0, 1, KBUILD_MODNAME, &gdr_fops);
	err = min(gdr_major, 0);
	if (err)
		goto undo;
	gdr_device.mode = gdr_mode;
	err = misc_register(&gdr_device);
	if (err) {
		__unregister_chrdev(gdr_major, 0, 1, KBUILD_MODNAME);
		goto undo;
	}
	pr_info(GDR_IMPLEMENTATION ", version %d.%d of the interface, device number %d:0\n", GDRDRV_MAJOR_VERSION,
		GDRDRV_MINOR_VERSION, gdr_major);
	if (!gdr_pages_can_persist())
		pr_notice("pins end when their memory is freed: SECURITY.md says what this mode relies on\n");
	return 0;

undo:
	gdr_proc_remove();
	gdr_pin_exit();
	return err;
}

static void __exit gdr_exit(void)
{
	misc_deregister(&gdr_device);
	__unregister_chrdev(gdr_major, 0, 1, KBUILD_MODNAME);
	gdr_proc_remove();
	gdr_pin_exit();
}

module_init(gdr_init);
module_exit(gdr_exit);

MODULE_DESCRIPTION("CPU access to NVIDIA GPU memory");
MODULE_AUTHOR("the gdrapi contributors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(__stringify(GDRDRV_MAJOR_VERSION) "." __stringify(GDRDRV_MINOR_VERSION));
