<%doc>
What attention by wgmma asks of the units: four warps multiply 64 rows by a tile in local memory.
Behind MULTIPLY_BEGIN() stand calls that write results; MULTIPLY_SEND() sends those since the last
one off, and MULTIPLY_AWAIT(n) waits for all but the last n that were sent. Behind it stands
SETTLE_..(c) for each array of results, so that the compiler reads none of them before.

SET_SCORES(c, a, at) multiplies 16 items of each row by those of the rows of a tile, of which the
first stand at `at`, and writes the results to c; ADD_SCORES adds them.
ADD_VALUES(c, a, at) multiplies 16 items of each row by 16 rows of a tile, of which the first is at
`at`, and adds; so does ADD_ITEMS for gradients, of tiles of the other width.

Places are SCORES_AT(address) and VALUES_AT(address), to which chunks of 16 bytes are added: the low
half of a descriptor, whose high half is constant. So the units need one addition a product. `a` is a
fragment in registers, or of scores OWN_AT(address) where rows lie in local memory.

wgmma stands in comments, which `oclgen.opencl.ptx` turns into instructions.

copies      text of attention_units.cl.mako
dtype       "fp16" or "bf16"
tile_n      rows of a tile
depth, depth_v      items of a row that ADD_ITEMS, if it is not 0, and ADD_VALUES add up
k_descriptor, v_descriptor      constant bits of the descriptors of tiles of k and v
own_descriptor      those of rows that lie in local memory, 0 where registers keep them
</%doc>
<%
    type_name = {"fp16": "f16", "bf16": "bf16"}[dtype]
    # macro, columns of the results, descriptor, whether the tile lies across, adds
    kinds = [
        ("SET_SCORES", tile_n, k_descriptor, 0, 0),
        ("ADD_SCORES", tile_n, k_descriptor, 0, 1),
        ("ADD_VALUES", depth_v, v_descriptor, 1, 1),
    ]
    if depth:
        kinds.append(("ADD_ITEMS", depth, v_descriptor, 1, 1))
%>\
${copies}
/* two neighbours as they are stored, rounded to nearest even */
uint pair_of(const float low, const float high)
{
    uint pair;
    __asm__("cvt.rn.${type_name}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* whether `found` holds in any lane of the warp */
bool any_lane(const bool found)
{
    uint any;
    __asm__ volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.any.pred p, p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
                     : "=r"(any) : "r"((uint)found));
    return any;
}
#define pair_from_lane(pair, mask) as_uint(from_lane(as_float(pair), mask))
/* of all steps of a pointer only the next is kept in registers */
#define STEP_BY_STEP(pointer) __asm__ volatile("" : "+l"(pointer))
/* what was copied is seen by the units */
#define COPIES_FOR_UNITS() __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define MULTIPLY_BEGIN() __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory")
#define MULTIPLY_SEND() __asm__ volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory")
#define MULTIPLY_AWAIT(n) __asm__ volatile("//sm_90a wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
% if own_descriptor:
#define OWN_AT(at) (${own_descriptor & 0xffffffff}u | (at) >> 4)
% endif
#define SCORES_AT(at) (${k_descriptor & 0xffffffff}u | (at) >> 4)
#define VALUES_AT(at) (${v_descriptor & 0xffffffff}u | (at) >> 4)
% for name, columns, descriptor, turned, adds in kinds:
<%
    count = columns // 2
    results = ", ".join(f"%{i}" for i in range(count))
    # rows of both operands of scores may lie in local memory
    is_local = own_descriptor and "SCORES" in name
    rows = "own" if is_local else "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
    given = ['"r"(a)'] if is_local else [f'"r"((a).{part})' for part in "xyzw"]
    at = count + len(given)
    each = ", ".join(f'"{"+" if adds else "="}f"((c)[{i}])' for i in range(count))
%>\
#define ${name}(c, a, at) __asm__ volatile( \
    "//sm_90a { .reg .pred p; setp.ne.b32 p, %${at + 1}, 0; " \
    ".reg .b64 tile; mov.b64 tile, {%${at}, ${descriptor >> 32}}; " \
% if is_local:
    ".reg .b64 own; mov.b64 own, {%${count}, ${own_descriptor >> 32}}; " \
% endif
    "wgmma.mma_async.sync.aligned.m64n${columns}k16.f32.${type_name}.${type_name} " \
    "{${results}}, ${rows}, tile, p, 1, 1, ${"0, " if is_local else ""}${turned}; }" \
    : ${each} \
    : ${", ".join(given)}, "r"(at), "r"(${adds}) : "memory")
% if adds:
#define ${name.replace("ADD", "SETTLE")}(c) __asm__ volatile("" : ${each})
% endif
% endfor
