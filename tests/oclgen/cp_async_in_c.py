"""Plans of the families by `cp.async` as plain OpenCL C, so that any device can check their tiles.

Copies are done at once, which is one of the orders in which the instruction may do them; when a
copy has to be waited for is for devices that have it to say.
"""

from __future__ import annotations

import re
from dataclasses import replace

from oclgen.plan import Plan

INSTRUCTIONS = """
#define copy_word(to, from, valid) \\
    (*(__local float *)(copied + (to)) = (valid) ? *(from) : 0.0f)
#define copy_words(to, from, valid) \\
    do for (int i = 0; i < 4; ++i) copy_word((to) + 4 * i, (from) + i, i < (valid)); while (0)
#define copy_four(to, from, valid) copy_words(to, from, valid)
#define COPY_COMMIT()
#define COPY_WAIT(n)
#define READ_FOUR(i, j, k, l, from, offset) { \\
    const float4 four = *(__local const float4 *)(copied + (from) + (offset)); \\
    i = four.x; j = four.y; k = four.z; l = four.w; \\
}
"""
"""The library's instructions; a place in local memory is its distance from `copied`."""


PASSING = """
#define PASS_FOUR(x, y, z, w, to) { \\
    volatile __global int *words = (volatile __global int *)(to); \\
    atomic_xchg(words, as_int(x)); atomic_xchg(words + 1, as_int(y)); \\
    atomic_xchg(words + 2, as_int(z)); atomic_xchg(words + 3, as_int(w)); \\
}
#define TAKE_FOUR(x, y, z, w, from) { \\
    volatile __global int *words = (volatile __global int *)(from); \\
    x = as_float(atomic_or(words, 0)); y = as_float(atomic_or(words + 1, 0)); \\
    z = as_float(atomic_or(words + 2, 0)); w = as_float(atomic_or(words + 3, 0)); \\
}
#define FENCE_ALL_GROUPS() mem_fence(CLK_GLOBAL_MEM_FENCE)
"""
"""How sums pass between work-groups: OpenCL C 1.2 has nothing but atomics for that."""


def in_plain_c(plan: Plan) -> Plan:
    """Return the plan with its copies and reads of local memory in C, and nothing asked ahead."""
    launches = (replace(launch, text=_text(launch.source)) for launch in plan.launches)
    return replace(plan, launches=tuple(launches))


def _text(source: str) -> str:
    # a simulator has no cache whose lines it could ask for
    if "__builtin_prefetch(" in source:
        source = f"#define __builtin_prefetch(...)\n{source}"
    if "PASS_FOUR" in source:
        source = _replaced(source, "/* sums pass", "#define FENCE_ALL_GROUPS", PASSING)
        # a simulator does not unroll, and warns of it
        source = re.sub(r" *#pragma unroll.*\n", "", source)
    if "READ_FOUR" not in source:
        return source
    source = _replaced(source, "/* copies one word", "#define READ_FOUR", INSTRUCTIONS)
    source = source.replace("void copy(Operands", "void copy(__local char *copied, Operands")
    source = source.replace("copy(&at", "copy(copied, &at")
    address = r"uint base;\n\s*__asm__.*;"
    return re.sub(address, "__local char *copied = (__local char *)tiles; uint base = 0;", source)


def _replaced(source: str, first: str, last: str, text: str) -> str:
    """Return `source` with `text` for what begins with `first` and ends with the line of `last`."""
    return source[: source.index(first)] + text + source[source.index("\n", source.index(last)) :]
