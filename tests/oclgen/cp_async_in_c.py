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


def in_plain_c(plan: Plan) -> Plan:
    """Return the plan with its copies and reads of local memory written in C."""
    launches = (replace(launch, source=_text(launch.source)) for launch in plan.launches)
    return replace(plan, launches=tuple(launches))


def _text(source: str) -> str:
    first, last = source.find("/* copies one word"), source.find("#define READ_FOUR")
    if first < 0:
        return source
    source = source[:first] + INSTRUCTIONS + source[source.index("\n", last) :]
    source = source.replace("void copy(Operands", "void copy(__local char *copied, Operands")
    source = source.replace("copy(&at", "copy(copied, &at")
    address = r"uint base;\n\s*__asm__.*;"
    return re.sub(address, "__local char *copied = (__local char *)tiles; uint base = 0;", source)
