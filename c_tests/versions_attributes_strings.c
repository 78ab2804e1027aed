/* Tests of versions, attributes and the names of mapping types. */

#include "bodies.h"

#include <limits.h>

static void the_runtime_version_is_the_headers(void)
{
    int major = -1, minor = -1;

    gdr_runtime_get_version(&major, &minor);
    CHECK_EQUAL(major, GDR_API_MAJOR_VERSION);
    CHECK_EQUAL(minor, GDR_API_MINOR_VERSION);
    major = -1;
    gdr_runtime_get_version(&major, NULL);
    CHECK_EQUAL(major, GDR_API_MAJOR_VERSION);
    gdr_runtime_get_version(NULL, &minor);
    gdr_runtime_get_version(NULL, NULL);
}

static void the_driver_version(gdr_t g)
{
    int major = -1, minor = -1;

    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    CHECK_EQUAL(major, 2);
    CHECK(minor >= 0 && minor < 100);

    major = minor = 77;
    CHECK_ERROR(gdr_driver_get_version(NULL, &major, &minor), EINVAL);
    CHECK_ERROR(gdr_driver_get_version(g, NULL, &minor), EINVAL);
    CHECK_ERROR(gdr_driver_get_version(g, &major, NULL), EINVAL);
    CHECK_ERROR(gdr_driver_get_version(g, NULL, NULL), EINVAL);
    CHECK_EQUAL(major, 77);
    CHECK_EQUAL(minor, 77);
}

void attributes_are_0_or_1(gdr_t g)
{
    static const int unknown[] = {0, GDR_ATTR_MAX, -1, 1000, INT_MAX, INT_MIN};
    int value, again;

    for (int attribute = GDR_ATTR_USE_PERSISTENT_MAPPING; attribute < GDR_ATTR_MAX; attribute++) {
        value = -1;
        CHECK_OK(gdr_get_attribute(g, (gdr_attr_t)attribute, &value));
        CHECK(value == 0 || value == 1);
        CHECK_OK(gdr_get_attribute(g, (gdr_attr_t)attribute, &again));
        CHECK_EQUAL(again, value);
        value = 77;
        CHECK_ERROR(gdr_get_attribute(NULL, (gdr_attr_t)attribute, &value), EINVAL);
        CHECK_EQUAL(value, 0);
        CHECK_ERROR(gdr_get_attribute(g, (gdr_attr_t)attribute, NULL), EINVAL);
    }
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        value = 77;
        CHECK_ERROR(gdr_get_attribute(g, (gdr_attr_t)unknown[i], &value), EINVAL);
        CHECK_EQUAL(value, 0);
        value = 77;
        CHECK_ERROR(gdr_get_attribute(NULL, (gdr_attr_t)unknown[i], &value), EINVAL);
        CHECK_EQUAL(value, 0);
        CHECK_ERROR(gdr_get_attribute(g, (gdr_attr_t)unknown[i], NULL), EINVAL);
    }
}

static void names_of_mapping_types(void)
{
    static const char *const names[GDR_MAPPING_TYPE_MAX] = {"None", "Write Combining", "Caching", "Device"};
    static const int unknown[] = {-1, GDR_MAPPING_TYPE_MAX, 5, INT_MAX, INT_MIN};
    static const char untouched[] = "untouched";
    const char *name;

    for (int type = 0; type < GDR_MAPPING_TYPE_MAX; type++) {
        name = NULL;
        CHECK_OK(gdr_get_mapping_type_string((gdr_mapping_type_t)type, &name));
        CHECK_STRING(name, names[type]);
        CHECK_ERROR(gdr_get_mapping_type_string((gdr_mapping_type_t)type, NULL), EINVAL);
    }
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        name = untouched;
        CHECK_ERROR(gdr_get_mapping_type_string((gdr_mapping_type_t)unknown[i], &name), EINVAL);
        CHECK_EQUAL(name, untouched);
        CHECK_ERROR(gdr_get_mapping_type_string((gdr_mapping_type_t)unknown[i], NULL), EINVAL);
    }
}

int main(void)
{
    the_runtime_version_is_the_headers();
    names_of_mapping_types();
    gdr_t g = gdr_open();
    CHECK(g != NULL);
    the_driver_version(g);
    attributes_are_0_or_1(g);
    CHECK_OK(gdr_close(g));
    return passed("versions_attributes_strings");
}
