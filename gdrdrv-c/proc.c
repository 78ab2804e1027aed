// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* /proc/driver/gdrdrv: how the module was built and loaded, and the number of its pins. */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "gdrdrv.h"

/* Kbuild defines it by the sources of the GPU driver. */
#ifdef GDR_NVIDIA_IS_OPENSOURCE
#define GDR_FLAVOR "opensource"
#else
#define GDR_FLAVOR "proprietary"
#endif

static struct proc_dir_entry *gdr_proc;

static int gdr_show_params(struct seq_file *out, void *unused)
{
	gdr_pin_settle();
	seq_printf(out, "Version: %d.%d\n", GDRDRV_MAJOR_VERSION, GDRDRV_MINOR_VERSION);
	seq_printf(out, "Built for NVIDIA driver flavor: %s\n", GDR_FLAVOR);
	seq_printf(out, "Use persistent mapping: %s\n", gdr_pages_can_persist() ? "yes" : "no");
	seq_printf(out, "dbg_enabled: %d\n", gdr_dbg_enabled);
	seq_printf(out, "info_enabled: %d\n", gdr_info_enabled);
	seq_puts(out, "Implementation: " GDR_IMPLEMENTATION "\n");
	return 0;
}

static int gdr_show_refcount(struct seq_file *out, void *unused)
{
	gdr_pin_settle();
	seq_printf(out, "%d\n", gdr_pages_tables());
	return 0;
}

int gdr_proc_create(void)
{
	gdr_proc = proc_mkdir("driver/" KBUILD_MODNAME, NULL);
	if (!gdr_proc)
		return -ENOMEM;
	if (!proc_create_single("params", 0444, gdr_proc, gdr_show_params))
		goto remove;
	if (gdr_dbg_enabled && !proc_create_single("nv_get_pages_refcount", 0444, gdr_proc, gdr_show_refcount))
		goto remove;
	return 0;

remove:
	gdr_proc_remove();
	return -ENOMEM;
}

void gdr_proc_remove(void)
{
	proc_remove(gdr_proc);
}
