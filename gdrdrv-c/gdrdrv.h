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
 *   (pin.c)          pins are being made, or devices leave
 *   mmap_lock        of the process: held by the kernel around mmap and page faults
 *   gdr_file.lock    the file's pins, the next handle, the requested mapping type of a pin
 *   gdr_pin.gate     whether the pages may be mapped. Page tables of the CPU are filled under it, so that none is
 *                    once `live` is false
 *   gdr_pins         the lock of the xarray; a pin in it can be referenced
 *   (owner.c)        the counts of each process and user
 *
 * Nothing that gdr_pin_revoke() takes is held across a call of the GPU driver, nor while pages are removed from
 * mappings. Both wait for other threads in the GPU driver, which may be about to call that function. It takes the gate
 * and what is below it. Locks of pages.c and pin.c that are held across such calls are taken first, with none of these
 * held.
 *
 * User memory is also copied without a lock, because the copy may fault and take the mmap_lock.
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
#include <linux/rwsem.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "gdrdrv_uapi.h"

#ifndef CONFIG_64BIT
#error "Handles have 64 bits, and so must page offsets."
#endif

/* The kernel refuses GPL-only symbols over the proprietary GPU driver. */
#define GDR_CAN_USE_GPL __is_defined(GDR_NVIDIA_IS_OPENSOURCE)

struct gdr_owner;
struct nvidia_p2p_page_table;
struct pci_dev;

/* An open /dev/gdrdrv. */
struct gdr_file {
	struct gdr_owner *owner;      /* the process that opened it */
	struct address_space mapping; /* its mappings, by handle; separate for each open */

	struct mutex lock;            /* protects the fields below */
	struct xarray pins;           /* by handle */
	u64 next_handle;
};

/* Who returns the pages of an ordinary pin to the GPU driver. */
enum gdr_fate {
	GDR_PINNED,                   /* not decided yet */
	GDR_REVOKED,                  /* gdr_pin_revoke(), which has started */
	GDR_RETURNED,                 /* gdr_pages_put(): the GPU driver has answered 0, which need not be true */
	GDR_ORPHANED,                 /* gdr_pin_revoke(), later: the GPU driver still has a pin that was given up */
};

/* A pinned range of GPU memory. gdr_pins, until the GPU driver has its pages back, and each vma hold references. */
struct gdr_pin {
	struct kref refs;
	u64 id;                       /* in gdr_pins. No other pin ever has it */
	struct gdr_owner *owner;      /* the process, until the pin is in gdr_pins no more */
	struct gdr_owner *user;       /* the same */
	pid_t pid;                    /* of the owner, in the initial namespace */
	kuid_t uid;                   /* of the caller */
	char command[TASK_COMM_LEN];
	struct mm_struct *mm;         /* of the owner, until it calls exec; NULL over the proprietary GPU driver */
	char gpu[44];                 /* under gate; its UUID as nvidia-smi prints it, "-" until it is known */
	unsigned long since;          /* jiffies */
	struct gdr_file *file;        /* until the pin has ended */
	u64 handle;
	u64 va;                       /* bytes, both multiples of a GPU page */
	u64 size;
	u64 offset;                   /* bytes from va to the requested address */
	bool persistent;              /* stays when its memory is freed, so never revoked */
	bool force_pcie;
	bool cacheable;               /* the CPU may map it cached */
	u64 physical;                 /* of the first page, when it was pinned, 0 until then */
	u64 pin_ns;                   /* how long the GPU driver took */

	u32 requested_type;           /* under file->lock */
	u32 mapping_type;             /* under gate; what the vmas have */
	atomic_t vmas;                /* number of vmas that map any part. From 0 to 1 under file->lock and gate */

	struct rw_semaphore gate;
	bool live;                    /* table is valid, and may be mapped (under gate) */
	bool wc_reserved;             /* under gate */
	struct nvidia_p2p_page_table *table;

	enum gdr_fate fate;           /* changed by cmpxchg() */
	struct completion revocation; /* completed when gdr_pin_revoke() of a pin that is not orphaned ends */
};

/* main.c */

#define GDR_IMPLEMENTATION "gdrapi gdrdrv-c 2.6.0"

extern bool gdr_use_persistent_mapping;
extern int gdr_dbg_enabled, gdr_info_enabled;
extern unsigned int gdr_max_pins, gdr_max_pinned_mib, gdr_max_pins_per_user, gdr_max_pinned_mib_per_user;

/* Not rate-limited, because a trace must be complete, and is off by default. */
#define gdr_dbg(format, ...) (gdr_dbg_enabled ? (void)pr_info(format "\n", ##__VA_ARGS__) : (void)0)
#define gdr_info(format, ...) \
	do { if (gdr_info_enabled) pr_info_ratelimited(format "\n", ##__VA_ARGS__); } while (0)
#define gdr_err(format, ...) pr_err_ratelimited(format "\n", ##__VA_ARGS__)

/* commands.c */

long gdr_ioctl(struct file *filp, unsigned int number, unsigned long arg);

/* owner.c */

struct gdr_owner *gdr_owner_get(bool user);
bool gdr_owner_is_caller(const struct gdr_owner *owner);
int gdr_owner_charge(struct gdr_owner *process, struct gdr_owner *user, u64 bytes);
void gdr_owner_drop(struct gdr_owner *owner, u64 pins, u64 bytes);
extern atomic64_t gdr_owner_refused;

/* pin.c */

int gdr_pin_create(struct gdr_file *file, u64 addr, u64 size, bool force_pcie, u64 *handle);
int gdr_pin_remove(struct gdr_file *file, u64 handle);
void gdr_pin_remove_all(struct gdr_file *file);
int gdr_pin_init(void);
void gdr_pin_exit(void);
extern atomic64_t gdr_pin_last_id;
struct gdr_pin *gdr_pin_by_id(unsigned long first, unsigned long last);

static inline void gdr_pin_free(struct kref *refs)
{
	struct gdr_pin *pin = container_of(refs, struct gdr_pin, refs);

	if (GDR_CAN_USE_GPL && pin->mm)
		mmdrop(pin->mm);
	kfree(pin);
}

static inline void gdr_pin_put(struct gdr_pin *pin)
{
	kref_put(&pin->refs, gdr_pin_free);
}

/* The pin with exactly this handle, or NULL. Valid while file->lock is held. */
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
bool gdr_pages_are_of(struct gdr_pin *pin, struct pci_dev *device);
u64 gdr_pages_address(const struct gdr_pin *pin, u64 offset);
bool gdr_pages_put(struct gdr_pin *pin);
void gdr_pages_free(struct gdr_pin *pin);
int gdr_pages_tables(void);

/* map.c */

void gdr_map_init(void);
/* Below Linux 6.12, get_user_pages_fast() takes huge pages for ones of RAM. */
#if defined(GDR_NVIDIA_IS_OPENSOURCE) && defined(CONFIG_ARCH_SUPPORTS_PMD_PFNMAP) && \
	defined(CONFIG_TRANSPARENT_HUGEPAGE)
#define GDR_HAVE_HUGE_PAGES
#define GDR_HUGE_RUN (2ULL * PMD_SIZE) /* has a huge page, wherever it starts */
unsigned long gdr_map_address(struct file *filp, unsigned long addr, unsigned long len, unsigned long pgoff,
			      unsigned long flags);
#else
#define GDR_HUGE_RUN U64_MAX
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
