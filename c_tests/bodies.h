/* Declares the tests that the C programs and gdrcopy_sanity share, sorted by the file that defines them. Each test
   initializes CUDA and opens the driver itself, unless it takes a gdr_t. */
#ifndef BODIES_H
#define BODIES_H

#include "kit/library.h"

/* The type of functions that pin a buffer, such as pin(). */
typedef gdr_mh_t pin_function(gdr_t g, CUdeviceptr address, size_t size);

/* callback_flag.c: tests that a free ends only mappings of the freed GPU memory, or none if pins are persistent. */
void freed_memory_keeps_or_loses_its_mapping(enum gpu_memory kind);
void freeing_one_buffer_does_not_affect_another(enum gpu_memory kind);

/* copy.c: tests copies of every `step`-th size and alignment, and plain loads and stores. */
void copies_arrive(enum gpu_memory kind, pin_function *pin, size_t step);

/* fork.c: tests forked children of a process that has pins. */
void children_can_use_nothing_inherited(enum gpu_memory kind);
void a_child_cannot_map_its_parents_pin(enum gpu_memory kind);
void a_child_faults_before_and_after_a_free(enum gpu_memory kind);

/* map_unmap.c: maps with each mapping type. Returns how many mappings got a type other than the default one. */
int mappings_of_all_types_show_the_same_memory(enum gpu_memory kind);

/* open_close.c: tests that gdr_close ends all pins. */
void close_unmaps_and_unpins(enum gpu_memory kind);

/* unaligned.c: tests that gdr_map refuses pins that do not start at a page. */
void unaligned_pins_are_refused_by_default(void);

/* versions_attributes_strings.c: tests gdr_get_attribute with known and unknown attributes. */
void attributes_are_0_or_1(gdr_t g);

#endif
