<%doc>
What attention on NVIDIA's GPUs asks of them beside matrix units: `cp.async`, the exchange of a
number between work-items of a warp, and powers of two.

The kernel defines elem_t, declares `tiles` and `id`, its work-item, and writes UNIT_MEMORY behind
`tiles`; `base` is then their address.
</%doc>
/* a 32-bit address of local memory, as PTX wants it */
typedef uint local_t;

local_t shared_address(__local const void *pointer)
{
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}
#define UNIT_MEMORY const local_t base = shared_address(tiles);

/* copies a chunk of 8 elements, or zeros, sometime before COPY_WAIT */
void copy_chunk(const local_t to, __global const elem_t *from, const bool valid)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
#define COPY_COMMIT() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory")

/* the value of the work-item whose number differs in the bits of `mask` */
float from_lane(const float value, const int mask)
{
    float other;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(mask));
    return other;
}

/* copies a number, or 0, as copy_chunk does */
void copy_number(const local_t to, __global const float *from, const bool valid)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}

/* 2^value, or 0 where that is below the smallest normal number */
float power_of_two(const float value)
{
    float power;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}
