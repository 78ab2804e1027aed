// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The module, its parameters, and opening and closing the device. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fdtable.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "gdrdrv.h"

bool gdr_use_persistent_mapping = true;
module_param_named(use_persistent_mapping, gdr_use_persistent_mapping, bool, 0444);
MODULE_PARM_DESC(use_persistent_mapping, "pins outlive a free of their memory, where the GPU driver can do that (1)");

int gdr_dbg_enabled;
module_param_named(dbg_enabled, gdr_dbg_enabled, int, 0444);
MODULE_PARM_DESC(dbg_enabled, "log every step, and have nv_get_pages_refcount in /proc/driver/gdrdrv (0)");

int gdr_info_enabled;
module_param_named(info_enabled, gdr_info_enabled, int, 0444);
MODULE_PARM_DESC(info_enabled, "log why calls fail (0)");

static int gdr_open(struct inode *inode, struct file *filp)
{
	struct gdr_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return -ENOMEM;
	file->owner = get_pid(task_tgid(current));
	mutex_init(&file->lock);
	xa_init(&file->pins);

	/* All opens of a node share the inode's mapping, but each counts its handles from 0. */
	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = &empty_aops;
	filp->f_mapping = &file->mapping;

	filp->private_data = file;
	return 0;
}

static int gdr_same_file(const void *filp, struct file *other, unsigned int fd)
{
	return filp == other;
}

/*
 * A descriptor is being closed, and is out of its table already. When it was the owner's last one, everything is
 * given back: release would wait for its mappings, and for descriptors that forked children have inherited.
 */
static int gdr_flush(struct file *filp, fl_owner_t descriptors)
{
	struct gdr_file *file = filp->private_data;

	if (!gdr_file_is_callers(file) || iterate_fd(descriptors, 0, gdr_same_file, filp))
		return 0;

	mutex_lock(&file->lock);
	file->closed = true; /* for a pin that another thread is about to make */
	mutex_unlock(&file->lock);
	gdr_pin_remove_all(file);
	return 0;
}

/* The last descriptor of all processes is gone, and the last mapping. */
static int gdr_release(struct inode *inode, struct file *filp)
{
	struct gdr_file *file = filp->private_data;

	gdr_pin_remove_all(file);
	xa_destroy(&file->pins);
	put_pid(file->owner);
	kfree(file);
	return 0;
}

static const struct file_operations gdr_fops = {
	.owner = THIS_MODULE,
	.open = gdr_open,
	.unlocked_ioctl = gdr_ioctl,
	.mmap = gdr_mmap,
	.flush = gdr_flush,
	.release = gdr_release,
};

static struct class gdr_class = {
	.name = KBUILD_MODNAME,
};

static dev_t gdr_number;
static struct cdev gdr_cdev;

static int __init gdr_init(void)
{
	struct device *device;
	int err;

	err = alloc_chrdev_region(&gdr_number, 0, 1, KBUILD_MODNAME);
	if (err)
		return err;
	err = class_register(&gdr_class);
	if (err)
		goto unregister_number;
	err = gdr_proc_create();
	if (err)
		goto unregister_class;

	cdev_init(&gdr_cdev, &gdr_fops);
	gdr_cdev.owner = THIS_MODULE;
	err = cdev_add(&gdr_cdev, gdr_number, 1);
	if (err)
		goto remove_proc;
	device = device_create(&gdr_class, NULL, gdr_number, NULL, KBUILD_MODNAME);
	if (IS_ERR(device)) {
		err = PTR_ERR(device);
		goto remove_cdev;
	}

	pr_info("version %d.%d, device number %d:%d, persistent mapping: %s\n", GDRDRV_MAJOR_VERSION,
		GDRDRV_MINOR_VERSION, MAJOR(gdr_number), MINOR(gdr_number), gdr_pages_can_persist() ? "yes" : "no");
	return 0;

remove_cdev:
	cdev_del(&gdr_cdev);
remove_proc:
	gdr_proc_remove();
unregister_class:
	class_unregister(&gdr_class);
unregister_number:
	unregister_chrdev_region(gdr_number, 1);
	return err;
}

static void __exit gdr_exit(void)
{
	device_destroy(&gdr_class, gdr_number);
	cdev_del(&gdr_cdev);
	gdr_proc_remove();
	class_unregister(&gdr_class);
	unregister_chrdev_region(gdr_number, 1);
	if (gdr_pages_tables())
		pr_err("%d page tables were not given back\n", gdr_pages_tables());
}

module_init(gdr_init);
module_exit(gdr_exit);

MODULE_DESCRIPTION("CPU access to NVIDIA GPU memory");
MODULE_AUTHOR("the gdrapi contributors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(__stringify(GDRDRV_MAJOR_VERSION) "." __stringify(GDRDRV_MINOR_VERSION));
