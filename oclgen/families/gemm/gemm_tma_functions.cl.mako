<%doc>
What the kernel of `gemm_tma` calls: barriers, copies, matrix instructions, loads and stores.

dtype, chunk, tile_k   element's type, elements in 16 bytes, steps of the reduction per step
tile_n, items          columns of C per work-group, and work-items
pairs                  C is stored by two floats, else by eight elements of 16 bits
c_type                 type of an element of C
residual               a residual is read as C is stored
b                      how B lies in local memory: see `Layout`
</%doc>
<%
    tf32 = dtype == "tf32"
    word = "uint" if tf32 else "ushort"
    type_name = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}[dtype]
    k_name = "k8" if tf32 else "k16"
%>\
/* the 32-bit address of local memory that PTX wants */
uint shared_address(__local const void *pointer)
{
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}

/* whether the barrier's phase of this parity is over */
bool is_over(const uint barrier_at, const uint parity)
{
    uint over;
    __asm__ volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(barrier_at), "r"(parity) : "memory");
    return over != 0;
}

#define BARRIER_INIT(at, count) __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory")
#define EXPECT_BYTES(at, bytes) \
    __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory")
% if b.packed:
#define COPY(to, from, full) __asm__ volatile( \
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], ${b.bytes}, [%2];" \
    :: "r"(to), "l"(from), "r"(full) : "memory")
% else:
#define COPY(to, x, y, full) __asm__ volatile( \
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" \
    :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(item_b), "r"(full) : "memory")
% endif

% if tf32:
uint to_tf32(const uint value)
{
    uint rounded;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(as_float(value)));
    return rounded;
}

% endif
uint from_lane(const uint value, const int flip)
{
    uint other;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(value), "r"(flip));
    return other;
}

/* word i of what lane j of four gives is word j of what lane i gets */
uint4 turned(uint4 value)
{
    const bool odd = get_local_id(0) & 1, high = get_local_id(0) & 2;
    const uint a = from_lane(odd ? value.x : value.y, 1), b = from_lane(odd ? value.z : value.w, 1);
    value = odd ? (uint4)(a, value.y, b, value.w) : (uint4)(value.x, a, value.z, b);
    const uint c = from_lane(high ? value.x : value.z, 2), d = from_lane(high ? value.y : value.w, 2);
    return high ? (uint4)(c, d, value.z, value.w) : (uint4)(value.x, value.y, c, d);
}

/* 16 bytes, or zeros; no branch, since what waits for a branch waits for the bytes, too */
uint4 load(__global const elem_t *from, const bool inside)
{
    uint x, y, z, w;
    __asm__ volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; "
                     "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }"
                     : "=&r"(x), "=&r"(y), "=&r"(z), "=&r"(w) : "l"(from), "r"((uint)inside));
    return (uint4)(x, y, z, w);
}

/* the first `valid` of the elements in 16 bytes, zeros behind them */
uint4 load_elements(__global const elem_t *from, const int valid)
{
    ${word} each[${chunk}];
    for (int i = 0; i < ${chunk}; ++i) {
        each[i] = i < valid ? ((__global const ${word} *)from)[i] : 0;
    }
% if tf32:
    return vload4(0, each);
% else:
    return as_uint4(vload8(0, each));
% endif
}

% if not b.packed:
#define REPLACE(field, value) \
    __asm__ volatile("//sm_90a tensormap.replace.tile." field ", %1;" :: "l"(map), value : "memory")

/* describes B to the accelerator as [batch][row][element]; the codes are those of PTX ISA, "tensormap.replace" */
void describe(
    __local const ulong *fields, __global const elem_t *b, const int ld, const long stride, const int n, const int k, const int batch)
{
    ulong map;
    __asm__("cvta.to.shared.u64 %0, %1;" : "=l"(map) : "l"(fields));
    REPLACE("global_address.shared::cta.b1024.b64 [%0]", "l"(b));
    REPLACE("rank.shared::cta.b1024.b32 [%0]", "n"(2));
<%
    box = (tile_k, tile_n) if b.along_k else (b.panel, tile_k)
    sizes = ("k", "n") if b.along_k else ("n", "k")
%>\
% for dimension, (length, size) in enumerate(zip((*box, 1), (*sizes, "batch"))):
    REPLACE("box_dim.shared::cta.b1024.b32 [%0], ${dimension}", "r"(${length}));
    REPLACE("global_dim.shared::cta.b1024.b32 [%0], ${dimension}", "r"(${size}));
    REPLACE("element_stride.shared::cta.b1024.b32 [%0], ${dimension}", "r"(1));
% endfor
    REPLACE("global_stride.shared::cta.b1024.b64 [%0], 0", "l"((long)ld * ${b.elem_bytes}));
    REPLACE("global_stride.shared::cta.b1024.b64 [%0], 1", "l"(stride * ${b.elem_bytes}));
    // 16 bits are copied as they are, fp32 is rounded to tf32
    REPLACE("elemtype.shared::cta.b1024.b32 [%0]", "n"(${11 if tf32 else 1}));
    REPLACE("interleave_layout.shared::cta.b1024.b32 [%0]", "n"(0));
    REPLACE("swizzle_mode.shared::cta.b1024.b32 [%0]", "n"(${{32: 1, 64: 2, 128: 3}[b.row_bytes]}));
    REPLACE("fill_mode.shared::cta.b1024.b32 [%0]", "n"(0));
}

