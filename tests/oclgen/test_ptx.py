"""Kernels that are built for a processor which the driver does not name: text to text."""

from __future__ import annotations

from oclgen.opencl import ptx


def test_a_kernel_for_another_target_is_carried_in_comments() -> None:
    source = ptx.with_target("kernel", "sm_90a")
    assert ptx.target_of(source) == "sm_90a"
    assert ptx.target_of("kernel") == ""
    text = b".version 9.0\n.target sm_90, texmode_independent\n\t//sm_90a wgmma.fence;\n\t// x\n\0"
    assert ptx.retarget(text, "sm_90a") == (
        b".version 9.0\n.target sm_90a, texmode_independent\n\twgmma.fence;\n\t// x\n"
    )


def test_registers_of_a_work_item_are_bounded_in_ptx() -> None:
    target = ptx.target_of(ptx.with_target("kernel", "sm_90a", 128))
    text = b".target sm_90\n.entry f(\n)\n.reqntid 128, 1, 1\n{\n//sm_90a wgmma.fence;\n}\n"
    assert ptx.retarget(text, target) == (
        b".target sm_90a\n.entry f(\n)\n.reqntid 128, 1, 1\n.maxnreg 128\n{\nwgmma.fence;\n}\n"
    )
