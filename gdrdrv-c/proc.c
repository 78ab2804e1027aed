// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* /proc/driver/gdrdrv: how the module was built and loaded, its pins, and their number. */
#include <linux/ctype.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "gdrdrv.h"

/* Kbuild defines GDR_NVIDIA_IS_OPENSOURCE if this build uses the sources of NVIDIA's open GPU driver. */
#ifdef GDR_NVIDIA_IS_OPENSOURCE
#define GDR_FLAVOR "opensource"
#else
#define GDR_FLAVOR "proprietary"
#endif

MODULE_INFO(gpu_driver, GDR_FLAVOR); /* gdrdrv-load compares this with the installed GPU driver */

static struct proc_dir_entry *gdr_proc;

static int gdr_show_params(struct seq_file *out, void *unused)
{
	seq_printf(out, "Version: %d.%d\n", GDRDRV_MAJOR_VERSION, GDRDRV_MINOR_VERSION);
	seq_printf(out, "Built for NVIDIA driver flavor: %s\n", GDR_FLAVOR);
	seq_printf(out, "Use persistent mapping: %s\n", gdr_pages_can_persist() ? "yes" : "no");
	seq_printf(out, "dbg_enabled: %d\ninfo_enabled: %d\n", gdr_dbg_enabled, gdr_info_enabled);
	seq_printf(out, "Pins refused by limits: %llu\n", (u64)atomic64_read(&gdr_owner_refused));
	seq_puts(out, "Implementation: " GDR_IMPLEMENTATION "\n");
	return 0;
}

static int gdr_show_refcount(struct seq_file *out, void *unused)
{
	seq_printf(out, "%d\n", gdr_pages_tables());
	return 0;
}

/* ---- The file `pins`: a line of column names, then a line for each pin, in the order of ids ---- */

static void *gdr_pins_start(struct seq_file *out, loff_t *position)
{
	struct gdr_pin *pin;

	if (!*position) {
		/* Pins made after this are not listed. Otherwise, if pins are made fast, the list might never end. */
		out->private = (void *)(unsigned long)atomic64_read(&gdr_pin_last_id);
		return SEQ_START_TOKEN;
	}
	pin = gdr_pin_by_id(*position, (unsigned long)out->private);
	if (pin)
		*position = pin->id;
	return pin;
}

static void gdr_pins_stop(struct seq_file *out, void *pin)
{
	if (pin && pin != SEQ_START_TOKEN)
		gdr_pin_put(pin);
}

static void *gdr_pins_next(struct seq_file *out, void *pin, loff_t *position)
{
	gdr_pins_stop(out, pin);
	++*position;
	return gdr_pins_start(out, position);
}

/* Escapes all characters that a terminal may interpret, because a process chooses its name. */
static void gdr_show_name(struct seq_file *out, const char *name)
{
	for (; *name; name++)
		if (isascii(*name) && isprint(*name) && *name != '\\')
			seq_putc(out, *name);
		else
			seq_printf(out, "\\%03o", (u8)*name);
	seq_putc(out, '\n');
}

static int gdr_pins_show(struct seq_file *out, void *at)
{
	static const char *const types[] = { "-", "WC", "cached", "device" };
	struct gdr_pin *pin = at;
	u32 type;

	if (at == SEQ_START_TOKEN) {
		seq_puts(out, "pid uid gpu bytes mapped type age command\n");
		return 0;
	}
	if (READ_ONCE(pin->fate) == GDR_REVOKED)
		return 0; /* the GPU driver has the pages back */
	type = gdr_map_type(pin);
	down_read(&pin->gate);
	seq_printf(out, "%d %u %s ", pin->pid, from_kuid_munged(seq_user_ns(out), pin->uid), pin->gpu);
	up_read(&pin->gate);
	seq_printf(out, "%llu %s %s %lu ", pin->size, type == GDRDRV_MAPPING_TYPE_NONE ? "no" : "yes", types[type],
		   (jiffies - pin->since) / HZ);
	gdr_show_name(out, pin->command);
	return 0;
}

static const struct seq_operations gdr_pins_operations = {
	.start = gdr_pins_start,
	.next = gdr_pins_next,
	.stop = gdr_pins_stop,
	.show = gdr_pins_show,
};

/* A container's root user lacks this capability, and must not see pins of other containers. */
static int gdr_pins_open(struct inode *inode, struct file *filp)
{
	return capable(CAP_SYS_ADMIN) ? seq_open(filp, &gdr_pins_operations) : -EPERM;
}

static const struct proc_ops gdr_pins_file = {
	.proc_open = gdr_pins_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = seq_release,
};

int gdr_proc_create(void)
{
	gdr_proc = proc_mkdir("driver/" KBUILD_MODNAME, NULL);
	if (!gdr_proc || !proc_create_single("params", 0444, gdr_proc, gdr_show_params) ||
	    !proc_create("pins", 0400, gdr_proc, &gdr_pins_file) ||
	    (gdr_dbg_enabled && !proc_create_single("nv_get_pages_refcount", 0444, gdr_proc, gdr_show_refcount)))
		return -ENOMEM;
	return 0;
}

void gdr_proc_remove(void)
{
	proc_remove(gdr_proc);
}
