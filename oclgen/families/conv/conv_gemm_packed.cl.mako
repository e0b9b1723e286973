<%doc>
How work-items load A of conv_gemm and conv_async where conv_gemm_pack packed it, rows of k of each
group and phase. Defs for other templates, no text of its own.

width               elements per load
copiers             work-items that load, of `work_items` per group
copied              loads are cp.async, else into private memory, from where `keep` stores
</%doc>
<%def name="locate(width)">\
    at->a = a + PACKED_FIRST + ((long)group * K_PADDED + first * TILE_K) * M_PADDED + m0
        + id * ${width} / TILE_M * M_PADDED + id * ${width} % TILE_M;
</%def>

<%def name="load(width, copiers, work_items, copied)">\
#pragma unroll
    for (int l = 0; l < LOADS_A; l += ${width}) {
        __global const float *from =
            at->a + l * ${copiers} / TILE_M * M_PADDED + l * ${copiers} % TILE_M;
% if copied:
        const uint place = 4 * (l * ${copiers} / TILE_M * ROW_A + l * ${copiers} % TILE_M);
        ${f"if (id < {copiers}) " if copiers < work_items else ""}copy_four(to + at->to_a + place, from, more ? 4 : 0);
% elif width == 1:
        next_a[l] = *from;
% else:
        const float${width} v = *(__global const float${width} *)from;
% for s in range(width):
        next_a[l + ${s}] = v.s${s};
% endfor
% endif
    }
    at->a += TILE_K * M_PADDED;
</%def>

<%def name="keep(width, copiers)">\
#pragma unroll
    for (int l = 0; l < LOADS_A; l += ${width}) {
        const int e = l * ${copiers} + id * ${width};
        __local float *to = tile_a + e / TILE_M * ROW_A + e % TILE_M;
% if width == 1:
        *to = next_a[l];
% else:
        *(__local float${width} *)to =
            (float${width})(${", ".join(f"next_a[l + {s}]" for s in range(width))});
% endif
    }
</%def>
