<%doc>
How work-groups of a launch pass sums to each other on NVIDIA's GPUs: each leaves what it has in
memory and counts itself, and the last one adds up. None waits for another. Defs for other templates,
no text of its own.
</%doc>
<%def name="fence()">\
#define FENCE_ALL_GROUPS() __asm__ volatile("fence.acq_rel.gpu;" ::: "memory")
</%def>

<%def name="instructions()">\
/* sums pass from one work-group to another: through the cache that all units share, in order */
#define PASS_FOUR(x, y, z, w, to) __asm__ volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory")
#define TAKE_FOUR(x, y, z, w, from) __asm__ volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "l"(from) : "memory")
${fence()}\
</%def>

<%def name="instructions_of_one()">\
/* sums for other work-groups, which the caches of compute units never hold */
#define PASS(value, to) __asm__ volatile("st.global.cg.f32 [%0], %1;" :: "l"(to), "f"(value) : "memory")
#define TAKE(value, from) __asm__ volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory")
${fence()}\
</%def>

<%doc>
Counts the work-group in `counter`, behind all that it has left; `before` in local memory becomes the
number of those that came before it.
</%doc>
<%def name="counted_in(before, counter, margin)">\
${margin}// one work-item's fences, behind and before a barrier, hold for its work-group
${margin}barrier(CLK_GLOBAL_MEM_FENCE);
${margin}if (id == 0) {
${margin}    FENCE_ALL_GROUPS();
${margin}    ${before} = atomic_inc(${counter});
${margin}    FENCE_ALL_GROUPS();
${margin}}
${margin}barrier(CLK_LOCAL_MEM_FENCE);
</%def>
