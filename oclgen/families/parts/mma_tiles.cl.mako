<%doc>
What kernels around `mma_units` share: the reduction over tiles that `cp.async` copies, chunks that
are copied where it cannot, and results that pass through the tiles' local memory, so that
neighbours store to neighbours. Defs for other templates, no text of its own. `staging` says which
results leave at once: see `Staging`.
</%doc>
<%def name="copy_elements(elem_bytes)">\
<% word = "uint" if elem_bytes == 4 else "ushort" %>\
/* copies the first `valid` elements of a chunk that is not aligned and zeros behind them, at once */
void copy_elements(__local uchar *to, __global const elem_t *from, const int valid)
{
    for (int i = 0; i < ${16 // elem_bytes}; ++i) {
        ((__local ${word} *)to)[i] = i < valid ? ((__global const ${word} *)from)[i] : 0;
    }
}
</%def>

<%def name="staged(staging)">\
/* where a result lies on its way through local memory */
#define STAGED(row, column) (tiles + (row) * ${staging.line_bytes} + (column) * ${staging.result_bytes})

/* puts a result and its right neighbour there */
void stage_pair(__local uchar *to, const float2 value)
{
% if staging.result_bytes == 4:
    *(__local float2 *)to = value;
% else:
    *(__local uint *)to = pair_of(value);
% endif
}
</%def>

<%doc>
Puts the part of act(acc + bias + residual) that begins at m0, n0 of each warp's into local memory.

bias                "none", "m" or "n"
limits              rows and columns of C, "" where the tile divides them
residual            text that first puts the residual there, each item where its result will be, or
                    ""
</%doc>
<%def name="stage(staging, m0, n0, block_m, bias, limits, residual='')">\
<%
    i0, j0 = m0 // block_m, n0 // 8
    places = [(i, h) for i in range(staging.part_m // block_m) for h in (0, 1)]
    def loaded(at, limit):
        return (f"{at} >= {limit} ? 0.0f : " if limit else "") + f"LOAD1(bias + {at})"
%>\
    barrier(CLK_LOCAL_MEM_FENCE);
% if residual:
${residual}\
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    {
        __local uchar *to = STAGED(warp_row / ${staging.warp_m} * ${staging.part_m} + ROW(0, 0),
                                   warp_column / ${staging.warp_n} * ${staging.part_n} + COLUMN(0));
% if bias == "m":
% for i, h in places:
        const float bias${i}${h} = ${loaded(f"tile_row + warp_row + ROW({i0 + i}, {h})", limits[0])};
% endfor
% endif
% for j in range(staging.part_n // 8):
% if bias == "n":
<% at = f"tile_column + warp_column + COLUMN({j0 + j})" %>\
        const float2 bias${j} = (float2)(${loaded(at, limits[1])}, ${loaded(f"{at} + 1", limits[1])});
% endif
% for i, h in places:
<%
    offset = (block_m * i + 8 * h) * staging.line_bytes + 8 * j * staging.result_bytes
    place = 4 * (j0 + j) + 2 * h
    value = f"(float2)(acc[{i0 + i}][{place}], acc[{i0 + i}][{place + 1}])"
    value += {"none": "", "m": f" + bias{i}{h}", "n": f" + bias{j}"}[bias]
    value += f" + LOAD2((__local const elem_t *)(to + {offset}))" if residual else ""
%>\
        stage_pair(to + ${offset}, ACT(${value}));
% endfor
% endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
</%def>

<%doc> The sums of the warp_m x warp_n results of a warp, and where its operands lie. </%doc>
<%def name="sums(warp_m, warp_n)">\
<% warp_row = f"id / 32 % {warps_m}" + (" / 4" if unit == "wgmma" else "") %>\
    const int warp_row = ${warp_row} * ${warp_m}, warp_column = id / ${32 * warps_m} * ${warp_n};
    const place_t at_a = place_a(base, warp_row, id), at_b = place_b(base, warp_column, id);
    float acc[${blocks_m}][${4 * blocks_n}] = {{0.0f}};
</%def>

<%doc>
The reduction over `steps` tiles: while the units work on one, the next ones are on their way.
`copy` writes the copying of the next tile to a place in local memory, and moves on; `arrived` is
what is done to a tile that has arrived.
</%doc>
<%def name="pipeline(copy, stage_bytes, arrived='')">\
    uint reading = 0, writing = ${ahead % stages * stage_bytes};
    for (int s = 0; s < ${ahead}; ++s) {
        if (s < steps) {
${copy(f"s * {stage_bytes}")}\
        }
        COPY_COMMIT();
    }
    for (int step = 0; step < steps; ++step) {
        AWAIT_TILE();
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + ${ahead} < steps) {
${copy("writing")}\
        }
        COPY_COMMIT();
${arrived}\
        multiply(acc, MOVED(at_a, reading), MOVED(at_b, reading));
        reading = reading == ${(stages - 1) * stage_bytes} ? 0 : reading + ${stage_bytes};
        writing = writing == ${(stages - 1) * stage_bytes} ? 0 : writing + ${stage_bytes};
    }
    AWAIT_PRODUCTS();
</%def>
