<%doc>
What a kernel on matrix units needs around its own copies and stores: asynchronous copies of 16
bytes into local memory, and one step of C += A B on tiles that lie there as `Layout` says.

The kernel calls LOCAL(tiles) once, `copy_chunk`, COPY_COMMIT(), AWAIT_TILE() before the barrier
that precedes `multiply`, and AWAIT_PRODUCTS() before it reads `acc`; `pair_of` makes two 16-bit
results a word. Of the block of C that a warp (with wgmma: each of four) works on, acc[i][4 * j + 2
* h + e] lies at ROW(i, h), COLUMN(j) + e. The kernel's preamble defines elem_t, and `id` is its
work-item.

wgmma stands in comments, which `oclgen.opencl.ptx` turns into instructions.

unit                "mma" or "wgmma"
dtype, elem_bytes   what the units round to, and the bytes of an element in memory
tile_k              steps of the reduction per tile
blocks_m, blocks_n  blocks of 16 (wgmma: 64) rows and of 8 columns that a warp computes
ahead, pending      tiles copied ahead; steps of wgmma that may still run while the next one begins
a, b                how the operand lies in local memory: see `Layout`
pieces, shifted     bytes of what is copied of uneven rows, and whether some are shifted: see `Pieces`
unrounded           sides ("a", "b", "ab") whose fp32 mma.sync has to round to tf32; wgmma cuts them
                    off
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
    from oclgen.families.parts.mma_units_text import (
        K_BYTES,
        lane_of,
        moved,
        offset,
        transposed,
        words,
    )
%>\
<%
    wgmma = unit == "wgmma"
    tf32 = dtype == "tf32"
    sides = (("a", a, blocks_m, 0), ("b", b, blocks_n // 2, a.bytes))
    k_blocks = tile_k * elem_bytes // K_BYTES
    chunk = 16 // elem_bytes
    type_name = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}[dtype]
    k_name = "k8" if tf32 else "k16"
%>\
/* a 32-bit address of local memory, as PTX wants it */
typedef uint local_t;

local_t shared_address(__local const void *pointer)
{
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}
#define LOCAL(tiles) shared_address(tiles)

/* copies the first `valid` elements of a 16-byte chunk and zeros behind them, sometime before AWAIT_TILE */
void copy_chunk(const local_t to, __global const elem_t *from, const int valid)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(from), "r"(valid * ${elem_bytes}) : "memory");
}

% for piece in pieces:
/* the same of ${piece} bytes */
void copy_piece${piece}(const local_t to, __global const elem_t *from, const int valid)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], ${piece}, %2;"
                     :: "r"(to), "l"(from), "r"(valid * ${elem_bytes}) : "memory");
}

% endfor
% if shifted:
/* lets the units see what this work-item has written to a tile, behind the next barrier */
% if wgmma:
#define SHOW_TILE() __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory")
% else:
#define SHOW_TILE()
% endif

% endif
% if dtype != "tf32":
/* two neighbours as they are stored, rounded to nearest even */
uint pair_of(const float2 value)
{
    uint pair;
    __asm__("cvt.rn.${type_name}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value.y), "f"(value.x));
    return pair;
}

% endif
#define COPY_COMMIT() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory")

% if wgmma:
<%
    count = blocks_n * 4
    outputs = ", ".join(f"%{i}" for i in range(count))
    scales = "1, 1" if tf32 else f"1, 1, {0 if a.along_k else 1}, {0 if b.along_k else 1}"
%>\
/* wgmma's descriptor of a tile */
typedef ulong place_t;
#define MOVED(place, bytes) (place + ((bytes) >> 4))
#define ROW(i, h) (64 * (i) + 8 * (h) + id / 32 % 4 * 16 + id % 32 / 4)
#define COLUMN(j) (8 * (j) + id % 4 * 2)

#define WGMMA_FENCE() __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT(n) __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define WGMMA(c, a, b) __asm__ volatile( \
    "//sm_90a { .reg .pred p; setp.ne.b32 p, 1, 0; " \
    "wgmma.mma_async.sync.aligned.m64n${8 * blocks_n}${k_name}.f32.${type_name}.${type_name} " \
    "{${outputs}}, %${count}, %${count + 1}, p, ${scales}; }" \
    : ${", ".join(f'"+f"(c[{i}])' for i in range(count))} \
    : "l"(a), "l"(b) : "memory")

