/*
 * This file is linked into fabtests with -Wl,--wrap=ofi_mr_regattr. libfabric's shm provider copies through a mapping
 * of GPU memory only if the provider of a network has registered the memory with gdrcopy and passes gdrcopy's handle to
 * shm (as prov/efa/src/efa_mr.c does). There is no such network here. So this file registers all GPU memory as that
 * provider does.
 */
#include <config.h>

#include <ofi_hmem.h>
#include <ofi_mr.h>

int __real_ofi_mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **registered);

static struct fi_ops ops;
static int (*close_mr)(struct fid *fid);

static int unregister(struct fid *fid)
{
    struct ofi_mr *mr = container_of(fid, struct ofi_mr, mr_fid.fid);
    uint64_t handle = (uint64_t)mr->hmem_data;
    int error = close_mr(fid);

    return error ? error : ofi_hmem_dev_unregister(FI_HMEM_CUDA, handle);
}

int __wrap_ofi_mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **registered)
{
    struct fi_mr_attr with_handle = *attr;
    uint64_t handle;
    int error;

    if (attr->iface != FI_HMEM_CUDA)
        return __real_ofi_mr_regattr(fid, attr, flags, registered);
    error = ofi_hmem_dev_register(FI_HMEM_CUDA, attr->mr_iov->iov_base, attr->mr_iov->iov_len, &handle);
    if (error)
        return error;
    with_handle.hmem_data = (void *)handle;
    error = __real_ofi_mr_regattr(fid, &with_handle, flags | OFI_HMEM_DATA_DEV_REG_HANDLE, registered);
    if (error) {
        ofi_hmem_dev_unregister(FI_HMEM_CUDA, handle);
        return error;
    }
    ops = *(*registered)->fid.ops;
    close_mr = ops.close;
    ops.close = unregister;
    (*registered)->fid.ops = &ops;
    return 0;
}
