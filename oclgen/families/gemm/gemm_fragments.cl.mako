<%doc>
GEMM on matrix units that a sub-group feeds from registers: C = act(op(A) op(B) + bias + residual),
batched, row-major, fp32 accumulation.

A work-group computes tile_m x tile_n of C; each of its sub-groups computes blocks of it, whose
fragments stay in private memory. Both operands come packed, [tiles][k / 16][rows of a tile][16],
zero past the edge, so a fragment is one run of memory. Sub-groups that read the same fragment meet
in a cache. Only cooperative matrices use local memory: each sub-group's lanes get their sums there.

unit                how lanes hold fragments: see `oclgen.opencl.fragments`
fragments           the unit's types, loads and product
staged_alignment    bytes at whose multiple the sums of cooperative matrices begin in local memory
tile_m, tile_n      tile of C per work-group
subs_m, subs_n      sub-groups per work-group
blocks              fragments of C that a sub-group computes, along m and n
steps               steps of k of a fragment, 16
ahead               the next fragments are loaded before these are multiplied
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
activation, bias    epilogue: text of ACT; "none", "m" or "n"
residual, terms     a matrix that lies as C does is added; what is added to the sum in row, column
edge_m, edge_n      the tile does not divide the size: guard what lies past it
preamble            LOAD and STORE
</%doc>
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    rows, columns = range(blocks[0]), range(blocks[1])
    span_m, span_n = blocks[0] * unit.rows, blocks[1] * unit.columns
    guards = " && ".join(["row < m"] * edge_m + ["column < n"] * edge_n)
%>\
${preamble}
${activation}
${fragments}

<%def name="load(name, side, count)">\
% for i in count:
<% apart = (unit.rows if side == "left" else unit.columns) * steps %>\
        ${side}_t ${name}${i} = LOAD_${side.upper()}(from_${name[-1]}${f" + {i * apart}" if i else ""});
% endfor
</%def>\
<%def name="multiply()">\
% for j in columns:
% for i in rows:
        sums${i}_${j} = MULTIPLY(a${i}, b${j}, sums${i}_${j});
% endfor
% endfor
</%def>\

__kernel FRAGMENT_LANES __attribute__((reqd_work_group_size(${unit.lanes * subs_m * subs_n}, 1, 1)))
void gemm_fragments(
${common.parameters(c_type, split)})
{
    const int lane = LANE;
% if unit.is_cooperative:
    __local float staged[${subs_m * subs_n * unit.staged_floats}] __attribute__((aligned(${staged_alignment})));
% endif
    const int sub = (int)get_local_id(0) / ${unit.lanes};

${common.strips()}\

${common.slice_of_item(split)}\

    const int row_of_sub = sub / ${subs_n} * ${span_m}, column_of_sub = sub % ${subs_n} * ${span_n};
% for side, first, tile in (("a", "row", tile_m), ("b", "column", tile_n)):
    __global const ushort *from_${side} = (__global const ushort *)${side} + tile_${first} / ${tile} * (long)ld_${side}
        + k_first * ${tile} + ${first}_of_sub * ${steps};
% endfor
    sums_t ${", ".join(f"sums{i}_{j} = {unit.zero}" for i in rows for j in columns)};

% if ahead:
${load("a", "left", rows)}${load("b", "right", columns)}\
    for (int p = k_first; p < k_last; p += ${steps}) {
        const bool more = p + ${steps} < k_last;
        from_a += more ? ${tile_m * steps} : 0;
        from_b += more ? ${tile_n * steps} : 0;
${load("next_a", "left", rows)}${load("next_b", "right", columns)}\
${multiply()}\
% for name, count in (("a", rows), ("b", columns)):
        ${" ".join(f"{name}{i} = next_{name}{i};" for i in count)}
% endfor
    }
% else:
    for (int p = k_first; p < k_last; p += ${steps}) {
${load("a", "left", rows)}${load("b", "right", columns)}\
${multiply()}\
        from_a += ${tile_m * steps};
        from_b += ${tile_n * steps};
    }
% endif

    const int row_of_lane = tile_row + row_of_sub + ${unit.row_of_lane};
    const int column_of_lane = tile_column + column_of_sub + lane % ${unit.columns};
% for j in columns:
    {
        const int column = column_of_lane + ${j * unit.columns};
% for i in rows:
<% of_lane = f"{'held' if unit.is_cooperative else 'sums'}{i}_{j}" %>\
% if unit.is_cooperative:
        const float${unit.sums} ${of_lane} = held(sums${i}_${j}, staged + sub * ${unit.staged_floats}, lane);
% endif
% for v in range(unit.sums):
        {
            const int row = row_of_lane + ${i * unit.rows + v * unit.row_step};
            ${f"if ({guards}) " if guards else ""}{
<% value = f"{of_lane}.s{v:x}{terms}" %>\
% if split:
                c[row * (long)ld_c + column] = ${value};
% else:
                STORE1(ACT(${value}), c + row * (long)ld_c + column);
% endif
            }
        }
% endfor
% endfor
    }
% endfor
}
