/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Declarations shared by the files of gdrdrv. Calls go in the direction of the arrows:
 *
 *   main.c  open, close → commands.c  ioctl → pin.c  pins and their handles → map.c    mmap, page faults
 *                                                                           → pages.c  the GPU driver
 *                                                                           → owner.c  processes, users
 *
 * Locks, from the outermost to the innermost:
 *
 *   gdr_owner.tables of a process, and gdr_owner.large of a user: held during calls to the GPU driver,
 *                    when no lock below is held
 *   mmap_lock        of the process: held by the kernel during mmap and page faults
 *   gdr_file.lock    protects the file's pins, the next handle, the requested mapping type of a pin
 *   gdr_pin.gate     protects the GPU driver's page table, and `live`, which says whether the pages may
 *                    be mapped. Page tables of the CPU are filled with the gate held, so none is filled
 *                    once `live` is false
 *   gdr_pins         the xarray's lock. While it is held, pins in the xarray keep a reference
 *   (owner.c)        a lock that protects the counts of each process and user
 *
 * A call to the GPU driver hangs while its GPU hangs. So no lock is held during such a call if the
 * lock could block another user, a pin of another process, a close of a file without pins, or the
 * departure of a device, which is when its driver is unbound. (`large` blocks only large requests of
 * the same user.) gdr_pin_revoke() and the departure of a device take the gate and the locks below
 * it. Neither waits for an mmap_lock, which a page fault in another file may hold for ever.
 *
 * No lock is held while user memory is copied, because the copy may fault and take the mmap_lock.
 */
#ifndef GDRDRV_H
#define GDRDRV_H

#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/semaphore.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/xarray.h>

#include "gdrdrv_uapi.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 10, 0)
#error "gdrdrv requires Linux 5.10 or later. NVIDIA's gdrdrv supports older kernels."
#endif
#ifndef CONFIG_64BIT
#error "Handles have 64 bits, and so must page offsets."
#endif

/* The kernel refuses GPL-only symbols to a module that uses the proprietary GPU driver. */
#define GDR_CAN_USE_GPL __is_defined(GDR_NVIDIA_IS_OPENSOURCE)

struct nvidia_p2p_page_table;
struct pci_dev;

/* A user, or a process that has opened the device, with the counts of all its pins. */
struct gdr_owner {
	struct hlist_node node;
	pid_t pid;                    /* the number of the process, or 0 for a user */
	u64 start;                    /* when the process started, because numbers are reused */
	kuid_t uid;                   /* the user, or GLOBAL_ROOT_UID for a process */
	u64 refs;                     /* references from files and pins, under owner.c's lock */
	u64 pins;                     /* number of pins, under owner.c's lock */
	u64 bytes;                    /* bytes of these pins, under owner.c's lock */
	/* Held for reading while the process makes a non-persistent pin, and for writing while it unpins one. */
	struct rw_semaphore tables;
	struct semaphore large;       /* counts how many more large pins the user can begin without waiting */
};

/* An open /dev/gdrdrv. */
struct gdr_file {
	refcount_t refs;              /* one for the open file, and one for each pin, which may outlive it */
	struct gdr_owner *owner;      /* the process that opened the device */
	struct address_space mapping; /* the mappings of this open file, by handle */

	struct mutex lock;            /* protects the fields below */
	struct xarray pins;           /* by handle */
	u64 next_handle;
};

static inline void gdr_file_put(struct gdr_file *file)
{
	if (refcount_dec_and_test(&file->refs))
		kfree(file);
}

/* The fate of a pin that is not persistent: which function returns its pages to the GPU driver. */
enum gdr_fate {
	GDR_PINNED,                   /* not decided yet */
	GDR_REVOKED,                  /* gdr_pin_revoke() has started to return the pages */
	GDR_RETURNED,                 /* gdr_pages_put() has returned the pages; the GPU driver may have ignored that */
	GDR_ORPHANED,                 /* gdr_pin_revoke() will return the pages; no file has the pin any more */
};

/*
 * A pinned range of GPU memory. gdr_pins has a reference until the pages are returned, and each vma
 * has one.
 */
struct gdr_pin {
	/* Set before other threads can find the pin: */
	struct kref refs;
	u64 id;                       /* the key in gdr_pins. No other pin ever has it */
	struct gdr_file *file;
	struct gdr_owner *owner;      /* the process that opened the device, valid while the pin is in gdr_pins */
	struct gdr_owner *user;       /* the user that requested the pin, valid while the pin is in gdr_pins */
	pid_t pid;                    /* the number of the process in the initial PID namespace */
	kuid_t uid;                   /* the number of that user */
	char command[TASK_COMM_LEN];
	unsigned long since;          /* when the pin was created, in jiffies */
	u64 va;                       /* the first address, a multiple of the GPU page size */
	u64 size;                     /* bytes, a multiple of the GPU page size */
	u64 offset;                   /* bytes from va to the requested address */
	bool persistent;              /* the pin outlives a free of its memory, so it is never revoked */
	bool force_pcie;
	int departures;               /* count of unbound devices (gdr_departures) before the call of the GPU driver */

