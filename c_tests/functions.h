/* Calls a macro for each function of libgdrapi with its result type, its name without "gdr_", and its parameters. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#define FUNCTIONS(each)                                                                                                \
    each(gdr_t, open, (void))                                                                                          \
    each(int, close, (gdr_t))                                                                                          \
    each(int, pin_buffer, (gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *))                              \
    each(int, pin_buffer_v2, (gdr_t, unsigned long, size_t, uint32_t, gdr_mh_t *))                                     \
    each(int, unpin_buffer, (gdr_t, gdr_mh_t))                                                                         \
    each(int, get_callback_flag, (gdr_t, gdr_mh_t, int *))                                                             \
    each(int, get_info, (gdr_t, gdr_mh_t, gdr_info_t *))                                                               \
    each(int, get_info_v2, (gdr_t, gdr_mh_t, gdr_info_v2_t *))                                                         \
    each(int, map, (gdr_t, gdr_mh_t, void **, size_t))                                                                 \
    each(int, map_v2, (gdr_t, gdr_mh_t, void **, size_t, int))                                                         \
    each(int, unmap, (gdr_t, gdr_mh_t, void *, size_t))                                                                \
    each(int, copy_to_mapping, (gdr_mh_t, void *, const void *, size_t))                                               \
    each(int, copy_from_mapping, (gdr_mh_t, void *, const void *, size_t))                                             \
    each(void, runtime_get_version, (int *, int *))                                                                    \
    each(int, driver_get_version, (gdr_t, int *, int *))                                                               \
    each(int, get_attribute, (gdr_t, gdr_attr_t, int *))                                                               \
    each(int, get_mapping_type_string, (gdr_mapping_type_t, const char **))

/* Declares a struct member that is a pointer to the function. */
#define FUNCTION_POINTER(result, name, parameters) result(*name) parameters;

#endif
