/*
 * Asserts, at compile time, the binary interface that gdrapi.h must describe. c99.c and cxx17.cpp define
 * ASSERT(condition, name), and include this file.
 */

/* Handles. */
ASSERT(sizeof(gdr_t) == 8, gdr_t_is_a_pointer);
ASSERT(sizeof(gdr_mh_t) == 8, gdr_mh_t_size);
ASSERT(sizeof(struct gdr_mh_s) == sizeof(gdr_mh_t), gdr_mh_s_is_gdr_mh_t);
ASSERT(offsetof(gdr_mh_t, h) == 0, gdr_mh_t_h);

/* The struct that gdr_get_info fills. */
ASSERT(sizeof(gdr_info_v2_t) == 48, gdr_info_v2_t_size);
ASSERT(sizeof(gdr_info_t) == 48, gdr_info_t_size);
ASSERT(sizeof(struct gdr_info_v2) == 48, gdr_info_v2_size);
ASSERT(offsetof(gdr_info_t, va) == 0, va);
ASSERT(offsetof(gdr_info_t, mapped_size) == 8, mapped_size);
ASSERT(offsetof(gdr_info_t, page_size) == 16, page_size);
ASSERT(offsetof(gdr_info_t, tm_cycles) == 24, tm_cycles);
ASSERT(offsetof(gdr_info_t, cycles_per_ms) == 32, cycles_per_ms);
ASSERT(offsetof(gdr_info_t, mapping_type) == 40, mapping_type);

/* Enumerations. */
ASSERT(sizeof(gdr_mapping_type_t) == 4, gdr_mapping_type_t_size);
ASSERT(GDR_MAPPING_TYPE_NONE == 0, type_none);
ASSERT(GDR_MAPPING_TYPE_WC == 1, type_wc);
ASSERT(GDR_MAPPING_TYPE_CACHING == 2, type_caching);
ASSERT(GDR_MAPPING_TYPE_DEVICE == 3, type_device);
ASSERT(GDR_MAPPING_TYPE_MAX == 4, type_max);
ASSERT(sizeof(gdr_map_flags_t) == 4, gdr_map_flags_t_size);
ASSERT(GDR_MAP_FLAG_DEFAULT == 0, map_default);
ASSERT(GDR_MAP_FLAG_REQ_WC_MAPPING == 1, map_wc);
ASSERT(GDR_MAP_FLAG_REQ_CACHE_MAPPING == 2, map_cache);
ASSERT(GDR_MAP_FLAG_REQ_DEVICE_MAPPING == 3, map_device);
ASSERT(sizeof(gdr_pin_flags_t) == 4, gdr_pin_flags_t_size);
ASSERT(GDR_PIN_FLAG_DEFAULT == 0, pin_default);
ASSERT(GDR_PIN_FLAG_FORCE_PCIE == 1, pin_force_pcie);
ASSERT(sizeof(gdr_attr_t) == 4, gdr_attr_t_size);
ASSERT(GDR_ATTR_USE_PERSISTENT_MAPPING == 1, attr_persistent);
ASSERT(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE == 2, attr_force_pcie);
ASSERT(GDR_ATTR_USING_DMA_BUF_MMAP == 3, attr_dma_buf);
ASSERT(GDR_ATTR_MAX == 4, attr_max);

/* Macros. */
ASSERT(MAJOR_VERSION_SHIFT == 16, major_version_shift);
ASSERT(MINOR_VERSION_MASK == 0xffff, minor_version_mask);
ASSERT(MINOR_VERSION_MASK - 0x10000 > 0, minor_version_mask_is_unsigned);
ASSERT(GDR_API_MAJOR_VERSION == 2 && GDR_API_MINOR_VERSION == 6, api_version);
ASSERT(GDR_API_VERSION == 0x20006, api_version_word);
ASSERT(MINIMUM_GDRDRV_MAJOR_VERSION == 2 && MINIMUM_GDRDRV_MINOR_VERSION == 0, driver_version);
ASSERT(MINIMUM_GDRDRV_VERSION == 0x20000, driver_version_word);
ASSERT(GPU_PAGE_SHIFT == 16, gpu_page_shift);
ASSERT(GPU_PAGE_SIZE == 65536, gpu_page_size);
ASSERT(sizeof(GPU_PAGE_SIZE) == sizeof(unsigned long), gpu_page_size_is_unsigned_long);
ASSERT(GPU_PAGE_OFFSET == 0xffff, gpu_page_offset);
ASSERT(GPU_PAGE_MASK == 0xffffffffffff0000, gpu_page_mask);
