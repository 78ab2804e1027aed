/* Tests gdrx.h's loads and stores of words on memory of this process, so it needs no library, and runs on any CPU. */

#include "gdrx.h"

#include <stdio.h>

static unsigned char memory[64];
static const unsigned char one_type;
static struct gdrx_map map;

/* tests/cross/run.sh disassembles these functions and checks their fences. */
void probe_store(uint32_t value);
void probe_load(uint32_t *value);

void probe_store(uint32_t value)
{
    gdrx_store_u32(&map, 8, value);
}

void probe_load(uint32_t *value)
{
    *value = gdrx_load_u32(&map, 8);
}

int main(void)
{
    uint32_t value = 0;

    map.address = memory;
    map.size = sizeof(memory);
    map.type = GDR_MAPPING_TYPE_CACHING;
    map.several_types = &one_type;
    probe_store(0x11223344);
    probe_load(&value);
    if (value != 0x11223344 || gdrx_load_u8(&map, 12) != 0 || gdrx_load_u16(&map, 6) != 0) {
        printf("the word is %#x\n", (unsigned)value);
        return 1;
    }
    gdrx_begin();
    gdrx_store_u8_unfenced(&map, 63, 7);
    gdrx_store_u16_unfenced(&map, 60, 6);
    gdrx_store_u64_unfenced(&map, 48, UINT64_MAX);
    gdrx_fence(&map);
    if (memory[63] != 7 || gdrx_load_u16(&map, 60) != 6 || gdrx_load_u64(&map, 48) != UINT64_MAX || memory[56] != 0) {
        printf("a word is wrong\n");
        return 1;
    }
    return 0;
}
