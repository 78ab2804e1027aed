/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * /dev/emugpu: memory of an emulated GPU, used by gdremu's CUDA stand-in.
 *
 * Each open file has its own GPU address space, which belongs to the process that opened it. Any other process gets
 * EACCES. Memory consists of objects of whole 64 KiB pages, which are mapped into the address space. Kernel modules
 * that use nv-p2p.h can pin the mapped pages. Addresses, sizes and offsets must be multiples of 64 KiB, else the
 * call fails with EINVAL.
 *
 * An object exists until its handle is released and it is mapped nowhere; a page, until it is also pinned nowhere.
 *
 * mmap(2) shows the CPU an object as the GPU's copy engines see it, with MAP_SHARED, at the offset EMUGPU_OFFSET().
 */
#ifndef EMUGPU_UAPI_H
#define EMUGPU_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EMUGPU_DEVICE "/dev/emugpu"
#define EMUGPU_PAGE_SIZE 0x10000

/* The UUID of the GPU, as nvidia-smi prints it. */
#define EMUGPU_UUID "GPU-656d756c-6174-6564-2047-5055200123fe"

/* Offset of object `handle` in the file; objects are smaller than 4 GiB. */
#define EMUGPU_OFFSET(handle) ((__u64)(handle) << 32)

/* The p2p_token of a process. Its va_space is the process's number. */
#define EMUGPU_TOKEN(process) ((__u64)(process) << 16 | 1)

/* The object's pages may be pinned. */
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
	__u64 page_tables; /* page tables that clients of nv-p2p.h hold, in all processes */
	__u64 unchecked_bytes; /* allocated for pins before their ranges were checked, as total of all processes */
};

struct emugpu_inject {
	__u32 nth;   /* the pin that fails, counted from now on, from 1; 0 for none */
	__s32 error; /* its errno, a positive number */
	__u32 pin_delay;      /* microseconds between the creation of a pin and its return to the client */
	__u32 callback_delay; /* microseconds between the loss of memory and the free callback, and again in that */
	__u32 put_delay; /* microseconds between the call of an unpin and the search for the pin */
	__u32 nth_put;   /* the unpin that does nothing, counted from now on, from 1; 0 for none */
	__s32 put_error; /* its errno, a positive number, or 0 if it reports success */
};

/* A new object, zeroed, with a handle. ENOMEM, or EINVAL for unknown flags. */
#define EMUGPU_CREATE _IOWR('e', 1, struct emugpu_create)
/* Maps part of an object. EEXIST: something is mapped there. ENOENT: no such handle. */
#define EMUGPU_MAP _IOW('e', 2, struct emugpu_map)
/* Ends the mappings that fill the range. Ordinary pins that lose memory by this get their free callback. */
#define EMUGPU_UNMAP _IOW('e', 3, struct emugpu_range)
/* Releases a handle. ENOENT: no such handle. */
#define EMUGPU_RELEASE _IOW('e', 4, __u32)
/*
 * The program has freed these pages, whose addresses stay mapped. Ordinary pins end as with EMUGPU_UNMAP; zeroed new
 * pages replace those that are still pinned. ENOMEM: there are not enough, and nothing has changed.
 */
#define EMUGPU_RENEW _IOW('e', 5, struct emugpu_range)
#define EMUGPU_STATUS _IOR('e', 6, struct emugpu_status)
/* Faults and delays of this process's pins. */
#define EMUGPU_INJECT _IOW('e', 7, struct emugpu_inject)

#endif
