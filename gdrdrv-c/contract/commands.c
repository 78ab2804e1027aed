/* Tests of the commands, their results, and their access to their argument. */
#include "contract.h"

const struct known_command commands[] = {
    {GDRDRV_IOC_PIN_BUFFER, 0},    {GDRDRV_IOC_UNPIN_BUFFER, 0},     {GDRDRV_IOC_GET_CB_FLAG, 0},
    {GDRDRV_IOC_GET_INFO, 0},      {GDRDRV_IOC_GET_VERSION, 0},      {GDRDRV_IOC_GET_INFO_V2, 4},
    {GDRDRV_IOC_GET_ATTR, 5},      {GDRDRV_IOC_PIN_BUFFER_V2, 5},    {GDRDRV_IOC_REQ_MAPPING_TYPE, 5},
};

TEST(version_is_2_and_at_least_that_of_the_oldest_library)
{
    struct gdrdrv_get_version version = {0, 0};

    CHECK_OK(command(driver_open(), GDRDRV_IOC_GET_VERSION, &version));
    CHECK_EQUAL(version.gdrdrv_version >> 16, 2);
    CHECK_COMPARE(version.minimum_gdr_api_version, >=, 2 << 16);
    CHECK_COMPARE(version.minimum_gdr_api_version, <=, version.gdrdrv_version);
}

TEST(releases_know_their_commands)
{
    int fd = driver_open();

    for (size_t i = 0; i < COUNT(commands); i++) {
        unsigned char argument[64] = {0};
        int error = command(fd, commands[i].number, argument);

        CHECK_EQUAL(error != ENOTTY, since(commands[i].since));
    }
}

/*
 * No command has these numbers. Most of them differ from a command's number only in the index, the
 * size of the argument, the direction or the type.
 */
TEST(unknown_commands_are_enotty)
{
    const unsigned long numbers[] = {
        _IOWR(GDRDRV_IOC_MAGIC, 0, void *),   _IOWR(GDRDRV_IOC_MAGIC, 9, void *),
        _IOWR(GDRDRV_IOC_MAGIC, 254, void *), _IOWR(GDRDRV_IOC_MAGIC, 4, struct gdrdrv_get_info),
        _IOWR(GDRDRV_IOC_MAGIC, 1, void *),   _IOR(GDRDRV_IOC_MAGIC, 255, void *),
        _IO(GDRDRV_IOC_MAGIC, 255),
    };
    unsigned char argument[64] = {0};
    int fd = driver_open();

    for (size_t i = 0; i < COUNT(numbers); i++)
        CHECK_ERROR(command(fd, numbers[i], argument), ENOTTY);
    CHECK_ERROR(command(fd, 0, argument), expected("ioctl of another type", ENOTTY));
    CHECK_ERROR(command(fd, _IOWR(GDRDRV_IOC_MAGIC + 1, 255, void *), argument),
                expected("ioctl of another type", ENOTTY));
}

TEST(attributes_are_0_or_1_and_unknown_ones_einval)
{
    struct gdrdrv_get_attr attribute;
    int fd = driver_open();

    if (!since(5))
        waive("attributes exist since 2.5");
    for (attribute.attr = 1; attribute.attr <= 2; attribute.attr++) {
        attribute.val = 77;
        CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &attribute));
        CHECK_COMPARE(attribute.val, <=, 1);
    }
    attribute.val = 77;
    for (attribute.attr = 0; attribute.attr != 6; attribute.attr += 3)
        CHECK_ERROR(command(fd, GDRDRV_IOC_GET_ATTR, &attribute), EINVAL);
    attribute.attr = ~0U;
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_ATTR, &attribute), EINVAL);
    CHECK_EQUAL(attribute.val, 77);
}

TEST(inaccessible_arguments_are_efault)
{
    unsigned char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = driver_open();

    CHECK(page != MAP_FAILED);
    CHECK(munmap(page + PAGE, PAGE) == 0);
    for (size_t i = 0; i < COUNT(commands); i++) {
        if (!since(commands[i].since))
            continue;
        CHECK_ERROR(command(fd, commands[i].number, NULL), EFAULT);
        CHECK_ERROR(command(fd, commands[i].number, page + PAGE - 1), EFAULT);
        CHECK_ERROR(command(fd, commands[i].number, page + PAGE), EFAULT);
        CHECK_ERROR(command(fd, commands[i].number, (void *)~0xfffUL), EFAULT);
    }
    CHECK(mprotect(page, PAGE, PROT_NONE) == 0);
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_VERSION, page), EFAULT);
    CHECK_ERROR(command(fd, GDRDRV_IOC_UNPIN_BUFFER, page), EFAULT);
}

/* Without the handle, the program could not unpin the memory. */
TEST(pin_whose_handle_cannot_be_returned_is_undone)
{
    struct memory memory = memory_alloc(UNIT);
    unsigned char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct gdrdrv_pin_buffer *v1 = (struct gdrdrv_pin_buffer *)page;
    struct gdrdrv_pin_buffer_v2 *v2 = (struct gdrdrv_pin_buffer_v2 *)(page + 256);
    struct gdrdrv_get_version *version = (struct gdrdrv_get_version *)page;
    int fd = driver_open();

    CHECK(page != MAP_FAILED);
    v1->addr = v2->addr = memory.va;
    v1->size = v2->size = GPU_PAGE;
    CHECK(mprotect(page, PAGE, PROT_READ) == 0);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, v1), EFAULT);
    if (since(5))
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, v2), EFAULT);
    CHECK_PINNED(0);
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_VERSION, version), EFAULT);
}

/* Commands without output must not write to their argument: if the write faulted, the command would return EFAULT
   although it is done. */
TEST(commands_without_output_accept_read_only_arguments)
{
    struct memory memory = memory_alloc(UNIT);
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = driver_open();
    struct gdrdrv_req_mapping_type type = {pinned(fd, memory, GPU_PAGE), GDRDRV_MAPPING_TYPE_NONE};

    CHECK(page != MAP_FAILED);
    memcpy(page, &type, sizeof(type));
    CHECK(mprotect(page, PAGE, PROT_READ) == 0);
    if (since(5))
        CHECK_OK(command(fd, GDRDRV_IOC_REQ_MAPPING_TYPE, page));
    CHECK_OK(command(fd, GDRDRV_IOC_UNPIN_BUFFER, page)); /* reads only the handle, the first 8 bytes of the page */
}
