<%doc>
GEMM in fp32 with work-group tiles that `cp.async` copies: C = act(op(A) op(B) + bias), batched.

A work-group computes tile_m x tile_n of C in steps of tile_k. Tiles lie in local memory as rows of
k, so that a work-item reads vectors of four along m and n. While it computes with one tile, the
next ones are on their way, through no register: an operand that lies along k is transposed by
copies of single words, any other comes 16 bytes at a time, or by words where it is not aligned.

tile_m, tile_n      tile of C per work-group
tile_k              steps of the reduction per tile, written out
local_m, local_n    work-items per group; item_m = tile_m / local_m, item_n likewise
warp_m              work-items of a warp along m; its other 32 / warp_m lie along n
pad_a, pad_b        unused elements behind each row of a tile, against bank conflicts
stages              tiles in local memory, being copied or computed with
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
edge_m, _n, _k      the tile does not divide the size: guard what lies past it
pack_a, pack_b      the operand was turned into whole tiles first: see `Pack`
along_a, along_b    A is stored [m, k], B is stored [n, k]
activation, bias    epilogue; "none", "m" or "n"
</%doc>
<%
    work_items = local_m * local_n
    split = split_k > 1
    warp_n = 32 // warp_m
    chunks_m, chunks_n = range(item_m // 4), range(item_n // 4)
    # operand: along k in memory, tile extent, row of the tile, where it starts, size and its edge
    sides = {
        "a": (along_a and not pack_a, tile_m, tile_m + pad_a, 0, "tile_row", "m", edge_m),
        "b": (along_b and not pack_b, tile_n, tile_n + pad_b, tile_k * (tile_m + pad_a), "tile_column", "n", edge_n),
    }
    packed = {"a": pack_a, "b": pack_b}
    stage = tile_k * (tile_m + pad_a + tile_n + pad_b)

    def plus(offset):
        return f" + {offset}" if offset else ""
    def row(c, x):
        return f"m0{plus(c * local_m * 4 + x)}"
    def column(c, x):
        return f"n0{plus(c * local_n * 4 + x)}"
    def plus_bias(i, j, x, width):
        if bias == "none":
            return ""
        return f" + bias[{row(i // 4, i % 4)}]" if bias == "m" else f" + {'vload4(0, ' if width > 1 else '*('}bias + {column(j, x)})"
%>\
${preamble}
% if not split:
${activation}
% endif

/* copies one word, or none and writes zero, sometime before COPY_WAIT */
void copy_word(const uint to, __global const float *from, const bool valid)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}

/* copies the first `valid` of four neighbours and zeros behind them */
void copy_four(const uint to, __global const float *from, const int valid, const bool aligned)
{
    if (aligned) {
        __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(to), "l"(from), "r"(4 * valid) : "memory");
    } else {
        for (int i = 0; i < 4; ++i) {
            copy_word(to + 4 * i, from + i, i < valid);
        }
    }
}

#define COPY_COMMIT() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory")

