/* The library's reports about itself and the driver. */

#include "buffer.h"
#include "tables.h"

#define PARAMS "/proc/driver/gdrdrv/params"

/* The report of the module's file under /proc about persistent mapping, 1, 0, or -1 if
   unknown. */
static int persistent_by_params(void)
{
    FILE *params = fopen(PARAMS, "r");
    char line[256], answer[16];
    int persistent = -1;

    if (params == NULL)
        return -1;
    while (fgets(line, sizeof(line), params) != NULL)
        if (sscanf(line, "Use persistent mapping: %15s", answer) == 1)
            persistent = strcmp(answer, "yes") == 0;
    fclose(params);
    return persistent;
}

static void every_attribute_answers(gdr_t g)
{
    static const char *const names[GDR_ATTR_MAX] = {NULL, "USE_PERSISTENT_MAPPING", "SUPPORT_PIN_FLAG_FORCE_PCIE",
                                                    "USING_DMA_BUF_MMAP"};

    for (int which = 1; which < GDR_ATTR_MAX; which++) {
        int value = -1, again = -1;

        CHECK_OK(gdr_get_attribute(g, (gdr_attr_t)which, &value));
        CHECK(value == 0 || value == 1);
        CHECK_OK(gdr_get_attribute(g, (gdr_attr_t)which, &again));
        CHECK_EQUAL(again, value);
        say("GDR_ATTR_%s is %d", names[which], value);
    }
}

static void wrong_attributes_are_refused(gdr_t g)
{
    static const int wrong[] = {0, GDR_ATTR_MAX, GDR_ATTR_MAX + 1, 1000, -1};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int value = 77;

        CHECK_ERROR(gdr_get_attribute(g, (gdr_attr_t)wrong[i], &value), EINVAL);
    }
}

/* The attributes agree with other sources. */
static void attributes_agree_with_other_sources(gdr_t g)
{
    int reported = persistent_by_params();

    descriptor_of(g); /* checks GDR_ATTR_USING_DMA_BUF_MMAP */
    if (uses_dmabuf(g))
        CHECK(is_persistent(g));
    else if (!driver_is_at_least(g, 2, 5))
        CHECK(!is_persistent(g));
    else if (reported != -1)
        CHECK_EQUAL(is_persistent(g), reported);
}

static void attributes_sanity(enum gpu_memory kind)
{
    gdr_t g = open_driver();

    (void)kind;
    every_attribute_answers(g);
    wrong_attributes_are_refused(g);
    attributes_agree_with_other_sources(g);
    CHECK_OK(gdr_close(g));
}

const struct test attribute_tests[] = {
    {"attributes_sanity", attributes_sanity, ONE_KIND, 0},
    END_OF_TESTS,
};
