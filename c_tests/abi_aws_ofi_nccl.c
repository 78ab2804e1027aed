/*
 * aws-ofi-nccl loads libgdrapi.so privately, asks for the driver version first, and tries each registration over PCIe
 * and then without. It treats handle 0 as none, and updates signals from a worker thread.
 */

#include "loaded.h"

struct registration {
    const struct loaded *gdr;
    gdr_mh_t handle;
    void *mapping;
};

static struct registration register_buffer(const struct loaded *gdr, gdr_t g, CUdeviceptr address, int has_v2)
{
    struct registration registration = {gdr, {0}, NULL};
    int result = -1;

    if (has_v2) {
        result = gdr->pin_buffer_v2(g, (unsigned long)address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE,
                                    &registration.handle);
        if (result != 0) {
            CHECK(result == EINVAL || result == EOPNOTSUPP);
            CHECK_EQUAL(registration.handle.h, 0);
            result = gdr->pin_buffer_v2(g, (unsigned long)address, GPU_PAGE_SIZE, 0, &registration.handle);
        }
    } else {
        result = gdr->pin_buffer(g, (unsigned long)address, GPU_PAGE_SIZE, 0, 0, &registration.handle);
    }
    CHECK_EQUAL(result, 0);
    CHECK(registration.handle.h != 0);
    CHECK_OK(gdr->map(g, registration.handle, &registration.mapping, GPU_PAGE_SIZE));
    return registration;
}

/* Increments a signal, as the progress thread does when a message arrives. */
static void *worker(void *argument)
{
    const struct registration *registration = argument;
    uint64_t signal;

    for (int i = 0; i < 100; i++) {
        CHECK_OK(registration->gdr->copy_from_mapping(registration->handle, &signal, registration->mapping, 8));
        signal++;
        CHECK_OK(registration->gdr->copy_to_mapping(registration->handle, registration->mapping, &signal, 8));
    }
    return NULL;
}

int main(void)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);
    int library_major, library_minor, driver_major = -1, driver_minor = -1;
    uint64_t signal = 0;
    gdr_t g = gdr.open();

    CHECK(g != NULL);
    CHECK_OK(gdr.driver_get_version(g, &driver_major, &driver_minor));
    gdr.runtime_get_version(&library_major, &library_minor);
    CHECK(library_major == 2 && driver_major == 2);
    int has_v2 = library_minor >= 5 && driver_minor >= 5;

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    gpu_write(buffer.address, &signal, sizeof(signal));
    struct registration registration = register_buffer(&gdr, g, buffer.address, has_v2);
    in_thread(worker, &registration);
    gpu_read(&signal, buffer.address, sizeof(signal));
    CHECK_EQUAL(signal, 100);

    CHECK_OK(gdr.unmap(g, registration.handle, registration.mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr.unpin_buffer(g, registration.handle));
    CHECK_OK(gdr.close(g));
    gpu_free(&buffer);
    CHECK(dlclose(gdr.library) == 0);
    return passed("abi_aws_ofi_nccl");
}
