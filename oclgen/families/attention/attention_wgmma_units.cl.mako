<%doc>
What attention by wgmma asks of the units: four warps multiply 64 rows of their registers by a tile
in local memory. Between MULTIPLY_BEGIN() and MULTIPLY_END() stand calls that add to one array of
results; behind it they are done. With MULTIPLY_SEND() instead they are done behind MULTIPLY_AWAIT(n),
when all but the last n that were sent are.

ADD_SCORES(c, a, at, add) multiplies 16 items of each row by those of the rows of a tile, of which
the first stand at `at`; the results are added to c, or written there without `add`.
ADD_VALUES(c, a, at) multiplies 16 items of each row by 16 rows of a tile, of which the first is at
`at`; so does ADD_ITEMS for gradients, of tiles of the other width.

wgmma stands in comments, which `oclgen.opencl.ptx` turns into instructions.

copies      text of attention_units.cl.mako
dtype       "fp16" or "bf16"
tile_n      rows of a tile
depth, depth_v      items of a row that ADD_ITEMS, if it is not 0, and ADD_VALUES add up
k_descriptor, v_descriptor      constant bits of the descriptors of tiles of k and v
</%doc>
<%
    type_name = {"fp16": "f16", "bf16": "bf16"}[dtype]
    kinds = [("ADD_SCORES", "(c, a, at, add)", tile_n, k_descriptor, 0, "add"), ("ADD_VALUES", "(c, a, at)", depth_v, v_descriptor, 1, "1")]
    if depth:
        kinds.append(("ADD_ITEMS", "(c, a, at)", depth, v_descriptor, 1, "1"))
%>\
${copies}
/* two neighbours as they are stored, rounded to nearest even */
uint pair_of(const float low, const float high)
{
    uint pair;
    __asm__("cvt.rn.${type_name}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* what was copied is seen by the units */
#define COPIES_FOR_UNITS() __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define MULTIPLY_BEGIN() __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory")
#define MULTIPLY_END() __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory"); \
    __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned 0;" ::: "memory")
% if depth:
#define MULTIPLY_SEND() __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory")
#define MULTIPLY_AWAIT(n) __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
% endif
% for name, given, columns, descriptor, turned, add in kinds:
<%
    count = columns // 2
    outputs = ", ".join(f"%{i}" for i in range(count))
    inputs = ", ".join(f"%{count + i}" for i in range(4))
%>\
#define ${name}${given} __asm__ volatile( \
    "//sm_90a { .reg .pred p; setp.ne.b32 p, %${count + 5}, 0; " \
    "wgmma.mma_async.sync.aligned.m64n${columns}k16.f32.${type_name}.${type_name} " \
    "{${outputs}}, {${inputs}}, %${count + 4}, p, 1, 1, ${turned}; }" \
    : ${", ".join(f'"+f"((c)[{i}])' for i in range(count))} \
    : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "l"(0x${f"{descriptor:x}"}UL | (ulong)((at) >> 4)), "r"(${add}) : "memory")
% endfor
