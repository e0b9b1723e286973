"""llama.cpp as a peer on processors, as the package `xllamacpp` brings it; it need not be there.

    python -m benchmarks.peers.llama_cpp MODEL.gguf PROMPT TOKENS TURNS

Its threads wait in loops, so it runs in a process of its own, which ends before anything else is
timed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

CONTEXT = 1024
"""Tokens that the keys and values of a sequence have room for."""


def seconds(model: Path, prompt: str, tokens: int, turns: int) -> list[float] | None:
    """Return the seconds of each turn: the prompt, then greedy tokens, by all processors.

    Args:
        model: a GGUF file.
        prompt: its text; nothing of it is kept between turns.
        tokens: how many are generated.
        turns: repetitions behind a first one that does not count.

    Returns:
        None where `xllamacpp` is not installed.
    """
    if find_spec("xllamacpp") is None:
        return None
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(model), prompt, str(tokens), str(turns)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _timed(model: str, prompt: str, tokens: int, turns: int) -> list[float]:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx, parameters.n_parallel = CONTEXT, 1
    threads = len(os.sched_getaffinity(0))
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    asked = {"prompt": prompt, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    found = []
    for count in (2, *[tokens] * turns):
        took = server.handle_completions({**asked, "n_predict": count})["timings"]
        if took["predicted_n"] != count:
            raise RuntimeError(f"{took['predicted_n']} tokens came, not {count}")
        found.append((took["prompt_ms"] + took["predicted_ms"]) / 1e3)
    return found[1:]


if __name__ == "__main__":
    print(json.dumps(_timed(*sys.argv[1:3], *map(int, sys.argv[3:]))))  # type: ignore[arg-type]
