/*
 * Hooks CUDA's and libc's functions as UCX's reloc mode does. It writes its own functions into the relocated entries of
 * every loaded object, and finds the real ones by dlsym on first use. Then allocates and frees as programs do, linked,
 * by dlsym, by cuGetProcAddress.
 */
#define _GNU_SOURCE

#include "cuda_values.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

/* Deeper than any program calls; far less than the stack takes. */
#define TOO_DEEP 100

/* Volatile: the compiler knows that mmap calls nothing back. */
static volatile int calls_of_alloc, calls_of_free, calls_of_mmap, calls_of_dlopen, depth;

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    CHECK(found != NULL);
    return found;
}

/* my_NAME, which counts its calls and calls the real function. */
#define HOOK(name, symbol, type, parameters, arguments)                                                                \
    static type my_##name parameters                                                                                   \
    {                                                                                                                  \
        static type(*next) parameters;                                                                                 \
        type result;                                                                                                   \
                                                                                                                       \
        CHECK(++depth < TOO_DEEP);                                                                                     \
        calls_of_##name++;                                                                                             \
        if (next == NULL)                                                                                              \
            *(void **)&next = real(symbol);                                                                            \
        result = next arguments;                                                                                       \
        depth--;                                                                                                       \
        return result;                                                                                                 \
    }

HOOK(alloc, "cuMemAlloc_v2", CUresult, (CUdeviceptr *address, size_t size), (address, size))
HOOK(free, "cuMemFree_v2", CUresult, (CUdeviceptr address), (address))
HOOK(mmap, "mmap", void *, (void *address, size_t size, int protection, int flags, int fd, off_t offset),
     (address, size, protection, flags, fd, offset))

static void *my_dlopen(const char *name, int flags);

static const struct {
    const char *symbol;
    void *function;
} hooks[] = {
    {"cuMemAlloc_v2", my_alloc},
    {"cuMemFree_v2", my_free},
    {"mmap", my_mmap},
    {"dlopen", my_dlopen},
};

static void *entry(const struct dl_phdr_info *object, const ElfW(Dyn) *dynamic, ElfW(Sxword) tag)
{
    for (; dynamic->d_tag != DT_NULL; dynamic++)
        if (dynamic->d_tag == tag) {
            ElfW(Addr) value = dynamic->d_un.d_ptr;
            int is_size = tag == DT_RELASZ || tag == DT_PLTRELSZ;

            return (void *)(is_size || value >= object->dlpi_addr ? value : object->dlpi_addr + value);
        }
    return NULL;
}

static void relocate(ElfW(Addr) base, const ElfW(Rela) *relocation, size_t size, const ElfW(Sym) *symbols,
                     const char *names)
{
    const ElfW(Rela) *end = relocation + size / sizeof(*relocation);
    uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (; relocation < end; relocation++) {
        const char *name = names + symbols[ELF64_R_SYM(relocation->r_info)].st_name;

        for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
            if (strcmp(name, hooks[i].symbol) == 0) {
                void **slot = (void **)(base + relocation->r_offset);
                void *page = (void *)((uintptr_t)slot & ~(page_size - 1));

                CHECK_EQUAL(mprotect(page, page_size, PROT_READ | PROT_WRITE), 0);
                *slot = hooks[i].function;
            }
    }
}

static int relocate_object(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC && strstr(object->dlpi_name, "vdso") == NULL) {
            const ElfW(Dyn) *dynamic = (void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
            const ElfW(Sym) *symbols = entry(object, dynamic, DT_SYMTAB);
            const char *names = entry(object, dynamic, DT_STRTAB);

            if (symbols != NULL && names != NULL && strstr(object->dlpi_name, "ld-linux") == NULL) {
                relocate(object->dlpi_addr, entry(object, dynamic, DT_JMPREL),
                         (size_t)entry(object, dynamic, DT_PLTRELSZ), symbols, names);
                relocate(object->dlpi_addr, entry(object, dynamic, DT_RELA),
                         (size_t)entry(object, dynamic, DT_RELASZ), symbols, names);
            }
        }
    return 0;
}

/* Objects that are loaded later are also hooked. */
static void *my_dlopen(const char *name, int flags)
{
    static void *(*next)(const char *, int);

    calls_of_dlopen++;
    if (next == NULL)
        *(void **)&next = real("dlopen");
    void *library = next(name, flags);
    dl_iterate_phdr(relocate_object, NULL);
    return library;
}

static void use(CUresult (*alloc)(CUdeviceptr *, size_t), CUresult (*release)(CUdeviceptr))
{
    CUdeviceptr small, large;

    CUDA(alloc(&small, 1000));
    CUDA(alloc(&large, 4 << 20));
    CUDA(release(small));
    CUDA(release(large));
    CHECK_EQUAL(depth, 0);
}

#undef cuGetProcAddress

static void by_name(void)
{
    CUresult (*get)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
    CUresult (*alloc[2])(CUdeviceptr *, size_t);
    CUresult (*release[2])(CUdeviceptr);

    *(void **)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    *(void **)&alloc[0] = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    *(void **)&release[0] = dlsym(RTLD_DEFAULT, "cuMemFree_v2");
    CHECK_EQUAL(get("cuMemAlloc", (void **)&alloc[1], 12000, 0, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(get("cuMemFree", (void **)&release[1], 12000, 0, NULL), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        /* An object's own function is found, whatever was written into others. */
        CHECK(alloc[i] != my_alloc && release[i] != my_free);
        use(alloc[i], release[i]);
    }
}

int main(void)
{
    gpu_start(0);
    dl_iterate_phdr(relocate_object, NULL);

    use(cuMemAlloc, cuMemFree);
    CHECK_EQUAL(calls_of_alloc, 2);
    CHECK_EQUAL(calls_of_free, 2);
    CHECK_EQUAL(calls_of_dlopen, 0); /* gdremu's own are not for hooks to see */
    by_name();

    calls_of_mmap = 0;
    void *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQUAL(calls_of_mmap, 1);
    CHECK_EQUAL(munmap(memory, 4096), 0);
    return passed("nvidia_relocate");
}
