// Compiles all of gdrcopy_device.cuh in a GPU kernel.
#include "../../include/gdrcopy_device.cuh"

using gdrcopy::u32;
using gdrcopy::u64;

extern "C" __attribute__((global)) void all(void *in, void *out, u32 slots, u32 count, u32 *flag, u64 *counter)
{
    gdrcopy::Ring from(in, slots, 16), to(out, slots, 16, 5);
    u32 message[4];
    for (u32 i = 0; i < count; i++) {
        from.receive(message);
        to.send(message);
    }
    gdrcopy::flag_wait(flag, 3);
    gdrcopy::fence();
    gdrcopy::flag_set(flag, gdrcopy::flag_get(flag) + from.position());
    gdrcopy::counter_publish(counter, gdrcopy::counter_wait(counter, 4) + gdrcopy::counter_get(counter));
}
