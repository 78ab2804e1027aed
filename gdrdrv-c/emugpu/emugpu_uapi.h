/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * /dev/emugpu: memory of an emulated GPU, used by gdremu's CUDA stand-in.
 *
 * Each open file has its own GPU address space, which belongs to the process that opened it. Any other process gets
 * EACCES. Memory consists of objects of whole 64 KiB pages, which are mapped into the address space. Kernel modules
 * that use nv-p2p.h can pin the mapped pages. Addresses, sizes and offsets must be multiples of 64 KiB, else the
 * call fails with EINVAL.
 *
 * An object exists until its handle is released and no address space has it mapped. A page of it
 * that a kernel module has pinned exists at least until this pin ends.
 *
 * mmap(2) with MAP_SHARED, at the offset EMUGPU_OFFSET(), shows the CPU an object as the GPU's copy
 * engines see it.
 */
#ifndef EMUGPU_UAPI_H
#define EMUGPU_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EMUGPU_DEVICE "/dev/emugpu"
#define EMUGPU_PAGE_SIZE 0x10000

/* The UUID of the GPU, as nvidia-smi prints it. */
#define EMUGPU_UUID "GPU-656d756c-6174-6564-2047-5055200123fe"

/* The offset at which mmap maps the object with this handle. Objects are smaller than 4 GiB. */
#define EMUGPU_OFFSET(handle) ((__u64)(handle) << 32)

/* The p2p_token of the process with this PID. The other token of a process, its va_space, is the PID itself. */
#define EMUGPU_TOKEN(process) ((__u64)(process) << 16 | 1)

/* A flag of an object: clients may pin its pages. */
#define EMUGPU_RDMA 1

struct emugpu_create {
	__u64 size;
	__u32 flags;
	__u32 handle; /* out, never 0 */
};

struct emugpu_map {
	__u64 va;
	__u64 size;
	__u64 offset; /* offset in the object */
	__u32 handle;
	__u32 padding;
};

struct emugpu_range {
	__u64 va;
	__u64 size;
};

struct emugpu_status {
	__u64 bytes;
	__u64 free_bytes;
	__u64 page_tables; /* page tables that clients of nv-p2p.h hold, for all processes */
	__u64 unchecked_bytes; /* sum of all bytes allocated for pin requests before their ranges were checked */
};

struct emugpu_inject {
	__u32 nth;   /* number of the pin that fails: 1 is the next pin, 0 is none */
	__s32 error; /* the errno of that pin, a positive number */
	__u32 pin_delay;      /* microseconds before a pin returns, and also after a non-persistent pin chose pages */
	__u32 callback_delay; /* microseconds before each free callback, and in nvidia_p2p_free_page_table() */
	__u32 put_delay; /* microseconds between the call of an unpin and the search for the pin */
	__u32 nth_put;   /* number of the unpin that does nothing: 1 is the next unpin, 0 is none */
	__s32 put_error; /* the errno of that unpin, a positive number, or 0 for success */
};

/* Creates an object, zeroed, with a handle. ENOMEM: no memory is left. EINVAL: unknown flags. */
#define EMUGPU_CREATE _IOWR('e', 1, struct emugpu_create)
/* Maps part of an object. EEXIST: some of the addresses are mapped. ENOENT: no object has the handle. */
#define EMUGPU_MAP _IOW('e', 2, struct emugpu_map)
/*
 * Ends all mappings in the range. EINVAL: it does not consist of whole mappings. Non-persistent pins
 * that lose pages end, and their free callbacks run.
 */
#define EMUGPU_UNMAP _IOW('e', 3, struct emugpu_range)
/* Releases a handle. ENOENT: no object has it. */
#define EMUGPU_RELEASE _IOW('e', 4, __u32)
/*
 * Called when the program has freed memory whose addresses stay mapped. Pins end as with
 * EMUGPU_UNMAP. Then new zeroed pages replace those that persistent pins still hold. ENOMEM: there
 * are not enough pages, and nothing changes.
 */
#define EMUGPU_RENEW _IOW('e', 5, struct emugpu_range)
#define EMUGPU_STATUS _IOR('e', 6, struct emugpu_status)
/* Sets faults and delays for the pins of this process. */
#define EMUGPU_INJECT _IOW('e', 7, struct emugpu_inject)

#endif
