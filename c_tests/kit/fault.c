#include "fault.h"

__thread sigjmp_buf fault_return;
static __thread volatile sig_atomic_t is_expected;

static void on_fault(int number)
{
    if (is_expected)
        siglongjmp(fault_return, number);
    signal(number, SIG_DFL);
}

static struct fault_handlers install(void)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    struct fault_handlers old;

    CHECK(sigaction(SIGSEGV, &action, &old.segv) == 0);
    CHECK(sigaction(SIGBUS, &action, &old.bus) == 0);
    return old;
}

void handle_faults(void)
{
    install();
}

struct fault_handlers catch_faults(void)
{
    struct fault_handlers old = install();

    is_expected = 1;
    return old;
}

void release_faults(const struct fault_handlers *old)
{
    is_expected = 0;
    sigaction(SIGSEGV, &old->segv, NULL);
    sigaction(SIGBUS, &old->bus, NULL);
}

__attribute__((noinline, no_sanitize("address"))) int touch(const volatile unsigned char *address, unsigned char *value)
{
    int signal = sigsetjmp(fault_return, 0);

    is_expected = 1;
    if (signal == 0)
        *value = *address;
    is_expected = 0;
    return signal;
}

__attribute__((noinline, no_sanitize("address"))) int fault_at(const volatile void *address)
{
    struct fault_handlers old = catch_faults();
    int signal = sigsetjmp(fault_return, 1);

    if (signal == 0)
        (void)*(const volatile unsigned char *)address;
    release_faults(&old);
    return signal;
}

void check_pages(const char *file, int line, const char *function, const unsigned char *va, size_t size, int signal,
                 unsigned char value)
{
    for (size_t i = 0; i < size; i += (size_t)sysconf(_SC_PAGESIZE)) {
        unsigned char got = 0;
        int raised = touch(va + i, &got);

        if (raised == signal && (signal != 0 || got == value))
            continue;
        failed(file, line, function, "at %#zx: signal %d and value %#x, not %d and %#x", i, raised, got, signal, value);
    }
}

void *host_page_of(const void *address)
{
    return (void *)((uintptr_t)address / (uintptr_t)sysconf(_SC_PAGESIZE) * (uintptr_t)sysconf(_SC_PAGESIZE));
}

int is_reserved(const void *address)
{
    return msync(host_page_of(address), 1, MS_ASYNC) == 0 || errno != ENOMEM;
}

void check_new_mappings_avoid(const void *address)
{
    void *memory = mmap(host_page_of(address), 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    CHECK(memory != host_page_of(address));
    CHECK(munmap(memory, 1) == 0);
}
