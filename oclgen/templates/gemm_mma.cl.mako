<%doc>
GEMM on matrix units: C = act(op(A) op(B) + bias), batched, row-major, fp32 accumulation.

A work-group computes tile_m x tile_n of C in steps of tile_k. `cp.async` copies the tiles of the
next steps into local memory while the units work on this one; past the edge it writes zeros.
Operands whose rows or pointers are not 16-byte aligned are copied element by element.

A tile lies in local memory as rows of 32 to 128 bytes: an operand stored along k as one row per
row or column of C, any other as panels 128 bytes wide with one row per step of k. The 16-byte
chunks of a row are swizzled, so that neither `ldmatrix` nor wgmma meets a bank twice.

unit                "mma": `mma.sync`, each warp on its own block; "wgmma": `wgmma.mma_async`,
                    four warps on blocks of 64 rows, straight from local memory. wgmma stands in
                    comments, which `oclgen.ptx` turns into instructions
dtype, activation   storage of A, B, C and bias, and what the units round to; epilogue
tile_m, tile_n      tile of C per work-group
tile_k              steps of the reduction per tile
warps_m, warps_n    warps (32 work-items) per work-group; a block of C for each
stages              tiles in local memory, being copied or computed with
pending             steps of wgmma that may still run while the next one begins
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
edge_m, _n, _k      the tile does not divide the size: guard what lies past it
bias                "none", "m" or "n"
a, b                how the operand lies in local memory: see `Layout`
</%doc>
<%
    wgmma = unit == "wgmma"
    work_items = 32 * warps_m * warps_n
    split = split_k > 1
    tf32 = dtype == "tf32"
    word = "uint" if tf32 else "ushort"
    c_type, c_bytes = ("float", 4) if split else ("elem_t", elem_bytes)
    chunk = 16 // elem_bytes
    stage_bytes = a.bytes + b.bytes
    sides = {"a": a, "b": b}
    edges = {"a": edge_m, "b": edge_n}
    extents = {"a": "m", "b": "n"}
    firsts = {"a": "tile_row", "b": "tile_column"}
    # one matrix instruction covers 32 bytes of k: 16 values of 16 bits or 8 of tf32
    k_blocks = tile_k * elem_bytes // 32
    warp_m, warp_n = tile_m // warps_m, tile_n // warps_n
    if wgmma:
        warp_m *= 4
    block_m = 64 if wgmma else 16
    blocks_m, blocks_n = warp_m // block_m, warp_n // 8
    type_name = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}[dtype]
    k_name = "k8" if tf32 else "k16"
    ahead = stages - 1 - pending

    def read(side, flip):
        return f"(read_{side} ^ {flip})" if flip else f"read_{side}"
    def plus(offset):
        return f" + {offset}" if offset else ""
    def plus_bias(j):
        return {"none": "", "m": " + LOAD1(bias + row)", "n": f" + bias{j}"}[bias]
%>\
${preamble}
% if not split:
${activation}
% endif

/* the 32-bit address of local memory that PTX wants */
uint shared_address(__local const void *pointer)
{
    uint address;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}

/* copies the first `valid` elements of a 16-byte chunk and zeros behind them, sometime before COPY_WAIT */
void copy_chunk(const uint to, __global const elem_t *from, const int valid)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(from), "r"(valid * ${elem_bytes}) : "memory");
}

% if not (a.packed and b.packed):
/* the same, at once, for operands that are not aligned */
void copy_elements(__local uchar *to, __global const elem_t *from, const int valid)
{
    for (int i = 0; i < ${chunk}; ++i) {
        ((__local ${word} *)to)[i] = i < valid ? ((__global const ${word} *)from)[i] : 0;
    }
}

% endif
#define COPY_COMMIT() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory")

% if wgmma:
<%
    count = warp_n // 2
    outputs = ", ".join(f"%{i}" for i in range(count))
    scales = "1, 1" if tf32 else f"1, 1, {0 if a.along_k else 1}, {0 if b.along_k else 1}"
%>\
#define WGMMA_FENCE() __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT(n) __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define WGMMA(c, a, b) __asm__ volatile( \
    "//sm_90a { .reg .pred p; setp.ne.b32 p, 1, 0; " \
    "wgmma.mma_async.sync.aligned.m64n${warp_n}${k_name}.f32.${type_name}.${type_name} " \
    "{${outputs}}, %${count}, %${count + 1}, p, ${scales}; }" \
    : ${", ".join(f'"+f"(c[{i}])' for i in range(count))} \
    : "l"(a), "l"(b) : "memory")
