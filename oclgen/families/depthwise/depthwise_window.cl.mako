<%doc>
The copying of a row to row t of a window in private memory, for kernels in planes: columns that are
`step_w` apart lie side by side. Defs for other templates, no text of its own; these have `guarded`
and `blocks` as their legends say.
</%doc>
<%! from oclgen.families.parts.expressions import branch, write_item %>\
<%def name="copied(step_w)">\
% if guarded:
#pragma unroll
            for (int e = 0; e < WINDOW_ELEMENTS; ++e) {
                const bool inside = w0 + e >= 0 && w0 + e < READ_W;
                window[t][e % STEP_W * WINDOW_W + e / STEP_W] = inside ? LOAD1(row + e) : 0.0f;
            }
% else:
% for block in blocks:
            ${branch(loop.first, block.columns)}{
% for e, width in block.copies:
% if step_w == 1:
                ${write_item(width, f"LOAD{width}(row + {e})", f"window[t][{e}]")};
% elif width == 1:
                window[t][${e % step_w} * WINDOW_W + ${e // step_w}] = LOAD1(row + ${e});
% else:
                const float${width} v${e} = LOAD${width}(row + ${e});
                ${write_item(width // 2, f"v{e}.even", f"window[t][{e // 2}]")};
                ${write_item(width // 2, f"v{e}.odd", f"window[t][WINDOW_W + {e // 2}]")};
% endif
% endfor
            }
% endfor
% endif
</%def>
