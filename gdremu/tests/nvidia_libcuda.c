/*
 * A libcuda.so.1 without a GPU, for tests of the functions that the nvidia provider puts in the place of libcuda's. It
 * counts what is made and freed; there is no memory behind its addresses.
 */
#define _GNU_SOURCE

#include "nvidia_libcuda.h"

#include <dlfcn.h>
#include <string.h>

#define UNIT (2ul << 20)
#define EXPORT __attribute__((visibility("default")))

/* A function that does something and returns this. */
#define FUNCTION(name, parameters, statement, result)                                                                  \
    EXPORT CUresult name parameters                                                                                    \
    {                                                                                                                  \
        statement;                                                                                                     \
        return result;                                                                                                 \
    }

#define SUCCEEDS(name, parameters, statement) FUNCTION(name, parameters, statement, CUDA_SUCCESS)

#define VALID(condition) ((condition) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)
#define IN_CONTEXT (state.context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT)

static struct libcuda state = {.context = 1, .exportable = 1};
static CUdeviceptr next_address = 0x7f0000000000;

EXPORT struct libcuda *libcuda(void)
{
    state.next_init = dlsym(RTLD_NEXT, "cuInit");
    return &state;
}

FUNCTION(cuInit, (unsigned int flags), , VALID(flags == 0))
FUNCTION(cuCtxGetDevice, (CUdevice *device), *device = 0, IN_CONTEXT)
FUNCTION(cuCtxSynchronize, (void), state.waits += state.context, IN_CONTEXT)
SUCCEEDS(cuCtxGetCurrent, (CUcontext *context), *context = state.context ? (CUcontext)&state : NULL)
SUCCEEDS(cuCtxSetCurrent, (CUcontext context), state.context = context != NULL)
SUCCEEDS(cuGetErrorName, (CUresult error, const char **name), *name = "unknown")
SUCCEEDS(cuDeviceGet, (CUdevice *device, int ordinal), *device = ordinal)
SUCCEEDS(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device), state.retained++; *context = (CUcontext)&state)
SUCCEEDS(cuDevicePrimaryCtxRelease, (CUdevice device), state.retained--)
SUCCEEDS(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), *value = state.exportable)

/* ---- The functions that are replaced ---- */

EXPORT CUresult cuMemAlloc(CUdeviceptr *address, size_t size)
{
    state.calls_of_alloc++;
    if (address == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 512;
    return CUDA_SUCCESS;
}

FUNCTION(cuMemFree, (CUdeviceptr address), state.calls_of_alloc++, VALID(address == 512))

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    if (address < UNIT)
        return CUDA_ERROR_NOT_FOUND;
    if (base != NULL)
        *base = address / UNIT * UNIT;
    if (size != NULL)
        *size = UNIT;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                            unsigned long long flags)
{
    if (size > (1ul << 40))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (prop->allocFlags.compressionType != 0 && prop->allocFlags.gpuDirectRDMACapable)
        return CUDA_ERROR_NOT_SUPPORTED;
    state.created = *prop;
    *handle = (CUmemGenericAllocationHandle)++state.objects;
    return CUDA_SUCCESS;
}

SUCCEEDS(cuMemUnmap, (CUdeviceptr address, size_t size), state.mappings--)

/* ---- Their construction ---- */

FUNCTION(cuMemGetAllocationGranularity,
         (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
         *granularity = UNIT, prop->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE)
SUCCEEDS(cuMemRelease, (CUmemGenericAllocationHandle handle), state.objects--)
SUCCEEDS(cuMemAddressFree, (CUdeviceptr address, size_t size), state.reservations--)
SUCCEEDS(cuMemMap, (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags), state.mappings++)
FUNCTION(cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count), ,
         VALID(count == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE))

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                    unsigned long long flags)
{
    *address = next_address;
    next_address += size;
    state.reservations++;
    return CUDA_SUCCESS;
}

/* ---- Looking functions up ---- */

#undef cuGetProcAddress

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuInit", cuInit},
        {"cuGetProcAddress", cuGetProcAddress_v2},
        {"cuMemAlloc", cuMemAlloc},
        {"cuMemCreate", cuMemCreate},
        {"cuMemFree", cuMemFree},
        {"cuMemGetAddressRange", cuMemGetAddressRange},
        {"cuMemUnmap", cuMemUnmap},
        {"cuPointerSetAttribute", cuPointerSetAttribute},
    };

    *function = NULL;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0)
            *function = functions[i].function;
    }
    if (status != NULL)
        *status = *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    cuGetProcAddress_v2(name, function, version, flags, NULL);
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- Functions that need a GPU, also those that the C test kit calls ---- */

__attribute__((used)) static CUresult absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define ABSENT(symbol) __asm__(".globl " #symbol "\n.set " #symbol ", absent\n.type " #symbol ", @function")

ABSENT(cuDeviceGetPCIBusId);
ABSENT(cuMemcpyDtoH_v2);
ABSENT(cuMemcpyHtoD_v2);
ABSENT(cuMemExportToShareableHandle);
ABSENT(cuMemRetainAllocationHandle);
ABSENT(cuPointerGetAttribute);
ABSENT(cuPointerSetAttribute); /* The provider makes every allocation VMM memory, for which it fails. */