/* makes 128 bytes of local memory a map that this work-group may copy by; it takes a whole warp */
void publish(__local const ulong *fields, __global uchar *map)
{
    ulong from;
    __asm__("cvta.to.shared.u64 %0, %1;" : "=l"(from) : "l"(fields));
    __asm__ volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
                     :: "l"(map), "l"(from) : "memory");
    __asm__ volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
}

% endif
% if not b.packed:
/* copies a tile of b element by element, zeros past the edge */
void copy_elements(
    __local uchar *to, __global const elem_t *b, const int ld, const int x0, const int k0, const int n, const int k)
{
    for (int i = (int)get_local_id(0); i < ${b.bytes // 16}; i += ${items}) {
        const int row = i / ${b.row_bytes // 16}, at = i % ${b.row_bytes // 16};
% if b.along_k:
        const int x = x0 + row, p = k0 + at * ${chunk};
        uint4 read = load_elements(b + x * (long)ld + p, x < n ? k - p : 0);
% else:
        const int x = x0 + row / ${tile_k} * ${b.panel} + at * ${chunk}, p = k0 + row % ${tile_k};
        uint4 read = load_elements(b + p * (long)ld + x, p < k ? n - x : 0);
% endif
% if tf32:
        read = (uint4)(to_tf32(read.x), to_tf32(read.y), to_tf32(read.z), to_tf32(read.w));
% endif
        *(__local uint4 *)(to + row * ${b.row_bytes} + (at ^ ${b.swizzle("row")}) * 16) = read;
    }
}

% endif
<%
    count = tile_n // 2
    outputs = ", ".join(f"%{i}" for i in range(count))
    operand = ", ".join(f"%{count + i}" for i in range(4))
    scales = "1, 1" if tf32 else f"1, 1, {0 if b.along_k else 1}"
%>\
#define WGMMA_FENCE() __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT(n) __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define WGMMA(c, a0, a1, a2, a3, b) __asm__ volatile( \
    "//sm_90a { .reg .pred p; setp.ne.b32 p, 1, 0; " \
    "wgmma.mma_async.sync.aligned.m64n${tile_n}${k_name}.f32.${type_name}.${type_name} " \
    "{${outputs}}, {${operand}}, %${count + 4}, p, ${scales}; }" \
    : ${", ".join(f'"+f"(c[{i}])' for i in range(count))} \
    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b) : "memory")

% if pairs:
void store_pair(__global ${c_type} *out, const int column, const int n, const bool wide, const float2 value)
{
    if (wide && column + 1 < n) {
        *(__global float2 *)(out + column) = value;
    } else {
% for x, lane in enumerate("xy"):
        if (column + ${x} < n) {
            out[column + ${x}] = value.${lane};
        }
% endfor
    }
}
% if residual:

float2 load_pair(__global const elem_t *from, const int column, const int n, const bool wide)
{
    if (wide && column + 1 < n) {
        return *(__global const float2 *)(from + column);
    }
    return (float2)(column < n ? from[column] : 0.0f, column + 1 < n ? from[column + 1] : 0.0f);
}
% endif
% else:
/* two values as they are stored: one instruction rounds both */
uint packed(const float2 value)
{
    uint both;
    __asm__("cvt.rn.${type_name}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(value.y), "f"(value.x));
    return both;
}

void store_eight(__global elem_t *out, const int column, const int n, const bool wide, const uint4 value)
{
    if (wide && column + 7 < n) {
        *(__global uint4 *)(out + column) = value;
    } else {
% for x in range(8):
        if (column + ${x} < n) {
            ((__global ushort *)out)[column + ${x}] = (ushort)(value.${"xyzw"[x // 2]}${" >> 16" if x % 2 else ""});
        }
% endfor
    }
}
% if residual:

uint4 load_eight(__global const elem_t *from, const int column, const int n, const bool wide)
{
    return wide && column + 7 < n ? *(__global const uint4 *)(from + column) : load_elements(from + column, n - column);
}

/* the two values that `packed` made one word */
float2 unpacked(const uint both)
{
% if dtype == "bf16":
    return as_float2((uint2)(both << 16, both & 0xffff0000u));
% else:
    float first, second;
    __asm__("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(first), "=f"(second) : "r"(both));
    return (float2)(first, second);
% endif
}
% endif
% endif
