"""What the templates of `gemm_register` and `gemm_pairs` write: loads, terms, stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from oclgen.families.parts import expressions
from oclgen.families.parts.epilogue import plus_residual
from oclgen.families.parts.expressions import vector_of
from oclgen.opencl.sub_groups import SUB_GROUPS
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem
from oclgen.render import STORED

if TYPE_CHECKING:
    from oclgen.families.gemm import gemm_amx, gemm_dot_pairs, gemm_pairs, gemm_register

C = TypeVar(
    "C",
    "gemm_register.Config",
    "gemm_pairs.Config",
    "gemm_amx.Config",
    "gemm_dot_pairs.Config",
)


@dataclass(frozen=True)
class Results(Generic[C]):
    """How rows of C are stored; in a plane of partial sums as they are."""

    problem: GemmProblem
    config: C

    @property
    def split(self) -> bool:
        """Whether results are planes of partial sums."""
        return self.config.split_k > 1

    @property
    def _bias(self) -> str:
        return "none" if self.split else self.problem.bias

    @property
    def _residual(self) -> bool:
        return self.problem.residual and not self.split

    @property
    def c_type(self) -> str:
        """OpenCL C's type of a stored result."""
        return "float" if self.split else "elem_t"

    @property
    def bias_m(self) -> str:
        """What is added to a row's results."""
        return " + LOAD1(bias + row)" if self._bias == "m" else ""

    def bias_n(self, width: int, at: str) -> str:
        """Return what is added to the results of `width` columns."""
        return f" + LOAD{width}({at})" if self._bias == "n" else ""

    def plus_terms(self, width: int, j: int) -> str:
        """Return what is added to the results of `width` columns from j on; rows' bias is there."""
        return self.bias_n(width, f"bias + n0 + {j}") + plus_residual(
            self._residual, width, f"out + {j}"
        )

    @property
    def part_parameters(self) -> str:
        """Parameters of `store_halves` beside the results."""
        parameters = ", __global const elem_t *bias" if self._bias == "n" else ""
        return parameters + (", __global const elem_t *residual" if self._residual else "")

    def part_arguments(self, j: int) -> str:
        """Return the arguments for these, from column j on."""
        arguments = f", bias + n0 + {j}" if self._bias == "n" else ""
        return arguments + (f", RESIDUAL(out + {j})" if self._residual else "")

    def store(self, width: int, value: str, pointer: str) -> str:
        """Return the statement that stores results.

        Args:
            width: neighbouring results.
            value: the vector of them.
            pointer: where they are stored.
        """
        if self.split:
            return f"{expressions.store(width, value, pointer)};"
        return f"STORE{width}(ACT({value}), {pointer});"


class Text(Results["gemm_register.Config"]):
    """The pieces of `gemm_register`'s text that depend on a problem and a config."""

    def load_a(self, i: int, u: int) -> str:
        """Return the load of row i, u steps of k ahead."""
        if self.config.pack_a:
            return f"pa[{u * self.config.item_m + i}]"
        return f"LOAD1(pa{i} + {f'{u} * (long)ld_a' if self.problem.trans_a else u})"

    def load_b(self, j: int, u: int, guarded: bool) -> str:
        """Return the load of a vector of columns from j on, u steps of k ahead.

        Args:
            j: first column, of the work-item's.
            u: steps of k behind the pointer.
            guarded: whether columns from n on read as 0.
        """
        vec, trans = self.config.vec_n, self.problem.trans_b
        if self.config.pack_b:
            return expressions.load(vec, f"pb + {u * self.config.item_n + j}")
        at = f"pb + {j} * (long)ld_b + {u}" if trans else f"pb + {u} * (long)ld_b + {j}"
        if guarded:
            return f"load_part({at}, {'ld_b' if trans else 1}, n - n0 - {j})"
        if not trans:
            return f"LOAD{vec}({at})"
        return vector_of(f"LOAD1(pb + {s} * (long)ld_b + {u})" for s in range(j, j + vec))


class SharedText(Results["gemm_register.Config"]):
    """The pieces of `gemm_register`'s text where the lanes of a sub-group share A."""

    @property
    def lanes(self) -> int:
        """Lanes of a sub-group."""
        return SUB_GROUPS[self.config.share].lanes

    @property
    def strip_rows(self) -> int:
        """Rows of A in a strip, of which each lane holds one element."""
        return self.lanes // self.config.unroll_k

    @property
    def strips(self) -> range:
        """The strips that hold the rows of a work-item."""
        return range(ceil_div(self.config.item_m, self.strip_rows))

    def shared_a(self, i: int, u: int | str) -> str:
        """Return row i of A at step u of the strip, from the lane that holds it.

        Args:
            i: row of the work-item.
            u: step, or the text of one.
        """
        strip, row = divmod(i, self.strip_rows)
        first, apart = (
            (row, self.strip_rows) if self.problem.trans_a else (row * self.config.unroll_k, 1)
        )
        place = f"{first} + {u} * {apart}" if isinstance(u, str) else first + u * apart
        return f"FROM_LANE(strip{strip}, {place})"

    def load_b(self, j: int, guarded: bool) -> str:
        """Return the read of a vector of the lane's columns from the j-th on.

        Args:
            j: first of the lane's columns, which lie `lanes` apart.
            guarded: whether columns from n on read as 0.
        """
        vec = self.config.vec_n
        if not (self.problem.trans_b or guarded) and STORED[self.problem.dtype] == "float":
            return f"READ_ROW{vec}(pb + {j * self.lanes})"
        return vector_of(self._element(x * self.lanes, guarded) for x in range(j, j + vec))

    def _element(self, apart: int, guarded: bool) -> str:
        column = f"lane + {apart}"
        at = f"({column}) * (long)ld_b" if self.problem.trans_b else column
        return f"(n0 + {apart} < n ? LOAD1(pb + {at}) : 0.0f)" if guarded else f"LOAD1(pb + {at})"


class PairsText(Results["gemm_pairs.Config"]):
    """The pieces of `gemm_pairs`' text that depend on a problem and a config."""

    def load_a(self, i: int, single: bool) -> str:
        """Return the load of a pair of row i; of the last step alone where it is `single`."""
        if self.config.pack_a:
            return f"vload2(0, pa + {2 * i})"
        return f"(ushort2)(*pa{i}, 0)" if single else f"vload2(0, pa{i})"

    def load_b(self, j: int, single: bool) -> str:
        """Return the load of pairs of 16 columns from j on."""
        if self.config.pack_b:
            return f"as_uint16(vload16(0, (__global const uint *)pb + {j}))"
        high = "" if single else f" | convert_uint16(vload16(0, pb + ld_b + {j})) << 16"
        return f"convert_uint16(vload16(0, pb + {j})){high}"
