/* Parts of the C programs that gdrcopy_sanity runs, too, sorted by program. Each part starts CUDA and opens the driver
   itself, unless it takes a gdr_t. */
#ifndef BODIES_H
#define BODIES_H

#include "kit/library.h"

/* The type of functions that pin, such as pin(). */
typedef gdr_mh_t pin_function(gdr_t g, CUdeviceptr address, size_t size);

/* callback_flag.c: a free ends the pins of the memory and no others. With persistent mapping, the memory stays. */
void freed_memory_keeps_or_loses_its_mapping(enum gpu_memory kind);
void freeing_one_buffer_does_not_affect_another(enum gpu_memory kind);

/* copy.c: tests copies of many sizes and alignments, in steps of `step`, and plain loads and stores. */
void copies_arrive(enum gpu_memory kind, pin_function *pin, size_t step);

/* fork.c: tests forked children of a process that has pins. */
void children_can_use_nothing_inherited(enum gpu_memory kind);
void a_child_cannot_map_its_parents_pin(enum gpu_memory kind);
void a_child_faults_before_and_after_a_free(enum gpu_memory kind);

/* map_unmap.c: returns how many requests of a mapping type led to another type than the default one. */
int mappings_of_all_types_show_the_same_memory(enum gpu_memory kind);

/* open_close.c */
void close_unmaps_and_unpins(enum gpu_memory kind);

/* unaligned.c */
void unaligned_pins_are_refused_by_default(void);

/* versions_attributes_strings.c */
void attributes_are_0_or_1(gdr_t g);

#endif
