"""What `torch.ocl` may trade for speed: settings that operators read at every call.

It decides nothing by itself; what a setting means stands with the operator that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ocl_backend.fusion import recall


class Setting:
    """What calls depend on that are recalled."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        """Set it and forget what calls did with the old one."""
        object.__setattr__(self, name, value)
        recall.forget()


@dataclass(slots=True)
class MatmulPrecision(Setting):
    """`torch.ocl.matmul`, the counterpart of `torch.backends.cuda.matmul`.

    `allow_tf32`: products of float32 matrices may round what they multiply to tf32 (11 bits, a
    relative error of about 3e-4), as matrix units do; sums stay fp32. Off by default.
    """

    allow_tf32: bool = False


@dataclass(slots=True)
class ConvPrecision(Setting):
    """`torch.ocl.conv`, the counterpart of `torch.backends.cudnn` as far as precision goes.

    `allow_tf32`: as `torch.ocl.matmul`'s, for convolutions of float32. Off by default, unlike
    cuDNN's.
    """

    allow_tf32: bool = False


matmul = MatmulPrecision()
conv = ConvPrecision()