% else:
#define MMA(c, at, a, b0, b1) __asm__ volatile( \
    "mma.sync.aligned.m16n8${k_name}.row.col.f32.${type_name}.${type_name}.f32 " \
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
    : "+f"(c[at]), "+f"(c[at + 1]), "+f"(c[at + 2]), "+f"(c[at + 3]) \
    : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1))

% if tf32:
uint to_tf32(const uint value)
{
    uint rounded;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(as_float(value)));
    return rounded;
}
% endif

% for transposed in sorted({not lay.along_k for lay in (a, b) if not lay.by_words}):
uint4 fragment${"_trans" if transposed else ""}(const uint address)
{
    uint x, y, z, w;
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4${".trans" if transposed else ""}.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(address) : "memory");
% if tf32:
    return (uint4)(to_tf32(x), to_tf32(y), to_tf32(z), to_tf32(w));
% else:
    return (uint4)(x, y, z, w);
% endif
}

% endfor
% endif
void store_pair(__global ${c_type} *out, const int column, const int n, const bool wide, const float2 value)
{
    if (wide${" && column + 1 < n" if edge_n else ""}) {
% if split:
        *(__global float2 *)(out + column) = value;
% else:
        ALIGNED_STORE2(ACT(value), out + column);
% endif
    } else {
% for x, lane in enumerate("xy"):
        ${f"if (column + {x} < n) " if edge_n else ""}{
% if split:
            out[column + ${x}] = value.${lane};
% else:
            STORE1(ACT(value.${lane}), out + column + ${x});
% endif
        }
% endfor
    }
}

