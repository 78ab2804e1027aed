/* Checks, by pointers, the types of all functions and of gdr_info_t's members. Also checks gdr_info_t's bit fields. */

#include "../functions.h"

#define ADDRESS(result, name, parameters) gdr_##name,

static const struct {
    FUNCTIONS(FUNCTION_POINTER)
} functions = {FUNCTIONS(ADDRESS)};

static gdr_info_t info;
static const struct {
    uint64_t *va, *mapped_size, *tm_cycles;
    uint32_t *page_size, *cycles_per_ms;
    gdr_mapping_type_t *mapping_type;
} members = {&info.va, &info.mapped_size, &info.tm_cycles, &info.page_size, &info.cycles_per_ms, &info.mapping_type};

/* The 32-bit word at offset 36 of gdr_info_t holds `mapped` in bit 0 and `wc_mapping` in bit 1. */
static int bits_are_in_place(void)
{
    union {
        gdr_info_t info;
        uint32_t words[12];
    } answer = {{0, 0, 0, 0, 0, 0, 0, GDR_MAPPING_TYPE_NONE}};
    int right;

    answer.words[9] = 1;
    right = answer.info.mapped == 1 && answer.info.wc_mapping == 0;
    answer.words[9] = 2;
    return right && answer.info.mapped == 0 && answer.info.wc_mapping == 1;
}

int main(void)
{
    int major = 0, minor = 0;

    functions.runtime_get_version(&major, &minor);
    *members.mapping_type = GDR_MAPPING_TYPE_NONE;
    return bits_are_in_place() && major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION ? 0 : 1;
}
