from dataclasses import replace

from oclgen.opencl.device import devices
from oclgen.families import FAMILIES
from oclgen.measuring.measure import Bench
from oclgen.problem import GemmProblem

problem = GemmProblem(m=256, n=256, k=256)
family = FAMILIES["gemm_register"]
device = devices()[0]
bench = Bench(device, problem, seed=1)

for changes in ({}, {"item_m": 8, "item_n": 16, "vec_n": 16}, {"item_n": 6}):
    config = replace(family.DEFAULT, **changes)
    if reason := config.why_not(problem, device.limits):
        print(changes, "cannot serve:", reason)
        continue
    measured = bench.measure(family.plan(problem, config))
    rate = problem.flops / measured.ms / 1e6 if measured.ok else 0.0
    print(changes, measured.invalidity, f"{rate:.0f} GFLOP/s, error {measured.error:.1e}")
