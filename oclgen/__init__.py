"""Generated GEMM, convolution and attention kernels for any OpenCL device.

This package is the generator and the one door to OpenCL; searching, storing and PyTorch are
`search_spaces`, `tuned_db` and `ocl_backend`. `oclgen.tune` and `oclgen.Session` are those of
`search_spaces.session`, fetched when they are asked for: nothing else here knows the search.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search_spaces.session import Session, tune

GENERATOR_VERSION = "3"
"""Where a record comes from. What its times belong to is its digest (`oclgen.plan.Plan.digest`)."""

__all__ = ["GENERATOR_VERSION", "Session", "tune"]


def __getattr__(name: str) -> Any:
    """Return what the search offers under this package's name (PEP 562).

    Raises:
        AttributeError: there is no such name.
    """
    if name not in ("Session", "tune"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from search_spaces import session

    return getattr(session, name)
