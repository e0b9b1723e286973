<%doc>
Asks whether a device has a unit of `oclgen.opencl.fragments`, and whether its lanes hold fragments
as that says. One sub-group multiplies fragments of integers that tell rows and steps apart; a
work-item adds to `out` how many of its sums are right.

name                of the unit
unit                how lanes hold fragments
fragments           the unit's types, loads and product, for one dtype
staged_alignment    bytes at whose multiple the sums of cooperative matrices begin in local memory
bits                the integers 0 to 6 in that dtype
</%doc>
<% left, right = "({x} * 3 + {k}) % 7", "({x} + {k} * 5) % 7" %>\
${fragments}

__constant ushort bits[7] = {${", ".join(bits)}};

__kernel FRAGMENT_LANES __attribute__((reqd_work_group_size(${unit.lanes}, 1, 1)))
void probe_${name}(
    __global const ushort *ones, const long offset, __global float *out, const long offset_out,
    __global ushort *operands, const long offset_operands)
{
    const int lane = LANE;
% if unit.is_cooperative:
    __local float staged[${unit.staged_floats}] __attribute__((aligned(${staged_alignment})));
    if (get_max_sub_group_size() != ${unit.lanes}) {
        return; // a sub-group must be whole
    }
% endif
    for (int i = lane; i < 256; i += ${unit.lanes}) {
        operands[i] = bits[${left.format(x="(i / 16)", k="i % 16")}];
        operands[256 + i] = bits[${right.format(x="i / 16", k="i % 16")}];
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    const left_t a = LOAD_LEFT(operands);
    const right_t b = LOAD_RIGHT(operands + 256);
    sums_t sums = ${unit.zero};
    sums = MULTIPLY(a, b, sums);
    const int row_of_lane = ${unit.row_of_lane}, column = lane % ${unit.columns};
    int right = 0;
% if unit.is_cooperative:
    const float${unit.sums} of_lane = held(sums, staged, lane);
% endif
% for v in range(unit.sums):
    {
        const int row = row_of_lane + ${v * unit.row_step};
        int sum = 0;
        for (int k = 0; k < 16; ++k) {
            sum += ${f"({left.format(x='row', k='k')}) * ({right.format(x='column', k='k')})"};
        }
        right += ${"of_lane" if unit.is_cooperative else "sums"}.s${f"{v:x}"} == (float)sum;
    }
% endfor
    out[offset_out + lane] += right;
}