<%def name="copy(slot)">\
% for side, (along_k, tile, stride, start, first, extent, edge) in sides.items():
% for i in range(tile * tile_k // ((1 if along_k else 4) * work_items)):
<%
    if packed[side]:
        to, pointer, valid = f"{slot} + to_{side}{plus(16 * i * work_items)}", f"from_{side}{plus(4 * i * work_items)}", "4"
    elif along_k:
        apart = i * (work_items // tile_k)
        to, pointer = f"{slot} + to_{side}{plus(4 * apart)}", f"from_{side}" + (f" + {apart} * (long)ld_{side}" if apart else "")
        valid = [f"x_{side}{plus(apart)} < {extent}"] * edge + [f"k_{side} < k_last"] * edge_k
        valid = " && ".join(valid) or "true"
    else:
        apart = i * (work_items // (tile // 4))
        to, pointer = f"{slot} + to_{side}{plus(4 * apart * stride)}", f"from_{side}" + (f" + {apart} * (long)ld_{side}" if apart else "")
        valid = f"clamp({extent} - x_{side}, 0, 4)" if edge else "4"
        valid = f"k_{side}{plus(apart)} < k_last ? {valid} : 0" if edge_k else valid
%>\
% if along_k:
            copy_word(base${to}, ${pointer}, ${valid});
% else:
            copy_four(base${to}, ${pointer}, ${valid}, ${"true" if packed[side] else f"aligned_{side}"});
% endif
% endfor
            from_${side} += step_${side};
% if edge_k and not packed[side]:
            k_${side} += ${tile_k};
% endif
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void gemm_async(
    __global const float *restrict a, const long offset_a, const int ld_a, const long batch_a,
    __global const float *restrict b, const long offset_b, const int ld_b, const long batch_b,
    __global float *restrict c, const long offset_c, const int ld_c, const long batch_c,
% if bias != "none":
    __global const float *restrict bias, const long offset_bias,
% endif
    const int m, const int n, const int k${", const int slice, const int batch" if split else ""})
{
    __local float tiles[${stages * stage}] __attribute__((aligned(16)));
    uint base;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(base) : "l"(tiles));
    const int id = (int)get_local_id(0), warp = id / 32, lane = id % 32;

    // strips of group_m rows of tiles, each swept column by column
    const int tiles_m = (m + ${tile_m - 1}) / ${tile_m}, tiles_n = (n + ${tile_n - 1}) / ${tile_n};
    const int strip = (int)get_group_id(0) / (${group_m} * tiles_n);
    const int place = (int)get_group_id(0) - strip * ${group_m} * tiles_n;
    const int height = min(${group_m}, tiles_m - strip * ${group_m});
    const int tile_row = (strip * ${group_m} + place % height) * ${tile_m};
    const int tile_column = place / height * ${tile_n};
    const int at_m = (warp % ${local_m // warp_m} * ${warp_m} + lane / ${warp_n}) * 4;
    const int at_n = (warp / ${local_m // warp_m} * ${warp_n} + lane % ${warp_n}) * 4;
    const int m0 = tile_row + at_m, n0 = tile_column + at_n;

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

    // where this work-item's first copy of each tile comes from and goes to
% for side, (along_k, tile, stride, start, first, extent, edge) in sides.items():
% if packed[side]:
    const uint to_${side} = 4 * (${start} + 4 * id);
    __global const float *from_${side} = ${side} + ${first} / ${tile} * (long)ld_${side} + (k_first * ${tile} + 4 * id);
    const long step_${side} = ${tile_k * tile};
% elif along_k:
    const int x_${side} = ${first} + id / ${tile_k};
    int k_${side} = k_first + id % ${tile_k};
    const uint to_${side} = 4 * (${start} + id % ${tile_k} * ${stride} + id / ${tile_k});
    __global const float *from_${side} = ${side} + x_${side} * (long)ld_${side} + k_${side};
    const long step_${side} = ${tile_k};
% else:
    const bool aligned_${side} = IS_ALIGNED(${side}, ld_${side}, 4, 4);
    const int x_${side} = ${first} + id % ${tile // 4} * 4;
    int k_${side} = k_first + id / ${tile // 4};
    const uint to_${side} = 4 * (${start} + id / ${tile // 4} * ${stride} + id % ${tile // 4} * 4);
    __global const float *from_${side} = ${side} + k_${side} * (long)ld_${side} + x_${side};
    const long step_${side} = ${tile_k} * (long)ld_${side};
% endif
% endfor

% for i in range(item_m):
    float4 ${", ".join(f"acc{i}_{j} = 0.0f" for j in chunks_n)};
% endfor
    const int steps = (k_last - k_first + ${tile_k - 1}) / ${tile_k};
    uint reading = 0, writing = ${(stages - 1) * stage};
    for (int s = 0; s < ${stages - 1}; ++s) {
        if (s < steps) {
${copy(f" + s * {4 * stage}")}\
        }
        COPY_COMMIT();
    }
    for (int step = 0; step < steps; ++step) {
        COPY_WAIT(${stages - 2});
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + ${stages - 1} < steps) {
${copy(" + 4 * writing")}\
        }
        COPY_COMMIT();
        __local const float *read_a = tiles + reading + at_m;
        __local const float *read_b = tiles + reading + ${sides["b"][3]} + at_n;
% for q in range(tile_k):
        {
% for i in chunks_m:
            const float4 a${i} = *(__local const float4 *)(read_a + ${q * (tile_m + pad_a) + i * local_m * 4});
% endfor
% for j in chunks_n:
            const float4 b${j} = *(__local const float4 *)(read_b + ${q * (tile_n + pad_b) + j * local_n * 4});
% endfor
% for i in range(item_m):
% for j in chunks_n:
            acc${i}_${j} = a${i // 4}.s${i % 4} * b${j} + acc${i}_${j};
% endfor
% endfor
        }
% endfor
        reading = reading == ${(stages - 1) * stage} ? 0 : reading + ${stage};
        writing = writing == ${(stages - 1) * stage} ? 0 : writing + ${stage};
    }

    const bool wide = IS_ALIGNED(c, ld_c, 4, 4);
<% act = "" if split else "ACT" %>\
% for i in range(item_m):
    ${f"if ({row(i // 4, i % 4)} < m) " if edge_m else ""}{
        __global float *out = c + (${row(i // 4, i % 4)}) * (long)ld_c;
% for j in chunks_n:
        if (wide${f" && {column(j, 3)} < n" if edge_n else ""}) {
            const float4 value = acc${i}_${j}${plus_bias(i, j, 0, 4)};
            *(__global float4 *)(out + ${column(j, 0)}) = ${act}(value);
        } else {
% for x in range(4):
            ${f"if ({column(j, x)} < n) " if edge_n else ""}{
                const float value = acc${i}_${j}.s${x}${plus_bias(i, j, x, 1)};
                out[${column(j, x)}] = ${act}(value);
            }
% endfor
        }
% endfor
    }
% endfor
}
