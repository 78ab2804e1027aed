// gdrcopy_device.cuh: the GPU's side of the flags, counters and rings of the Rust crate gdrcopy.
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// For nvcc, clang and NVRTC, from compute capability 7.0 on. It includes nothing. Compiled as C++11 without CUDA, the
// same functions run on a CPU, for tests.
//
// All of this lives in GPU memory that the CPU has mapped. A function whose name ends in _wait or that waits spins in
// one thread; have one thread of a block call it, then __syncthreads().

#ifndef GDRCOPY_DEVICE_CUH
#define GDRCOPY_DEVICE_CUH

// Layout of a ring, in bytes from its start. The messages begin at the next multiple of GDRCOPY_LINE behind the sequence
// words, one of 4 bytes for each slot.
#define GDRCOPY_LINE 64
#define GDRCOPY_RING_CONSUMED 0
#define GDRCOPY_RING_SEQUENCES 64

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__CUDA__)
#define GDRCOPY_DEVICE static __device__ __inline__
#define GDRCOPY_MEMBER __device__ __inline__
#else
#define GDRCOPY_DEVICE static inline
#define GDRCOPY_MEMBER inline
#define GDRCOPY_ON_CPU
#endif

namespace gdrcopy {

typedef unsigned int u32;
typedef unsigned long long u64;

// ---- Words, at system scope, between this thread and the CPU.

// Later accesses of this thread come after it.
GDRCOPY_DEVICE u32 load_acquire(const u32 *word)
{
#ifdef GDRCOPY_ON_CPU
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#else
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#endif
}

GDRCOPY_DEVICE u64 load_acquire(const u64 *word)
{
#ifdef GDRCOPY_ON_CPU
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#else
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
#endif
}

// A thread or CPU that reads the value by an acquire sees what this thread wrote before.
GDRCOPY_DEVICE void store_release(u32 *word, u32 value)
{
#ifdef GDRCOPY_ON_CPU
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#else
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
#endif
}

GDRCOPY_DEVICE void store_release(u64 *word, u64 value)
{
#ifdef GDRCOPY_ON_CPU
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#else
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
#endif
}

// Orders earlier accesses of the block's other threads, up to __syncthreads(), before later accesses of this thread at
// system scope.
GDRCOPY_DEVICE void fence()
{
#ifdef GDRCOPY_ON_CPU
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#else
    asm volatile("fence.acq_rel.sys;" : : : "memory");
#endif
}

// ---- Flag

GDRCOPY_DEVICE u32 flag_get(const u32 *flag)
{
    return load_acquire(flag);
}

GDRCOPY_DEVICE void flag_set(u32 *flag, u32 value)
{
    store_release(flag, value);
}

GDRCOPY_DEVICE void flag_wait(const u32 *flag, u32 value)
{
    while (load_acquire(flag) != value) {
    }
}

// ---- Counter

GDRCOPY_DEVICE u64 counter_get(const u64 *counter)
{
    return load_acquire(counter);
}

// The kernel is the counter's writer, and `value` is no less than before.
GDRCOPY_DEVICE void counter_publish(u64 *counter, u64 value)
{
    store_release(counter, value);
}

// Waits until the counter is at least `value`, and returns what it is.
GDRCOPY_DEVICE u64 counter_wait(const u64 *counter, u64 value)
{
    u64 found;
    do {
        found = load_acquire(counter);
    } while (found < value);
    return found;
}

// ---- Ring

// The kernel's end of a ring, the consumer of one to the GPU, or the producer of one from it. One thread uses it; it
// may be kept in global memory from launch to launch.
//
// A block moves large messages together. One thread calls peek() or reserve(). After __syncthreads(), all read or write
// the message. After fence() by all and __syncthreads(), the same thread calls release() or publish().
class Ring {
    u32 *consumed_;
    u32 *sequences_;
    char *messages_;
    u32 slots_;
    u32 words_;
    u32 position_;

    GDRCOPY_MEMBER u32 *sequence() const
    {
        return sequences_ + (position_ & (slots_ - 1));
    }

    GDRCOPY_MEMBER u32 *message() const
    {
        return (u32 *)(messages_ + (u64)(position_ & (slots_ - 1)) * words_ * 4);
    }

  public:
    // The ring at device address `memory`, as Ring::new of the crate has made it. `slots` is a power of two and
    // `message_size` in bytes is a multiple of 4. Both, and the number of the first message, are those of the CPU.
    GDRCOPY_MEMBER Ring(void *memory, u32 slots, u32 message_size, u32 first = 0)
    {
        u64 sequences_size = ((u64)slots * 4 + GDRCOPY_LINE - 1) / GDRCOPY_LINE * GDRCOPY_LINE;
        char *start = (char *)memory;
        consumed_ = (u32 *)(start + GDRCOPY_RING_CONSUMED);
        sequences_ = (u32 *)(start + GDRCOPY_RING_SEQUENCES);
        messages_ = start + GDRCOPY_RING_SEQUENCES + sequences_size;
        slots_ = slots;
        words_ = message_size / 4;
        position_ = first;
    }

    // The number of the next message. Numbers wrap around after 2^32 - 1.
    GDRCOPY_MEMBER u32 position() const
    {
        return position_;
    }

    // Consumer: the next message; null if it is not there yet.
    GDRCOPY_MEMBER const u32 *peek() const
    {
        return load_acquire(sequence()) == position_ + 1 ? message() : nullptr;
    }

    // Consumer: done with the message that peek() has returned.
    GDRCOPY_MEMBER void release()
    {
        position_ += 1;
        store_release(consumed_, position_);
    }

    // Producer: room for the next message; null if all slots are in use.
    GDRCOPY_MEMBER u32 *reserve() const
    {
        return position_ - load_acquire(consumed_) < slots_ ? message() : nullptr;
    }

    // Producer: sends the message for which reserve() has returned the room.
    GDRCOPY_MEMBER void publish()
    {
        u32 *published = sequence();
        position_ += 1;
        store_release(published, position_);
    }

    // Consumer: copies the next message to `to`, aligned to 4 bytes. False if it is not there yet.
    GDRCOPY_MEMBER bool try_receive(void *to)
    {
        const volatile u32 *from = peek();
        if (!from)
            return false;
        for (u32 word = 0; word < words_; word++)
            ((u32 *)to)[word] = from[word];
        release();
        return true;
    }

    // Producer: sends the message at `from`, aligned to 4 bytes. False if all slots are in use.
    GDRCOPY_MEMBER bool try_send(const void *from)
    {
        volatile u32 *to = reserve();
        if (!to)
            return false;
        for (u32 word = 0; word < words_; word++)
            to[word] = ((const u32 *)from)[word];
        publish();
        return true;
    }

    // Consumer: try_receive() that waits.
    GDRCOPY_MEMBER void receive(void *to)
    {
        while (!try_receive(to)) {
        }
    }

    // Producer: try_send() that waits.
    GDRCOPY_MEMBER void send(const void *from)
    {
        while (!try_send(from)) {
        }
    }
};

} // namespace gdrcopy

#undef GDRCOPY_DEVICE
#undef GDRCOPY_MEMBER
#undef GDRCOPY_ON_CPU

#endif
