"""Split reductions of convolutions: fp32 planes in a workspace, and the launch that sums them.

It knows nothing of the kernel that fills the planes; atomics are not used, so sums repeat exactly.
"""

from __future__ import annotations

from oclgen.families.conv.correlation import output_elements
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.strided_weights import strided_weights
from oclgen.plan import Launch, LazyText, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render

PLANES = "planes"
"""Role of the workspace."""

LOCAL_SIZE = 64
VECTORS = (4, 2, 1)
"""Elements that a work-item sums, widest first: 128 bits of a plane are loaded at once."""
WEIGHTS_ITEMS = 256


def planes_bytes(problem: ConvProblem, planes: int) -> int:
    """Return the size of the workspace: one fp32 copy of the output per plane."""
    return 4 * planes * output_elements(problem)


def planes_space(problem: ConvProblem, planes: int) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of the workspace of several planes; none of one."""
    return ((PLANES, planes_bytes(problem, planes)),) if planes > 1 else ()


def summed(launch: Launch, problem: ConvProblem, planes: int, slices: int = 1) -> Plan:
    """Return the plan of a launch that writes `planes` planes; one plane is the output itself."""
    if planes == 1:
        return Plan((launch,))
    added = sum_planes(problem, planes, slices)
    return Plan((launch, added), planes_space(problem, planes))


def sum_planes(problem: ConvProblem, planes: int, slices: int = 1) -> Launch:
    """Return the launch that writes act(sum of planes + bias) to the problem's output.

    `slices` work-items, a power of two, share the planes of an element: a single one has a long
    chain of loads where there are many planes of few elements.
    """
    elements = output_elements(problem)
    nhwc = problem.layout == "nhwc"
    per_channel = 1 if nhwc else problem.out_h * problem.out_w
    run = elements if not problem.bias else problem.out_channels if nhwc else per_channel
    vec = next(width for width in VECTORS if elements % width == 0 and run % width == 0)

    @LazyText
    def text() -> str:
        return render(
            "sum_planes",
            preamble=dtype_preamble(problem.dtype),
            elements=elements,
            planes=planes,
            **epilogue(problem),
            per_channel=per_channel,
            vec=vec,
            channels=problem.out_channels,
            local_size=LOCAL_SIZE // slices,
            slices=slices,
        )

    return Launch(
        text=text,
        kernel="sum_planes",
        global_size=(round_up(elements // vec, LOCAL_SIZE // slices), slices, 1),
        local_size=(LOCAL_SIZE // slices, slices, 1),
        args=(*buffer(PLANES), *terms(problem), *buffer(problem.output)),
    )


def sum_weights(p: ConvProblem, planes: int, padded: int, span: int) -> Launch:
    """Return the launch that adds planes [out_channels, taps, padded] into w, whose strides a
    caller may replace. A filter has `padded` depths or fewer, of which a work-group sums `span`.
    """  # noqa: D205
    taps, depth = p.kernel_h * p.kernel_w, p.in_channels // p.groups

    @LazyText
    def text() -> str:
        return render(
            "sum_weights",
            preamble=dtype_preamble(p.dtype),
            planes=planes,
            channels=p.out_channels,
            taps=taps,
            kernel_w=p.kernel_w,
            depth=depth,
            padded=padded,
            span=span,
        )

    return Launch(
        text=text,
        kernel="conv_mma_sum",
        global_size=(WEIGHTS_ITEMS * ceil_div(depth, span), p.out_channels, 1),
        local_size=(WEIGHTS_ITEMS, 1, 1),
        args=(*buffer(PLANES), *strided_weights(p)),
        local_bytes=4 * taps * (span + 1),
    )
