// gdrcopy_device.cuh, compiled for the CPU. A thread of the tests calls these as if it were a GPU kernel.
#include <sched.h>

#include "../../include/gdrcopy_device.cuh"

using gdrcopy::u32;
using gdrcopy::u64;

// Sends on what it receives; `message` has room for one.
extern "C" void echo(void *in, void *out, u32 slots, u32 size, u32 first, u32 count, void *message)
{
    gdrcopy::Ring from(in, slots, size, first), to(out, slots, size, first);
    while (from.position() != first + count) {
        while (!from.try_receive(message))
            sched_yield();
        while (!to.try_send(message))
            sched_yield();
    }
}

// Sends each message back twice, in place, as a block of a kernel does.
extern "C" void double_each(void *in, void *out, u32 slots, u32 size, u32 count)
{
    gdrcopy::Ring from(in, slots, size), to(out, slots, size);
    while (from.position() != count) {
        const u32 *message;
        while (!(message = from.peek()))
            sched_yield();
        for (int copy = 0; copy < 2; copy++) {
            u32 *room;
            while (!(room = to.reserve()))
                sched_yield();
            for (u32 word = 0; word < size / 4; word++)
                room[word] = message[word];
            gdrcopy::fence();
            to.publish();
        }
        from.release();
    }
}

// Answers flag 1 by 2 and counter `begun` by as much, less 1, in `done`.
extern "C" void answer(u32 *flag, const u64 *begun, u64 *done)
{
    gdrcopy::flag_wait(flag, 1);
    gdrcopy::flag_set(flag, gdrcopy::flag_get(flag) + 1);
    gdrcopy::counter_publish(done, gdrcopy::counter_wait(begun, 1) - 1);
    gdrcopy::counter_publish(done, gdrcopy::counter_get(done) + 1);
}
