<%doc>
What products with packed weights ask of NVIDIA's GPUs, one instruction each: `cp.async`,
`mma.sync`, `mbarrier`, and the difference of two pairs.

MMA(c, a, b0, b1) adds a 16 x 16 block times a 16 x 8 block to the 16 x 8 block c: of it a work-item
holds two neighbours in row lane / 4 and two in the row 8 below, at column lane % 4 * 2.

dtype       "fp16" or "bf16": of the pairs
elem_bytes  bytes of an element of x
x_bytes     bytes of x that a lane loads at once
width       bytes of a copy
bulk_rows   rows of w that bulk copies bring to a slot, or 0: there are none
is_split    whether work-groups pass sums to each other
</%doc>
<%namespace name="passing" file="passing.cl.mako"/>\
<% kind = {"fp16": "f16", "bf16": "bf16"}[dtype] %>\
/* a 32-bit address of local memory, as PTX wants it */
typedef uint local_t;

local_t shared_address(__local const void *pointer)
{
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}
#define UNIT_MEMORY __local ulong sums_sent; const local_t base = shared_address(tiles), sent = shared_address(&sums_sent);

/* a barrier in two halves: once each warp's first lane has said that its sums are sent for the n-th
   time, none waits any longer for that; `parity` is n's last bit, counted from 0 */
#define SUMS_BEGIN(id, warps) do { \
    if ((id) == 0) __asm__ volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(sent), "r"(warps) : "memory"); \
    barrier(CLK_LOCAL_MEM_FENCE); \
} while (0)
#define SUMS_SENT(lane) if ((lane) == 0) __asm__ volatile( \
    "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(sent) : "memory")
#define SUMS_AWAIT(parity) __asm__ volatile( \
    "{ .reg .pred done; again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1; @!done bra again; }" \
    :: "r"(sent), "r"(parity) : "memory")

% if bulk_rows:
/* a barrier that ${bulk_rows} lanes pass for each tile, each with the bytes that it has brought then; the
   parity of its phases alternates */
#define TILE_BEGIN(at) __asm__ volatile( \
    "mbarrier.init.shared.b64 [%0], ${bulk_rows}; fence.mbarrier_init.release.cluster;" :: "r"(at) : "memory")
#define TILE_AWAIT(at, parity) __asm__ volatile( \
    "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" \
    :: "r"(at), "r"(parity) : "memory")
#define BRING(to, from, bytes, at) __asm__ volatile( \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2; " \
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
    :: "r"(to), "l"(from), "r"(bytes), "r"(at) : "memory")
% endif
/* copies ${width} bytes, or as many zeros where `valid` is 0 */
#define COPY_BYTES(to, from, valid) __asm__ volatile( \
    "cp.async.${"cg" if width == 16 else "ca"}.shared.global [%0], [%1], ${width}, %2;" \
    :: "r"(to), "l"(from), "r"(valid) : "memory")
#define COPY_COMMIT() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory")
#define WARP_SYNC() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")

/* the number of the lane whose index differs in the bits of the mask */
float from_lane(const float value, const int mask)
{
    float d;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(d) : "f"(value), "r"(mask));
    return d;
}

% if is_split:
${passing.instructions_of_one()}\

% endif
/* neighbours of x, or zeros; such loads stay where they are written, far before their use */
<%
    word, letter, zero = ("f32", "f", "0f00000000") if elem_bytes == 4 else ("b32", "r", "0")
    names = "xyzw"[: x_bytes // 4]
    registers = ", ".join(f"%{i}" for i in range(len(names)))
%>\
#define LOAD_X(value, p, valid) __asm__ volatile( \
    "{ .reg .pred go; setp.ne.s32 go, %${len(names) + 1}, 0; ${" ".join(f"mov.{word} %{i}, {zero};" for i in range(len(names)))} " \
    "@go ld.global.nc.v${len(names)}.${word} {${registers}}, [%${len(names)}]; }" \
    : ${", ".join(f'"={letter}"((value).{name})' for name in names)} : "l"(p), "r"((int)(valid)))

/* 8 and 16 bytes of weights, or zeros; such loads stay where they are written, too */
#define LOAD_PAIR(value, p, valid) __asm__ volatile( \
    "{ .reg .pred go; setp.ne.s32 go, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; " \
    "@go ld.global.nc.v2.b32 {%0, %1}, [%2]; }" \
    : "=r"((value).x), "=r"((value).y) : "l"(p), "r"((int)(valid)))
#define LOAD_FOUR(value, p, valid) __asm__ volatile( \
    "{ .reg .pred go; setp.ne.s32 go, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; " \
    "@go ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }" \
    : "=r"((value).x), "=r"((value).y), "=r"((value).z), "=r"((value).w) : "l"(p), "r"((int)(valid)))

/* a & mask | bits, which compilers make two instructions of where both are constants */
uint masked(const uint a, const uint mask, const uint bits)
{
    uint d;
    __asm__("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
    return d;
}

/* the pair of both numbers' lower or upper halves, the first number's below */
% for name, bytes in (("low", "0x5410"), ("high", "0x7632")):
uint ${name}_halves(const uint a, const uint b)
{
    uint d;
    __asm__("prmt.b32 %0, %1, %2, ${bytes};" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
% endfor

% if elem_bytes == 4:
/* the pair of two numbers, rounded to fp16, and its numbers */
uint pair_of(const float low, const float high)
{
    uint d;
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
% for name, registers in (("low", "half, other"), ("high", "other, half")):
float ${name}_of(const uint pair)
{
    float d;
    __asm__("{ .reg .b16 half, other; mov.b32 {${registers}}, %1; cvt.f32.f16 %0, half; }" : "=f"(d) : "r"(pair));
    return d;
}
% endfor

% endif
/* the pair of a's even or odd bytes, with the same byte above each */
% for name, bytes in (("even", "0x4240"), ("odd", "0x4341")):
uint ${name}_bytes(const uint a, const uint above)
{
    uint d;
    __asm__("prmt.b32 %0, %1, %2, ${bytes};" : "=r"(d) : "r"(a), "r"(above));
    return d;
}
% endfor

/* pairs a - b */
uint difference(const uint a, const uint b)
{
    uint d;
    __asm__("fma.rn.${kind}x2 %0, %1, %2, %3;" : "=r"(d) : "r"(b), "r"(${"0xbc00bc00u" if dtype == "fp16" else "0xbf80bf80u"}), "r"(a));
    return d;
}

/* MMA_HERE is not moved out of loops, before which its results would take registers */
% for name, volatile in (("MMA", ""), ("MMA_HERE", " volatile")):
#define ${name}(c, a, b0, b1) __asm__${volatile}( \
    "mma.sync.aligned.m16n8k16.row.col.f32.${kind}.${kind}.f32 " \
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
    : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
    : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "r"(b0), "r"(b1))
% endfor
