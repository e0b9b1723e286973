"""Guesses for problems without a record: they fit typical ones, and are made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from math import prod
from random import Random
from typing import Any

import pytest

from oclgen.attention_problem import ATTENTION_DIRECTIONS, AttentionProblem
from oclgen.families import FAMILIES, default_of, preferred, suitable_configs, valid_configs
from oclgen.families.conv.conv_register_plan import Piece, _runs, pieces
from oclgen.families.conv.correlation import Axis, Run
from oclgen.families.parts.blocking import best_split, fill, none_empty
from oclgen.limits import KIB, Limits
from oclgen.opencl.probe import FATAL
from oclgen.packed_problem import PackedProblem
from oclgen.plan import ceil_div
from oclgen.problem import DIRECTIONS, ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces.space import MOST_SEEDS, seeds_of
from tests.guessed import is_left_to_another, valid_guesses
from tests.oclgen.conv_cases import EVERY_WAY, PIXELS

CPU = Limits(
    "cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**34, 16, 16, instructions=frozenset(FATAL)
)
GPU = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma", "tma", "dpas8"}),
)  # fmt: skip
PLAIN_GPU = Limits("gpu", 32 * KIB, 256, (256,) * 3, 2**30, 2**32, 32, 1)
DEVICES = {"cpu": CPU, "gpu": GPU, "plain gpu": PLAIN_GPU, "smallest": Limits()}
CPUS_ALONE = {
    "attention_amx", "attention_amx_grad", "attention_lanes", "attention_rows", "conv_amx",
    "conv_amx_weights", "conv_as_gemm_amx", "conv_as_gemm_dot_pairs",
    "conv_as_gemm_pairs", "conv_pairs",
    "conv_lines_weights", "conv_pairs_weights", "conv_pixels_weights", "conv_register",
    "conv_register_weights",
    "gemm_amx", "gemm_dot_pairs", "gemm_pairs", "gemm_stream", "packed_dots", "packed_lanes",
    "winograd_blocked", "winograd_blocked_weights",
}  # fmt: skip
"""Families that guess for CPUs alone."""
FOR_CPUS = CPUS_ALONE | {
    "gemm_register", "gemm_dot", "gemm_int8", "depthwise", "depthwise_weights", "winograd_staged",
    "conv_as_gemm_register", "packed_rows", "packed_gemm",
}  # fmt: skip
"""Families that guess for CPUs."""
CONVS = (
    ConvProblem(8, 64, 56, 56, 64, 3, 3, pad_h=1, pad_w=1),
    ConvProblem(8, 3, 224, 224, 64, 7, 7, 2, 2, 3, 3),
    ConvProblem(8, 96, 28, 28, 96, 3, 3, 2, 2, 1, 1, groups=96),
    ConvProblem(1, 24, 7, 7, 24, 5, 5, pad_h=2, pad_w=2, groups=24),
    ConvProblem(8, 128, 28, 28, 512, 1, 1),
    ConvProblem(64, 96, 56, 56, 24, 1, 1),
    ConvProblem(64, 64, 56, 56, 64, 1, 1),
    ConvProblem(8, 144, 28, 28, 32, 1, 1),
    ConvProblem(8, 128, 28, 28, 128, 3, 3, pad_h=1, pad_w=1, groups=32),
)
TYPICAL: tuple[Problem, ...] = (
    *(
        replace(conv, direction=direction, layout=layout, dtype=dtype)
        for conv in CONVS
        for direction in DIRECTIONS
        for layout in ("nchw", "nhwc")
        for dtype in ("fp32", "bf16")
    ),
    *(
        AttentionProblem(8, 16, 16, 2048, 2048, dim, dim, dtype, direction, causal=True)
        for dim in (64, 128)
        for dtype in ("fp32", "bf16")
        for direction in ATTENTION_DIRECTIONS
        if direction != "bwd"  # is for processors
    ),
    *(AttentionProblem(1, 32, 8, 1, 2048, 128, 128, dtype) for dtype in ("fp32", "bf16")),
    *(PackedProblem(m, 4096, 4096, "bf16", form) for m in (1, 8) for form in ("q4_0", "int8")),
    PackedProblem(512, 4096, 4096, "bf16", "int4_128z"),
    *(
        GemmProblem(*size, dtype, trans_a, trans_b)
        for size in ((1024,) * 3, (8, 4096, 4096), (64, 1000, 2048), (9000, 24, 16), (24, 16, 9000))
        for dtype in ("fp32", "bf16", "int8")
        for trans_a, trans_b in ((False, False), (False, True), (True, False))
    ),
)


def typical_of(name: str, limits: Limits) -> Iterator[Problem]:
    """Yield what a family serves on such a device: on CPUs, no images in channels_last."""
    family = FAMILIES[name]
    for problem in TYPICAL:
        if family.serves(problem) and family.DEFAULT.why_not(problem, limits) is None:
            yield problem


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_typical_problems_have_valid_guesses(name: str, kind: str) -> None:
    limits, family = DEVICES[kind], FAMILIES[name]
    guessing = name in FOR_CPUS if kind == "cpu" else name not in CPUS_ALONE
    problems = list(typical_of(name, limits))
    assert problems or not guessing
    for problem in problems:
        valid = [one for one in family.guesses(problem, limits) if not one.why_not(problem, limits)]
        is_left = is_left_to_another(name, problem, limits)
        assert bool(valid) == (guessing and not is_left), problem.key()
        for config in valid[:1]:
            assert Variant(name, config).why_not(problem, limits) is None


@pytest.mark.parametrize("kind", ["gpu", "plain gpu"])
def test_no_default_is_the_first_guess_of_a_typical_problem_on_gpus(kind: str) -> None:
    for problem in TYPICAL:
        first = next(valid_guesses(problem, DEVICES[kind]), None)
        assert first is None or first.config != FAMILIES[first.family].DEFAULT, problem.key()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["many cores", "gpu", "plain gpu"])
def test_few_weights_of_many_pixels_give_every_unit_work(kind: str, dtype: str) -> None:
    """The gradient of a stem's weights: a small result of a long reduction, which is split."""
    limits = replace(CPU, compute_units=64) if kind == "many cores" else DEVICES[kind]
    stem = replace(CONVS[1], direction="bwd_weights", dtype=dtype)
    first = next(valid_guesses(stem, limits))
    (launch,) = (
        one
        for one in first.plan(stem).launches
        if one.kernel in (first.family, f"{first.family}_weights")
    )
    sizes = zip(launch.global_size, launch.local_size, strict=True)
    assert prod(ceil_div(items, local) for items, local in sizes) >= limits.compute_units


