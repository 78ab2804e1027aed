/* The commands of /dev/gdrdrv, one function each, which returns 0 or an errno. */
#ifndef DRIVER_H
#define DRIVER_H

#include "check.h"
#include "fault.h"

#include "../../gdrdrv-c/gdrdrv_uapi.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define GPU_PAGE ((uint64_t)GDRDRV_GPU_PAGE_SIZE)

int driver_open(void);
int command(int fd, unsigned long number, void *argument);
int pin(int fd, uint64_t addr, uint64_t size, uint64_t *handle);
int unpin(int fd, uint64_t handle);
int info(int fd, uint64_t handle, struct gdrdrv_get_info_v2 *info);
int callback_flag(int fd, uint64_t handle, uint32_t *flag);
uint32_t flag_of(int fd, uint64_t handle);
int request_type(int fd, uint64_t handle, uint32_t type);
int map(int fd, uint64_t handle, size_t size, unsigned char **va);
unsigned char *mapped(int fd, uint64_t handle, size_t size);

/* Returns whether pins outlive a free of their memory. Releases before 2.5 do not report it. */
int persistent(int fd);

#endif
