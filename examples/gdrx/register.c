/* Registers a dma-buf of GPU memory with an RDMA device, and writes the same memory by the CPU. Without the headers of
 * rdma-core or without a device, it prints the call that would register the memory. */
#include "example.h"

#include <unistd.h>

#ifdef __has_include
#if __has_include(<infiniband/verbs.h>)
#include <dlfcn.h>
#include <infiniband/verbs.h>
#define HAVE_VERBS
#endif
#endif

#define SIZE (4 * (size_t)GPU_PAGE_SIZE)

#ifdef HAVE_VERBS
/* Registers the memory with the first RDMA device. Returns 0 if there is no device. */
static int registered(uint64_t offset, uint64_t address, int fd)
{
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
    struct ibv_device **(*list)(int *) = verbs ? (struct ibv_device **(*)(int *))dlsym(verbs, "ibv_get_device_list") : NULL;
    struct ibv_context *(*open)(struct ibv_device *) = NULL;
    struct ibv_pd *(*domain_of)(struct ibv_context *) = NULL;
    struct ibv_mr *(*reg)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = NULL;
    struct ibv_device **devices = list ? list(NULL) : NULL;
    struct ibv_context *context;
    struct ibv_mr *region;

    if (devices == NULL || devices[0] == NULL)
        return 0;
    *(void **)&open = dlsym(verbs, "ibv_open_device");
    *(void **)&domain_of = dlsym(verbs, "ibv_alloc_pd");
    *(void **)&reg = dlsym(verbs, "ibv_reg_dmabuf_mr"); /* rdma-core 34 and later */
    must("libibverbs has no ibv_reg_dmabuf_mr", open == NULL || domain_of == NULL || reg == NULL);
    context = open(devices[0]);
    must("ibv_open_device", context == NULL);
    region = reg(domain_of(context), offset, SIZE, address, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must("ibv_reg_dmabuf_mr", region == NULL);
    printf("registered %zu bytes at %#llx with key %u\n", SIZE, (unsigned long long)address, region->rkey);
    return 1;
}
#else
static int registered(uint64_t offset, uint64_t address, int fd)
{
    (void)offset, (void)address, (void)fd;
    return 0;
}
#endif

int main(void)
{
    struct memory memory = map_memory(SIZE);
    struct gdrx_copy header = {64, "header", 6};
    char seen[6];
    uint64_t offset;
    int fd;

    MUST(gdrx_dmabuf(memory.address, SIZE, GDR_PIN_FLAG_DEFAULT, &fd, &offset));
    if (!registered(offset, memory.address, fd))
        printf("ibv_reg_dmabuf_mr(domain, %llu, %zu, %#llx, fd, access)\n", (unsigned long long)offset, SIZE,
               (unsigned long long)memory.address);
    /* Writes bytes by the CPU. The device can then send them from GPU memory, without another copy. */
    MUST(gdrx_write_many(&memory.map, &header, 1));
    MUST(gdrx_flush(&memory.map));
    MUST(cuMemcpyDtoH(seen, memory.address + 64, sizeof(seen)));
    must("the header is not in GPU memory", memcmp(seen, "header", sizeof(seen)));
    close(fd); /* A registration keeps the dma-buf open. */
    unmap_memory(&memory);
    return 0;
}