def test_few_registers_get_few_sums() -> None:
    """Intel's GPUs, which an extension tells from others: half of the sums, no copies ahead."""
    intel = replace(PLAIN_GPU, extensions=frozenset({"cl_intel_subgroups"}))
    assert intel.has_few_registers
    assert not replace(intel, kind="cpu").has_few_registers
    product, layer = GemmProblem(1024, 1024, 1024), CONVS[0]
    for limits, is_few in ((PLAIN_GPU, False), (intel, True)):
        for name, problem in (("gemm_staged", product), ("conv_gemm", layer)):
            configs = list(FAMILIES[name].guesses(problem, limits))
            sums = [one.tile_m * one.tile_n // one.work_items for one in configs]
            assert (max(sums) <= 32) == is_few, name
            assert all(one.prefetch != is_few for one in configs)
    written = {kind: next(iter(FAMILIES["gemm_staged"].guesses(product, DEVICES[kind]))).unroll_k
               for kind in ("gpu", "plain gpu")}  # fmt: skip
    assert written == {"gpu": 16, "plain gpu": 8}


def test_defaults_of_many_sums_have_sparing_ones() -> None:
    """They are valid on the smallest of Intel's GPUs, and the last to fall back to."""
    intel = replace(
        PLAIN_GPU, local_bytes=64 * KIB, max_work_group=256, max_work_items=(256,) * 3,
        extensions=frozenset({"cl_intel_subgroups"}),
    )  # fmt: skip
    families = {name: one for name, one in FAMILIES.items() if one.TRAITS.sparing is not None}
    assert set(families) == {"conv_gemm", "conv_narrow_weights", "attention_register"}
    stem = replace(CONVS[1], direction="bwd_weights")
    problems: tuple[Problem, ...] = (
        stem, *CONVS, *(AttentionProblem(1, 2, 2, 90, 90, d, d) for d in (8, 64, 256))
    )  # fmt: skip
    for family in families.values():
        assert all(default_of(family, stem, one) == family.DEFAULT for one in DEVICES.values())
        sparing = default_of(family, stem, intel)
        assert sparing == family.TRAITS.sparing != family.DEFAULT
        for problem in (one for one in problems if family.serves(one)):
            assert sparing.why_not(problem, intel) is None, (family.NAME, problem.key())
            assert sparing in valid_configs(family, problem, intel)


def test_attention_is_written_out_where_registers_are_few() -> None:
    problem = AttentionProblem(1, 2, 2, 90, 90, 64, 64)
    family = FAMILIES["attention_register"]
    for limits, is_few in (
        (PLAIN_GPU, False),
        (replace(PLAIN_GPU, extensions=frozenset({"cl_intel_subgroups"})), True),
    ):
        for config in valid_configs(family, problem, limits):
            assert config.unrolled == is_few
            (launch,) = family.plan(problem, config).launches
            loops = [line for line in launch.source.splitlines() if " = 0; i < " in line]
            assert loops
            assert ("#pragma unroll 1\n" in launch.source) == is_few


SUMS: dict[str, Callable[[Any], int]] = {
    "gemm_register": lambda one: one.item_m * one.item_n // one.vec_n,
    "gemm_dot": lambda one: one.item_m * one.item_n,
    "conv_register": lambda one: one.images * one.item_x * one.vecs,
    "conv_register_weights": lambda one: one.item_c * one.vecs * 3,
    "conv_pixels_weights": lambda one: one.item_k * one.vecs * 3,
    "winograd_blocked": lambda one: one.item_t * one.item_k // one.vec_k,
    "winograd_blocked_weights": lambda one: one.item_k * one.vecs,
    "attention_lanes": lambda one: one.sums * one.vectors,
}
"""Vectors of sums of a work-item on processors, of layers with rows of three taps."""


def _gathers(problem: Problem, config: Any) -> bool:
    """Say whether columns of B are gathered: then their loads cost more than a sum that spills."""
    return (
        isinstance(problem, GemmProblem) and problem.trans_b and not getattr(config, "pack_b", True)
    )


@pytest.mark.parametrize("width", [16, 8, 4])
@pytest.mark.parametrize("name", SUMS)
def test_sums_fit_the_registers_of_a_processor(name: str, width: int) -> None:
    """AVX-512 has 32 vectors of 16 floats, AVX2 and SSE have 16 of theirs, operands among them."""
    limits = replace(CPU, native_float_width=width)
    most = 28 if width == 16 else 12
    sizes = [
        SUMS[name](config)
        for problem in typical_of(name, limits)
        if not isinstance(problem, ConvProblem) or problem.kernel_w == 3
        for config in FAMILIES[name].guesses(problem, limits)
        if config.why_not(problem, limits) is None and not _gathers(problem, config)
    ]
    assert max(sizes) <= most
    # few registers in use would wait for the multiply-adds' latency
    assert max(sizes) >= most // 4


@pytest.mark.parametrize(
    ("m", "n", "k", "packs", "slices"),
    [
        (384, 96, 12544, (False, False), 49),  # slices whose lines stay in the cache
        (3072, 768, 196, (True, True), 1),  # many results: slices would be written and read again
        (8, 512, 4000, (False, False), 2),  # no second strip in a line; tiles are few for 16 cores
    ],
)
def test_a_processor_reads_a_transposed_side_once(
    m: int, n: int, k: int, packs: tuple[bool, bool], slices: int
) -> None:
    problem = GemmProblem(m, n, k, trans_a=True)
    first: Any = next(valid_configs(FAMILIES["gemm_register"], problem, CPU))
    assert ((first.pack_a, first.pack_b), first.split_k) == (packs, slices)


def test_a_family_without_a_guess_for_a_device_is_not_suitable() -> None:
    problem = ConvProblem(4, 16, 112, 112, 96, 1, 1, direction="bwd_weights")
    family = FAMILIES["conv_narrow_weights"]
    assert list(valid_configs(family, problem, CPU)) == [family.DEFAULT]
    assert not list(suitable_configs(family, problem, CPU))
    assert list(suitable_configs(family, problem, GPU))


def test_no_slice_of_a_reduction_is_empty() -> None:
    """784 steps in each of 32 slices; in 64 slices of 416, as steps of 32 have it, 3 are empty."""
    assert none_empty(25_088, 64, 32) == 61
    assert none_empty(25_088, 32, 32) == 32
    assert none_empty(8, 1, 64) == 1


def test_slices_of_a_reduction_fill_whole_rounds_of_the_compute_units() -> None:
    """9 tiles in 29 slices are 261 work-groups, 2 rounds of 132 units; 32 slices would take 3."""
    assert best_split(9, 25_088, GPU, work_items=128) == 29
    assert fill(GemmProblem(64, 576, 25_088), GPU, 64, 64, step=8) == 29
    # a round more than half empty is worth slices of a long reduction, not of a short one
    assert best_split(150, 8192, GPU, work_items=256) > 1
    assert best_split(150, 512, GPU, work_items=256) == 1
    assert best_split(10_000, 8192, GPU, work_items=256) == 1


def test_a_record_for_another_problem_is_not_split_where_a_compiler_dies_of_it() -> None:
    problem = ConvProblem(1, 512, 7, 7, 64, 3, 3, pad_h=1, pad_w=1)
    variant = Variant("conv_gemm", FAMILIES["conv_gemm"].DEFAULT)
    assert variant.for_another(problem, GPU).config.split_k > 1
    intel = replace(GPU, extensions=frozenset({"cl_intel_subgroups"}))
    assert variant.for_another(problem, intel).config.split_k == 1
    weights = replace(problem, direction="bwd_weights", batch=64)
    assert variant.for_another(weights, intel).config.split_k > 1


def test_few_filters_are_not_split_into_more_panels_than_there_are() -> None:
    problem = ConvProblem(4, 3, 8, 8, 1, 3, 3, pad_h=1, pad_w=1)
    guesses = list(FAMILIES["winograd_blocked"].guesses(problem, CPU))
    assert guesses
    assert all(one.why_not(problem, CPU) is None for one in guesses)


@pytest.mark.parametrize("kind", DEVICES)
def test_guesses_come_family_by_family_with_the_default_last(kind: str) -> None:
    limits = DEVICES[kind]
    for problem in TYPICAL[::5]:
        found = list(valid_guesses(problem, limits))
        names = [family.NAME for family in preferred(problem, limits)]
        ranks = [names.index(one.family) for one in found]
        assert ranks == sorted(ranks)
        assert len(set(found)) == len(found)
        assert all(one.config.why_not(problem, limits) is None for one in found)
        for family in preferred(problem, limits):
            configs = [one.config for one in found if one.family == family.NAME]
            guesses = list(family.guesses(problem, limits))
            known = [config for config in dict.fromkeys(guesses) if config in configs]
            default = family.DEFAULT.why_not(problem, limits) is None
            assert configs == known + [family.DEFAULT] * (default and family.DEFAULT not in known)


def test_no_guess_is_made_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(name: str) -> None:
        honest = FAMILIES[name].guesses

        def guesses(problem: Problem, limits: Limits) -> object:
            asked.append(name)
            return honest(problem, limits)

        monkeypatch.setattr(FAMILIES[name], "guesses", guesses)

    problem = ConvProblem(8, 64, 56, 56, 64, 3, 3, pad_h=1, pad_w=1)
    for family in preferred(problem, GPU):
        counted(family.NAME)
    found = valid_guesses(problem, GPU)
    assert asked == []
    assert next(found).family == "winograd_staged"
    assert len(asked) == [family.NAME for family in preferred(problem, GPU)].index(asked[-1]) + 1
    assert asked[-1] == "winograd_staged"


@pytest.mark.parametrize("kind", DEVICES)
def test_no_problem_is_too_odd_to_guess_for(kind: str) -> None:
    """Phases without taps, images smaller than strides, a column: nothing may raise."""
    limits = DEVICES[kind]
    products = [GemmProblem(m, n, k) for m in (1, 3) for n in (1, 5) for k in (1, 130, 50_176)]
    problems: list[Problem] = [*EVERY_WAY, *PIXELS, *products]
    for problem in problems:
        for family in preferred(problem, limits):
            for config in family.guesses(problem, limits):
                reason = config.why_not(problem, limits) or ""
                assert "its rule raised" not in reason


def test_a_search_begins_with_the_first_guesses_and_the_default() -> None:
    problem = ConvProblem(64, 256, 56, 56, 256, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
    family = FAMILIES["conv_mma"]
    valid = list(valid_configs(family, problem, GPU))
    assert len(valid) > MOST_SEEDS + 1
    assert valid[-1] == family.DEFAULT
    assert seeds_of("conv_mma", problem, GPU) == [*valid[:MOST_SEEDS], family.DEFAULT]


def test_blocks_inside_of_a_row_are_known_without_asking_each() -> None:
    """As `conv_register` finds them: against each block on its own, and each result's taps."""
    random = Random(1)
    for _ in range(400):
        axis = Axis(
            results=random.randint(1, 40), read=random.randint(1, 30), written=40,
            taps=random.randint(0, 5), step=random.randint(1, 4),
            tap_step=random.choice((-3, -2, -1, 1, 2, 3)), origin=random.randint(-9, 9),
        )  # fmt: skip
        reached = [q for q in range(axis.results) if len(axis.reach(q)) == axis.taps]
        assert not axis.taps or list(axis.full) == reached
        item_x = random.randint(1, 13)
        blocks: dict[tuple[int, tuple[Run, ...]], list[int]] = {}
        for block in range(ceil_div(axis.results, item_x)):
            count = min(item_x, axis.results - block * item_x)
            blocks.setdefault((count, _runs(axis, block * item_x, count)), []).append(block)
        *rare, (common, _) = sorted(blocks.items(), key=lambda entry: len(entry[1]))
        wanted = [Piece(tuple(where), *code) for code, where in rare]
        assert pieces(axis, item_x) == [*wanted, Piece(None, *common)]


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32"])
def test_tiles_of_few_rows_or_columns_are_as_narrow(dtype: str, trans: bool) -> None:
    """Those that lie across k come in panels of 128 bytes: 64 of 16 bits are left to wgmma."""
    limits = replace(GPU, declared_local_bytes=226 * KIB)
    panel = 32 if dtype == "tf32" else 64
    for few in (1, 16, 20, 48):
        for m, n in ((few, 5001), (5001, few)):
            problem = GemmProblem(m, n, 2001, dtype, trans_a=trans, trans_b=trans)
            tile = ceil_div(few, least := 16 if trans == (m > n) else panel) * least
            for config in islice(valid_configs(FAMILIES["gemm_mma"], problem, limits), 2):
                if tile < 64:
                    assert (config.tile_m if m < n else config.tile_n) == tile
                else:
                    assert config.unit == "wgmma" or dtype == "tf32"


@pytest.mark.parametrize("dtype", ["fp16", "tf32", "fp32"])
def test_inner_products_leave_uneven_rows_to_matrix_units(dtype: str) -> None:
    family = FAMILIES["gemm_dot"]
    for k, is_even in ((4096, True), (4095, False)):
        problem = GemmProblem(4, 1000, k, dtype, trans_b=True)
        assert bool(family.guesses(problem, GPU)) == (is_even or dtype == "fp32")
        assert family.guesses(problem, PLAIN_GPU)
        assert family.guesses(GemmProblem(1, 1000, 4096, dtype, True, True), GPU)
    short, long = (
        next(iter(family.guesses(GemmProblem(1, 1000, k, dtype, trans_b=True), GPU)))
        for k in (168, 4096)
    )
    assert (short.local_k, long.local_k) == (8, 32)
    assert short.vec_k == long.vec_k == (8 if dtype == "fp16" else 4)
