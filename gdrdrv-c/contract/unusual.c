/* Tests of unusual uses of commands, mappings and descriptors. No library uses the device like that. */
#include "contract.h"

#include <sched.h>
#include <signal.h>

#define SIZE (8 * GPU_PAGE)

/* The GPU driver pins only ranges within a single allocation. */
TEST(pin_across_two_allocations_is_einval)
{
    uint64_t at = memory_two_allocations(), one = 77;

    if (at == 0)
        waive("this CUDA cannot map allocations at addresses of the program's choice");
    fd = driver_open();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pin(fd, at + (uint64_t)i * UNIT, UNIT, &one));
        CHECK_OK(unpin(fd, one));
    }
    one = 77;
    CHECK_ERROR(pin(fd, at + UNIT - GPU_PAGE, 2 * GPU_PAGE, &one), EINVAL);
    CHECK_ERROR(pin(fd, at, 2 * UNIT, &one), EINVAL);
    CHECK_EQUAL(one, 77);
}

/* The arguments are in GPU memory: in the mapping of the pin that the command is about. */
TEST(arguments_can_be_in_a_mapping_of_the_device)
{
    waive_over_bar1("gdremu copies arguments by process_vm_readv, which refuses memory of devices");
    begin(SIZE);
    struct gdrdrv_get_info *info = (void *)(va + PAGE - 8); /* the struct lies on two pages */
    info->handle = handle;
    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, info));
    CHECK_EQUAL(info->va, memory.va);
    CHECK_EQUAL(info->mapped_size, SIZE);

    struct gdrdrv_pin_buffer *pin = (void *)(va + SIZE - sizeof(*pin));
    *pin = (struct gdrdrv_pin_buffer){.addr = memory.va, .size = GPU_PAGE, .handle = 77};
    CHECK_OK(command(fd, GDRDRV_IOC_PIN_BUFFER, pin));
    CHECK_PINNED(2);
    CHECK(pin->handle != handle);
    CHECK_OK(unpin(fd, pin->handle));

    struct gdrdrv_unpin_buffer *last = (void *)(va + GPU_PAGE);
    last->handle = handle;
    CHECK_OK(command(fd, GDRDRV_IOC_UNPIN_BUFFER, last));
    CHECK_PAGES_GONE(va, SIZE);
    CHECK_PINNED(0);
    CHECK_ERROR(command(fd, GDRDRV_IOC_UNPIN_BUFFER, last), EFAULT);
}

/* ---- A process with the same address space ---- */

static volatile int errors[2], signals[2];

static int with_the_same_memory(void *unused)
{
    struct gdrdrv_get_info info = {.handle = handle};
    unsigned char *mapping, value;
    char byte;

    (void)unused;
    errors[0] = command(fd, GDRDRV_IOC_GET_INFO, &info);
    errors[1] = map(fd, handle, SIZE, &mapping);
    signals[0] = touch(va, &value);
    say(to_parent[1]);
    if (read(to_child[0], &byte, 1) != 1)
        _exit(1);
    signals[1] = touch(va, &value);
    say(to_parent[1]);
    _exit(0);
}

TEST(process_with_the_same_memory_is_not_the_owner)
{
    static char stack[64 << 10] __attribute__((aligned(16)));
    int status;

    begin(SIZE);
    pid_t child = clone(with_the_same_memory, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
    CHECK(child > 0);
    await(to_parent[0]);
    CHECK_EQUAL(errors[0], EACCES);
    CHECK_EQUAL(errors[1], EACCES);
    CHECK_EQUAL(signals[0], 0);
    CHECK_OK(unpin(fd, handle));
    say(to_child[1]);
    await(to_parent[0]);
    CHECK_EQUAL(signals[1], SIGBUS);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- Ranges that mprotect has cut, without any munmap ---- */

TEST(unpin_ends_a_mapping_that_mprotect_has_cut)
{
    begin(SIZE);
    for (size_t at = 0; at < SIZE; at += 2 * PAGE)
        CHECK(mprotect(va + at, PAGE, PROT_READ) == 0);
    CHECK_MAPPED(fd, handle);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_OK(unpin(fd, handle));
    if (expected("UNPIN ends a mapping that mprotect has cut", 1))
        CHECK_PAGES_GONE(va, SIZE);
}

TEST(unpin_ends_a_mapping_that_mprotect_has_hidden)
{
    unsigned char value;

    begin(SIZE);
    CHECK(mprotect(va, SIZE, PROT_NONE) == 0);
    CHECK_EQUAL(touch(va, &value), SIGSEGV);
    CHECK_MAPPED(fd, handle);
    CHECK_OK(unpin(fd, handle));
    CHECK(mprotect(va, SIZE, PROT_READ | PROT_WRITE) == 0);
    CHECK_PAGES_GONE(va, SIZE);
}

/* ---- 32-bit system calls ---- */

#ifdef __x86_64__
/* Calls ioctl on the device by a 32-bit system call. Returns 0 or an errno. */
static int command_of_32_bits(unsigned int number, void *argument)
{
    int result;

    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(54 /* ioctl */), "b"(fd), "c"(number), "d"((uint32_t)(uintptr_t)argument)
                     : "memory", "r8", "r9", "r10", "r11");
    return -result;
}

/* Makes a 32-bit system call in a child. A kernel without such calls kills the child or answers ENOSYS. */
static bool kernel_has_32_bit_system_calls(void)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        _exit(command_of_32_bits(0, NULL) == ENOSYS);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    return status == 0;
}

TEST(commands_of_32_bit_system_calls_are_enotty)
{
    if (!kernel_has_32_bit_system_calls())
        waive("the kernel has no 32-bit system calls");
    struct gdrdrv_pin_buffer *low =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    begin(SIZE);
    for (size_t i = 0; i < COUNT(commands); i++) {
        const unsigned int number = (unsigned int)commands[i].number;
        const bool pins = number == GDRDRV_IOC_PIN_BUFFER || number == GDRDRV_IOC_PIN_BUFFER_V2;

        *low = (struct gdrdrv_pin_buffer){.addr = pins ? memory.va : handle, .size = GPU_PAGE};
        CHECK_EQUAL(command_of_32_bits(number, low), ENOTTY);
    }
    CHECK_PINNED(1);
    CHECK_MAPPED(fd, handle);
}
#endif

/* ---- Other system calls ---- */

#define CHECK_EINVAL(call)                                                                                             \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((call) < 0);                                                                                             \
        CHECK_EQUAL(errno, EINVAL);                                                                                    \
    } while (0)

TEST(device_and_mapping_have_no_other_uses)
{
    char buffer[64] = {0};

    begin(SIZE);
    CHECK_EINVAL(read(fd, buffer, sizeof(buffer)));
    CHECK_EINVAL(pread(fd, buffer, sizeof(buffer), 0));
    if (expected("the device is no file", 1)) {
        CHECK_EINVAL(write(fd, buffer, sizeof(buffer)));
        CHECK_EINVAL(fsync(fd));
        CHECK_EINVAL(ftruncate(fd, 0));
        CHECK(madvise(va, SIZE, MADV_REMOVE) < 0);
        CHECK(madvise(va, SIZE, MADV_DONTNEED) < 0);
        CHECK(madvise(va, SIZE, MADV_DOFORK) < 0);
    }
    CHECK(mremap(va, 0, SIZE, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
}