<%def name="copy(slot)">\
% for side, lay in sides.items():
% if lay.packed:
% for i in range(lay.bytes // (16 * work_items)):
            copy_chunk(base${slot} + to_${side}${plus(i * work_items * 16)}, from_${side}${plus(i * work_items * chunk)}, ${chunk});
% endfor
% else:
% for aligned in (True, False):
            ${f"if (aligned_{side})" if aligned else "else"} {
% for i in range(lay.bytes // (16 * work_items)):
<%
    across, along = lay.neighbour(i, work_items)
    if lay.along_k:
        pointer = f"from_{side}" + (f" + {across} * (long)ld_{side}" if across else "")
        guards = (f"x_{side}{plus(across)} < {extents[side]}" if edges[side] else "",
                  f"k_last - k_{side}" if edge_k else "")
    else:
        pointer = f"from_{side}" + (f" + {along} * (long)ld_{side}" if along else "") + plus(across)
        guards = (f"k_{side}{plus(along)} < k_last" if edge_k else "",
                  f"{extents[side]} - x_{side}" + (f" - {across}" if across else "") if edges[side] else "")
    valid = f"clamp({guards[1]}, 0, {chunk})" if guards[1] else f"{chunk}"
    valid = f"{guards[0]} ? {valid} : 0" if guards[0] else valid
    to = f"{slot} + to_{side}{plus(i * work_items * 16)}"
%>\
% if aligned:
                copy_chunk(base${to}, ${pointer}, ${valid});
% else:
                copy_elements(tiles${to}, ${pointer}, ${valid});
% endif
% endfor
            }
% endfor
% if edge_k:
            k_${side} += ${tile_k};
% endif
% endif
            from_${side} += step_${side};
% endfor
</%def>\
<%def name="multiply()">\
% for q in range(k_blocks):
        {
% for side, lay, count, start in (("a", a, blocks_m, 0), ("b", b, blocks_n // 2, a.bytes)):
% for i in range(count):
% if lay.by_words:
<%
    parts = []
    for high in (0, 1):
        for low in (0, 1):
            e, h = (low, high) if side == "a" else (high, low)
            chunks = 4 * i + 2 * e
            flip, add = chunks % 8 * 16, chunks // 8 * tile_k * 128 + (8 * q + 4 * h) * 128
            parts.append(f"to_tf32(*(__local const uint *)(tiles + reading + {read(side, flip)}{plus(start + add)}))")
%>\
            const uint4 ${side}${i} = (uint4)(
                ${(",\n                ").join(parts)});
% else:
<%
    if lay.along_k:
        flip, add, name = 32 * q, i * 16 * lay.row_bytes, "fragment"
    else:
        flip, add, name = 2 * i % 8 * 16, 2 * i // 8 * tile_k * 128 + q * 2048, "fragment_trans"
%>\
            const uint4 ${side}${i} = ${name}(base + reading + ${read(side, flip)}${plus(start + add)});
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
</%def>\
<%def name="multiply_group()">\
        WGMMA_FENCE();
% for q in range(k_blocks):
% for i in range(blocks_m):
<%
    def offset(lay, block):
        if lay.along_k:
            return (block * lay.row_bytes + 32 * q) // 16
        return (block // lay.panel * tile_k * 128 + q * 2048) // 16
%>\
        WGMMA(acc[${i}], matrix_a + (reading >> 4)${plus(offset(a, 64 * i))}, matrix_b + (reading >> 4)${plus(offset(b, 0))});
% endfor
% endfor
        WGMMA_COMMIT();
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void gemm_mma(
    __global const elem_t *restrict a, const long offset_a, const int ld_a, const long batch_a,
    __global const elem_t *restrict b, const long offset_b, const int ld_b, const long batch_b,
    __global ${c_type} *restrict c, const long offset_c, const int ld_c, const long batch_c,
% if bias != "none":
    __global const elem_t *restrict bias, const long offset_bias,
% endif
    const int m, const int n, const int k${", const int slice, const int batch" if split else ""})
{
    __local uchar tiles[${stages * stage_bytes}] __attribute__((aligned(1024)));
    const uint base = shared_address(tiles);
    const int id = (int)get_local_id(0), lane = id % 32;

    // strips of group_m rows of tiles, each swept column by column
    const int tiles_m = (m + ${tile_m - 1}) / ${tile_m}, tiles_n = (n + ${tile_n - 1}) / ${tile_n};
    const int strip = (int)get_group_id(0) / (${group_m} * tiles_n);
    const int place = (int)get_group_id(0) - strip * ${group_m} * tiles_n;
    const int height = min(${group_m}, tiles_m - strip * ${group_m});
    const int tile_row = (strip * ${group_m} + place % height) * ${tile_m};
    const int tile_column = place / height * ${tile_n};

% if split:
    const int item = (int)get_global_id(2) % batch;
    const int k_first = (int)get_global_id(2) / batch * slice;
    const int k_last = min(k_first + slice, k);
% else:
    const int item = (int)get_global_id(2);
    const int k_first = 0, k_last = k;
% endif
    a += offset_a + item * batch_a;
    b += offset_b + item * batch_b;
    c += offset_c + (long)get_global_id(2) * batch_c;
% if bias != "none":
    bias += offset_bias;
% endif

    // where this work-item's first chunk of each tile comes from and goes to
% for side, lay in sides.items():
% if lay.packed:
    const uint to_${side} = id * 16${plus(a.bytes if side == "b" else 0)};
    __global const elem_t *from_${side} = ${side} + ${firsts[side]} / ${lay.tile} * (long)ld_${side} + k_first * ${lay.tile} + id * ${chunk};
    const long step_${side} = ${lay.tile * tile_k};
% else:
    const bool aligned_${side} = IS_ALIGNED(${side}, ld_${side}, ${elem_bytes}, ${chunk});
    const int row_${side} = id / ${lay.row_bytes // 16}, chunk_${side} = id % ${lay.row_bytes // 16};
    const uint to_${side} = row_${side} * ${lay.row_bytes} + (chunk_${side} ^ ${lay.swizzle(f"row_{side}")}) * 16${plus(a.bytes if side == "b" else 0)};
% if lay.along_k:
    const int x_${side} = ${firsts[side]} + row_${side};
    int k_${side} = k_first + chunk_${side} * ${chunk};
    __global const elem_t *from_${side} = ${side} + x_${side} * (long)ld_${side} + k_${side};
    const long step_${side} = ${tile_k};
% else:
    const int x_${side} = ${firsts[side]} + row_${side} / ${tile_k} * ${lay.panel} + chunk_${side} * ${chunk};
    int k_${side} = k_first + row_${side} % ${tile_k};
    __global const elem_t *from_${side} = ${side} + k_${side} * (long)ld_${side} + x_${side};
    const long step_${side} = ${tile_k} * (long)ld_${side};
% endif
% endif
% endfor

    // where its warp reads the tiles
    const int warp = id / 32;
% if wgmma:
    const int warp_row = warp % ${warps_m} / 4 * ${warp_m}, warp_column = warp / ${warps_m} * ${warp_n};
% for side, lay, first in (("a", a, "warp_row"), ("b", b, "warp_column")):
<% bytes_in = f"{first} * {lay.row_bytes}" if lay.along_k else f"{first} / {lay.panel} * {tile_k * 128}" %>\
    const ulong matrix_${side} = 0x${f"{lay.descriptor:x}"}UL + ((base${plus(a.bytes if side == "b" else 0)} + ${bytes_in}) >> 4);
% endfor
% else:
    const int warp_row = warp % ${warps_m} * ${warp_m}, warp_column = warp / ${warps_m} * ${warp_n};
% for side, lay, first in (("a", a, "warp_row"), ("b", b, "warp_column")):
% if lay.along_k:
<% across, along = ("lane % 16", "lane / 16") if side == "a" else ("lane % 8 + lane / 16 * 8", "lane / 8 % 2") %>\
    const uint line_${side} = ${first} + ${across};
    const uint read_${side} = line_${side} * ${lay.row_bytes} + (${along} ^ ${lay.swizzle(f"line_{side}")}) * 16;
% else:
<%
    if tf32:
        along, across, word_at = "lane % 4", "lane / 16", " + lane / 4 % 4 * 4"
    elif side == "a":
        along, across, word_at = "lane % 8 + lane / 16 * 8", "lane / 8 % 2", ""
    else:
        along, across, word_at = "lane % 16", "lane / 16", ""
%>\
    const uint line_${side} = ${along};
    const uint read_${side} = (${first} / ${lay.panel} * ${tile_k} + line_${side}) * 128
        + ((${first} % ${lay.panel} / ${chunk} + ${across}) ^ ${lay.swizzle(f"line_{side}")}) * 16${word_at};
% endif
% endfor
% endif

    float acc[${blocks_m}][${4 * blocks_n}] = {{0.0f}};

    const int steps = (k_last - k_first + ${tile_k - 1}) / ${tile_k};
    uint reading = 0, writing = ${ahead % stages * stage_bytes};
    for (int s = 0; s < ${ahead}; ++s) {
        if (s < steps) {
${copy(f" + s * {stage_bytes}")}\
        }
        COPY_COMMIT();
    }
    for (int step = 0; step < steps; ++step) {
        COPY_WAIT(${ahead - 1});
% if wgmma:
        __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
        WGMMA_WAIT(${pending});
% endif
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + ${ahead} < steps) {
${copy(" + writing")}\
        }
        COPY_COMMIT();
% if wgmma:
${multiply_group()}\
% else:
${multiply()}\
% endif
        reading = reading == ${(stages - 1) * stage_bytes} ? 0 : reading + ${stage_bytes};
        writing = writing == ${(stages - 1) * stage_bytes} ? 0 : writing + ${stage_bytes};
    }
% if wgmma:
    WGMMA_WAIT(0);
% endif

    const bool wide = IS_ALIGNED(c, ld_c, ${c_bytes}, 2);
    const int m0 = tile_row + warp_row${" + warp % 4 * 16" if wgmma else ""} + lane / 4;
    const int n0 = tile_column + warp_column + lane % 4 * 2;
% if bias == "n":
% for j in range(blocks_n):
% if edge_n:
    const float2 bias${j} = (float2)(
        n0${plus(8 * j)} < n ? LOAD1(bias + n0${plus(8 * j)}) : 0.0f,
        n0 + ${8 * j + 1} < n ? LOAD1(bias + n0 + ${8 * j + 1}) : 0.0f);
% else:
    const float2 bias${j} = (float2)(LOAD1(bias + n0${plus(8 * j)}), LOAD1(bias + n0 + ${8 * j + 1}));
% endif
% endfor
% endif
% for i in range(blocks_m):
% for h in (0, 1):
    {
        const int row = m0${plus(i * block_m + 8 * h)};
        ${"if (row < m) " if edge_m else ""}{
            __global ${c_type} *out = c + row * (long)ld_c;
% for j in range(blocks_n):
            store_pair(out, n0${plus(8 * j)}, n, wide, (float2)(acc[${i}][${4 * j + 2 * h}], acc[${i}][${4 * j + 2 * h + 1}])${plus_bias(j)});
% endfor
        }
    }
% endfor
% endfor
}
