// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The module, its parameters, and opening and closing the device. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>

#include "gdrdrv.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

bool gdr_use_persistent_mapping = true;
module_param_named(use_persistent_mapping, gdr_use_persistent_mapping, bool, 0444);
MODULE_PARM_DESC(use_persistent_mapping, "keep pins when their memory is freed, if the GPU driver can (default 1)");

int gdr_dbg_enabled;
module_param_named(dbg_enabled, gdr_dbg_enabled, int, 0644);
MODULE_PARM_DESC(dbg_enabled, "log every command, and create nv_get_pages_refcount in /proc/driver/gdrdrv (default 0)");

int gdr_info_enabled;
module_param_named(info_enabled, gdr_info_enabled, int, 0444);
MODULE_PARM_DESC(info_enabled, "log why calls fail (default 0)");

unsigned int gdr_max_pins;
module_param_named(max_pins, gdr_max_pins, uint, 0644);
MODULE_PARM_DESC(max_pins, "most pins of a process; 0 is no limit (default 0)");

unsigned int gdr_max_pinned_mib;
module_param_named(max_pinned_mib, gdr_max_pinned_mib, uint, 0644);
MODULE_PARM_DESC(max_pinned_mib, "most GPU memory of a process's pins, in MiB; 0 is no limit (default 0)");

unsigned int gdr_max_pins_per_user;
module_param_named(max_pins_per_user, gdr_max_pins_per_user, uint, 0644);
MODULE_PARM_DESC(max_pins_per_user, "most pins of all processes of a user; 0 is no limit (default 0)");

unsigned int gdr_max_pinned_mib_per_user;
module_param_named(max_pinned_mib_per_user, gdr_max_pinned_mib_per_user, uint, 0644);
MODULE_PARM_DESC(max_pinned_mib_per_user, "most GPU memory of a user's pins, in MiB; 0 is no limit (default 0)");

/* 0666 is safe, because the GPU driver gives a process access only to its own GPU memory. */
static unsigned short gdr_mode = 0666;
module_param_named(mode, gdr_mode, ushort, 0444);
MODULE_PARM_DESC(mode, "permissions of /dev/gdrdrv, octal (default 0666)");

static int gdr_open(struct inode *inode, struct file *filp)
{
	struct gdr_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	struct gdr_owner *owner = file ? gdr_owner_get_process() : NULL;

	if (!owner) {
		kfree(file);
		return -ENOMEM;
	}
	refcount_set(&file->refs, 1);
	file->owner = owner;
	mutex_init(&file->lock);
	xa_init(&file->pins);

	/*
	 * By default, all open files of a device node share the inode's address_space. But each open
	 * file has handles of its own, so it needs an address_space of its own.
	 */
	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = &empty_aops;
	filp->f_mapping = &file->mapping;

	filp->private_data = file;
	return 0;
}

/*
 * Called when a descriptor is closed. If the owner's exit closes it, the file's pins end, so that
 * copies of the descriptor in other processes cannot keep them. At that time the owner's last
 * thread is exiting, and no thread is inside mmap().
 */
static int gdr_flush(struct file *filp, fl_owner_t descriptors)
{
	struct gdr_file *file = filp->private_data;

	if (gdr_owner_is_caller(file->owner) && current->flags & PF_EXITING && !atomic_read(&current->signal->live))
		gdr_pin_remove_all(file);
	return 0;
}

/* Called when no process has a descriptor or a mapping of the open file any more. */
static int gdr_release(struct inode *inode, struct file *filp)
{
	struct gdr_file *file = filp->private_data;

	gdr_pin_remove_all(file);
	xa_destroy(&file->pins);
	gdr_owner_put(file->owner);
	gdr_file_put(file);
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

/*
 * The major number of a second device with the same operations. Installers and containers look up
 * this number in /proc/devices, which does not list misc devices such as the first one.
 */
static int gdr_major;

static int __init gdr_init(void)
{
	int err;

	if (gdr_mode != 0600 && gdr_mode != 0660 && gdr_mode != 0666) {
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