	/* Set before file->pins has the pin: */
	u64 handle;
	bool cacheable;               /* the CPU may map it cached */
	u64 pin_ns;                   /* how many nanoseconds the GPU driver took to pin */

	/* Protected by file->lock: */
	u32 requested_type;

	/* The lock `gate`, and what it protects: */
	struct rw_semaphore gate;
	bool live;                    /* gdr_map_end() clears it. After that, the table may be freed */
	struct nvidia_p2p_page_table *table;
	u64 physical;                 /* address of the first page, 0 before gdr_pages_check() */
	char gpu[44];                 /* the GPU's UUID as nvidia-smi prints it, else "-" */
	u32 mapping_type;             /* the type of all vmas */
	bool wc_reserved;             /* the physical range is reserved as write-combining */

	/* Accessed without a lock: */
	atomic_t vmas;                /* number of vmas; changes from 0 only with file->lock and gate held */
	enum gdr_fate fate;           /* changed by cmpxchg() */
	struct completion revocation; /* done when gdr_pin_revoke() ends, unless the pin is orphaned */
};

/* main.c */

#define GDR_IMPLEMENTATION "gdrapi gdrdrv-c 2.6.0"

extern bool gdr_use_persistent_mapping;
extern int gdr_dbg_enabled, gdr_info_enabled;
extern unsigned int gdr_max_pins, gdr_max_pinned_mib, gdr_max_pins_per_user, gdr_max_pinned_mib_per_user;

/* gdr_dbg() has no rate limit, because a trace must be complete. It is off by default. */
#define gdr_dbg(format, ...) (gdr_dbg_enabled ? (void)pr_info(format "\n", ##__VA_ARGS__) : (void)0)
#define gdr_info(format, ...) \
	do { if (gdr_info_enabled) pr_info_ratelimited(format "\n", ##__VA_ARGS__); } while (0)
#define gdr_err(format, ...) pr_err_ratelimited(format "\n", ##__VA_ARGS__)

/* commands.c */

long gdr_ioctl(struct file *filp, unsigned int number, unsigned long arg);

/* owner.c */

struct gdr_owner *gdr_owner_get_process(void);
struct gdr_owner *gdr_owner_get_user(void);
bool gdr_owner_is_caller(const struct gdr_owner *owner);
int gdr_owner_charge(struct gdr_owner *process, struct gdr_owner *user, u64 bytes);
void gdr_owner_uncharge(struct gdr_owner *process, struct gdr_owner *user, u64 bytes);
void gdr_owner_put(struct gdr_owner *owner);
extern atomic64_t gdr_owner_refused;

/* pin.c */

int gdr_pin_create(struct gdr_file *file, u64 addr, u64 size, bool force_pcie, u64 *handle);
int gdr_pin_remove(struct gdr_file *file, u64 handle);
void gdr_pin_remove_all(struct gdr_file *file);
int gdr_pin_init(void);
void gdr_pin_exit(void);
extern atomic64_t gdr_pin_last_id;
struct gdr_pin *gdr_pin_by_id(unsigned long first, unsigned long last);
void gdr_pin_put(struct gdr_pin *pin);

/* Returns the pin with this handle, or NULL. The pin is valid while file->lock is held. */
static inline struct gdr_pin *gdr_pin_find(struct gdr_file *file, u64 handle)
{
	lockdep_assert_held(&file->lock);
	return xa_load(&file->pins, handle);
}

/* pages.c */

bool gdr_pages_can_persist(void);
bool gdr_pages_can_force_pcie(void);
bool gdr_pages_can_exist(u64 size);
int gdr_pages_get(struct gdr_pin *pin, void (*revoke)(void *id));
int gdr_pages_check(struct gdr_pin *pin);
bool gdr_pages_depart(struct pci_dev *device);
bool gdr_pages_are_of(struct gdr_pin *pin, struct pci_dev *device);
u64 gdr_pages_address(const struct gdr_pin *pin, u64 offset);
bool gdr_pages_put(struct gdr_pin *pin);
void gdr_pages_free(struct gdr_pin *pin);
int gdr_pages_tables(void);

/* map.c */

void gdr_map_init(void);
/*
 * Huge pages need Linux 6.12, which has ARCH_SUPPORTS_PMD_PFNMAP. In older kernels,
 * get_user_pages_fast() mistakes huge pages of a device for those of RAM. Huge pages also need the
 * open GPU driver, because the function that maps them is GPL-only.
 */
#if defined(GDR_NVIDIA_IS_OPENSOURCE) && defined(CONFIG_ARCH_SUPPORTS_PMD_PFNMAP) && \
	defined(CONFIG_TRANSPARENT_HUGEPAGE)
#define GDR_HAVE_HUGE_PAGES
unsigned long gdr_map_address(struct file *filp, unsigned long addr, unsigned long len, unsigned long pgoff,
			      unsigned long flags);
#else
#define gdr_map_address NULL
#endif
int gdr_mmap(struct file *filp, struct vm_area_struct *vma);
void gdr_map_end(struct gdr_pin *pin);
bool gdr_map_can_have(const struct gdr_pin *pin, u32 type);
u32 gdr_map_type(struct gdr_pin *pin);

/* proc.c */

int gdr_proc_create(void);
void gdr_proc_remove(void);

#endif
