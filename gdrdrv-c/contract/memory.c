/* GPU memory from CUDA's driver API, or from gdrdrv-c/emugpu where there is no CUDA. */
#include "contract.h"

#include "cuda_driver.h"

/*
 * device.h has the functions of /dev/emugpu. It also has functions `pinned` and `page_tables`, which
 * get other names here, because contract.h has different functions with these names.
 */
#define pinned emugpu_pinned
#define page_tables emugpu_page_tables
#include "../tests/device.h"

#include <dlfcn.h>

/* Each case loads CUDA in its own process, because CUDA does not work in forked children of a process that used it. */
static struct {
    bool loaded;
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*fill)(CUdeviceptr, unsigned char, size_t);
    CUresult (*synchronize)(void);
    CUresult (*read)(void *, CUdeviceptr, size_t);
    CUresult (*attribute)(void *, CUpointer_attribute, CUdeviceptr);
} cuda;

static void *found(void *library, const char *name)
{
    void *function = dlsym(library, name);

    CHECK(function != NULL);
    return function;
}

/* Loads CUDA, unless it is loaded. Returns false if CUDA is not installed. */
static bool cuda_loads(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned int), (*retain)(CUcontext *, CUdevice), (*set_current)(CUcontext);
    CUcontext context;

    if (cuda.loaded)
        return true;
    if (library == NULL)
        return false;
    *(void **)&init = found(library, "cuInit");
    *(void **)&retain = found(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = found(library, "cuCtxSetCurrent");
    *(void **)&cuda.alloc = found(library, "cuMemAlloc_v2");
    *(void **)&cuda.free = found(library, "cuMemFree_v2");
    *(void **)&cuda.fill = found(library, "cuMemsetD8_v2");
    *(void **)&cuda.synchronize = found(library, "cuCtxSynchronize");
    *(void **)&cuda.read = found(library, "cuMemcpyDtoH_v2");
    *(void **)&cuda.attribute = found(library, "cuPointerGetAttribute");
    CHECK_EQUAL(init(0), CUDA_SUCCESS);
    CHECK_EQUAL(retain(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(set_current(context), CUDA_SUCCESS);
    cuda.loaded = true;
    return true;
}

struct memory memory_alloc(uint64_t size)
{
    struct memory memory = {.size = (size + UNIT - 1) / UNIT * UNIT};
    CUdeviceptr address;

    if (cuda_loads()) {
        CHECK_EQUAL(cuda.alloc(&address, memory.size), CUDA_SUCCESS);
        memory.va = address;
    } else {
        struct gpu_memory *emugpu = malloc(sizeof(*emugpu));

        CHECK(emugpu != NULL);
        *emugpu = gpu_alloc(memory.size);
        memory.va = emugpu->va;
        memory.emugpu = emugpu;
    }
    CHECK_EQUAL(memory.va % GPU_PAGE, 0);
    return memory;
}

uint64_t memory_two_allocations(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                      .allocFlags = {.gpuDirectRDMACapable = 1}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUmemGenericAllocationHandle allocation;
    CUdeviceptr place = 0x300000000000;

    if (!cuda_loads()) {
        for (uint64_t offset = 0; offset < 2 * UNIT; offset += UNIT) {
            struct emugpu_create object = {.size = UNIT, .flags = EMUGPU_RDMA};
            CHECK(ioctl(gpu(), EMUGPU_CREATE, &object) == 0);
            struct emugpu_map mapping = {.va = place + offset, .size = UNIT, .handle = object.handle};
            CHECK(ioctl(gpu(), EMUGPU_MAP, &mapping) == 0);
        }
        return place;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&reserve = dlsym(library, "cuMemAddressReserve");
    *(void **)&create = dlsym(library, "cuMemCreate");
    *(void **)&map = dlsym(library, "cuMemMap");
    *(void **)&set_access = dlsym(library, "cuMemSetAccess");
    if (!reserve || !create || !map || !set_access || reserve(&place, 2 * UNIT, 0, 0, 0) != CUDA_SUCCESS)
        return 0;
    for (uint64_t offset = 0; offset < 2 * UNIT; offset += UNIT) {
        if (create(&allocation, UNIT, &properties, 0) != CUDA_SUCCESS)
            return 0;
        CHECK_EQUAL(map(place + offset, UNIT, 0, allocation, 0), CUDA_SUCCESS);
    }
    CHECK_EQUAL(set_access(place, 2 * UNIT, &access, 1), CUDA_SUCCESS);
    return place;
}

void memory_free(struct memory memory)
{
    if (memory.emugpu == NULL) {
        CHECK_EQUAL(cuda.free(memory.va), CUDA_SUCCESS);
        return;
    }
    gpu_free(*(struct gpu_memory *)memory.emugpu);
    free(memory.emugpu);
}

void memory_fill(struct memory memory, unsigned char value)
{
    struct gpu_memory *emugpu = memory.emugpu;

    if (emugpu == NULL) {
        CHECK_EQUAL(cuda.fill(memory.va, value, memory.size), CUDA_SUCCESS);
        CHECK_EQUAL(cuda.synchronize(), CUDA_SUCCESS); /* on a GPU, the call returns before the memory is filled */
    } else {
        memset(emugpu->view, value, memory.size);
    }
}

unsigned char memory_byte(struct memory memory, uint64_t offset)
{
    struct gpu_memory *emugpu = memory.emugpu;
    unsigned char byte;

    if (emugpu != NULL)
        return emugpu->view[offset];
    CHECK_EQUAL(cuda.read(&byte, memory.va + offset, 1), CUDA_SUCCESS);
    return byte;
}

bool memory_tokens(struct memory memory, struct gdrdrv_pin_buffer *argument)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;

    if (memory.emugpu != NULL || cuda.attribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, memory.va) != CUDA_SUCCESS)
        return false;
    argument->p2p_token = tokens.p2pToken;
    argument->va_space = tokens.vaSpaceToken;
    return true;
}
