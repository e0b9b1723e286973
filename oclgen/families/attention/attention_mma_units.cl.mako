<%doc>
What attention on matrix units asks of them, one instruction each: `cp.async`, `ldmatrix`,
`mma.sync` and the exchange of a number between the four work-items that share a row of a result.

The kernel declares `tiles` and `id`, its work-item, and writes UNIT_MEMORY behind `tiles`.
fragment(at) loads a 16 x 16 block of which each work-item of a warp names a chunk of 8 neighbours:
items 0 to 7 the rows of the first quarter, and so on. fragment_trans(at) transposes each quarter.
MMA(c, a, b0, b1) adds a 16 x 16 block times a 16 x 8 block to the 16 x 8 block c: of it a work-item
holds two neighbours in row lane / 4 and two in the row 8 below, at column lane % 4 * 2.

dtype       "fp16" or "bf16"
</%doc>
<% type_name = {"fp16": "f16", "bf16": "bf16"}[dtype] %>\
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

/* two neighbours as they are stored, rounded to nearest even */
uint pair_of(const float low, const float high)
{
    uint pair;
    __asm__("cvt.rn.${type_name}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

% for name, kind in (("fragment", ""), ("fragment_trans", ".trans")):
uint4 ${name}(const local_t at)
{
    uint x, y, z, w;
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4${kind}.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(at) : "memory");
    return (uint4)(x, y, z, w);
}

% endfor
#define MMA(c, a, b0, b1) __asm__ volatile( \
    "mma.sync.aligned.m16n8k16.row.col.f32.${type_name}.${type_name}.f32 " \
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
    : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
    : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "r"(b0), "r"(b1))

/* the value of the work-item whose number differs in the bits of `mask` */
float from_lane(const float value, const int mask)
{
    float other;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(mask));
    return other;
}