void await_tile(void)
{
    COPY_WAIT(${ahead - 1});
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
    WGMMA_WAIT(${pending});
}
#define AWAIT_TILE() await_tile()
#define AWAIT_PRODUCTS() WGMMA_WAIT(0)

% for side, lay, _, start in sides:
place_t place_${side}(const local_t base, const int first, const int id)
{
<% bytes_in = f"first * {lay.row_bytes}" if lay.along_k else f"first / {lay.panel} * {tile_k * 128}" %>\
    return 0x${f"{lay.descriptor:x}"}UL + ((base${plus(start)} + ${bytes_in}) >> 4);
}

% endfor
__attribute__((always_inline))
void multiply(float (*acc)[${4 * blocks_n}], const place_t a, const place_t b)
{
    WGMMA_FENCE();
% for q in range(k_blocks):
% for i in range(blocks_m):
    WGMMA(acc[${i}], a${plus(offset(a, 64 * i, q))}, b${plus(offset(b, 0, q))});
% endfor
% endfor
    WGMMA_COMMIT();
}
% else:
/* where this work-item reads its first fragment of a tile */
typedef uint place_t;
#define MOVED(place, bytes) (place + (bytes))
#define ROW(i, h) (16 * (i) + 8 * (h) + id % 32 / 4)
#define COLUMN(j) (8 * (j) + id % 4 * 2)
#define AWAIT_TILE() COPY_WAIT(${ahead - 1})
#define AWAIT_PRODUCTS()

#define MMA(c, at, a, b0, b1) __asm__ volatile( \
    "mma.sync.aligned.m16n8${k_name}.row.col.f32.${type_name}.${type_name}.f32 " \
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
    : "+f"(c[at]), "+f"(c[at + 1]), "+f"(c[at + 2]), "+f"(c[at + 3]) \
    : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1))

% if unrounded:
uint to_tf32(const uint value)
{
    uint rounded;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(as_float(value)));
    return rounded;
}
#define TO_TF32(v) (uint4)(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w))

% endif
% if any(lay.by_words for lay in (a, b)):
uint word(const uint address)
{
    uint value;
    __asm__ volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

% endif
% for turned in sorted({not lay.along_k for lay in (a, b) if not lay.by_words}):
uint4 fragment${"_trans" if turned else ""}(const uint address)
{
    uint x, y, z, w;
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4${".trans" if turned else ""}.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(address) : "memory");
    return (uint4)(x, y, z, w);
}

% endfor
% for side, lay, _, start in sides:
<% part = lane_of(side, lay) %>\
place_t place_${side}(const local_t base, const int first, const int id)
{
    const uint lane = id % 32;
% if lay.along_k:
    const uint line = first + ${part.across};
    return base${plus(start)} + line * ${lay.row_bytes} + (${part.along} ^ ${lay.swizzle("line")}) * 16;
% else:
    const uint line = ${part.along};
    return base${plus(start)} + (first / ${lay.panel} * ${tile_k} + line) * 128
        + ((first % ${lay.panel} / ${chunk} + ${part.across}) ^ ${lay.swizzle("line")}) * 16${part.word};
% endif
}

% endfor
__attribute__((always_inline))
void multiply(float (*acc)[${4 * blocks_n}], const place_t a, const place_t b)
{
% for q in range(k_blocks):
    {
% for side, lay, count, _ in sides:
<% name = f"raw_{side}" if side in unrounded else side %>\
% for i in range(count):
% if lay.by_words:
        const uint4 ${name}${i} = (uint4)(${words(side, lay, i, q)});
% elif lay.along_k:
        const uint4 ${name}${i} = fragment(${moved(side, K_BYTES * q, i * 16 * lay.row_bytes)});
% else:
        const uint4 ${name}${i} = fragment_trans(${transposed(side, lay, i, q)});
% endif
% if side in unrounded:
        const uint4 ${side}${i} = TO_TF32(${name}${i});
% endif
% endfor
% endfor
% for i in range(blocks_m):
% for j in range(blocks_n):
        MMA(acc[${i}], ${4 * j}, a${i}, b${j // 2}.${"xz"[j % 2]}, b${j // 2}.${"yw"[j % 2]});
% endfor
% endfor
    }
% endfor
}
% endif
