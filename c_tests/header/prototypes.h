/* The 17 functions, assigned to pointers that accept only exactly that type, and the bits of gdr_info_t. */

static const struct {
    gdr_t (*open)(void);
    int (*close)(gdr_t);
    int (*pin_buffer)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *);
    int (*pin_buffer_v2)(gdr_t, unsigned long, size_t, uint32_t, gdr_mh_t *);
    int (*unpin_buffer)(gdr_t, gdr_mh_t);
    int (*get_callback_flag)(gdr_t, gdr_mh_t, int *);
    int (*get_info)(gdr_t, gdr_mh_t, gdr_info_t *);
    int (*get_info_v2)(gdr_t, gdr_mh_t, gdr_info_v2_t *);
    int (*map)(gdr_t, gdr_mh_t, void **, size_t);
    int (*map_v2)(gdr_t, gdr_mh_t, void **, size_t, int);
    int (*unmap)(gdr_t, gdr_mh_t, void *, size_t);
    int (*copy_to_mapping)(gdr_mh_t, void *, const void *, size_t);
    int (*copy_from_mapping)(gdr_mh_t, void *, const void *, size_t);
    void (*runtime_get_version)(int *, int *);
    int (*driver_get_version)(gdr_t, int *, int *);
    int (*get_attribute)(gdr_t, gdr_attr_t, int *);
    int (*get_mapping_type_string)(gdr_mapping_type_t, const char **);
} functions = {
    gdr_open, gdr_close, gdr_pin_buffer, gdr_pin_buffer_v2, gdr_unpin_buffer, gdr_get_callback_flag, gdr_get_info,
    gdr_get_info_v2, gdr_map, gdr_map_v2, gdr_unmap, gdr_copy_to_mapping, gdr_copy_from_mapping,
    gdr_runtime_get_version, gdr_driver_get_version, gdr_get_attribute, gdr_get_mapping_type_string,
};

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
    return bits_are_in_place() && major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION ? 0 : 1;
}
