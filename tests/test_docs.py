"""Documents agree with the code, with each other and with CI. Links are checked by MkDocs."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

import click
import pytest

from benchmarks.__main__ import main as benchmarks
from oclgen_cli.main import main as oclgen

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / "docs/reference/environment.md"
SOURCES = ("oclgen", "search_spaces", "tuned_db", "ocl_backend", "cli", "benchmarks")
LONGEST_LINE = 120
TUNABLE = "OCLGEN_TUNABLE_"
_READ = re.compile(
    r'(?:environ(?:\.get|\.setdefault)?|getenv)[(\[]\s*"([A-Z_]+)"|"(OCLGEN_[A-Z_]+)"'
)
_TUNABLE = re.compile(r'(?:number\(|PREFIX \+ )"([A-Z_]+)"')


def variables() -> Iterator[str]:
    """Yield the names of the environment variables that sources read or set."""
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cpp", ".h"):
                text = path.read_text()
                yield from (one or other for one, other in _READ.findall(text))
                if f'"{TUNABLE}"' in text:
                    yield from (TUNABLE + name for name in _TUNABLE.findall(text))


def readme_commands() -> list[str]:
    """Return the README's commands to install and run, in their order."""
    readme = (ROOT / "README.md").read_text()
    return re.findall(r"^python3 -m venv .*", readme, flags=re.MULTILINE)


def test_every_environment_variable_is_documented() -> None:
    used = set(variables()) - {TUNABLE, "OCLGEN_VERSION"}  # a prefix; a validator's name
    named = set(re.findall(r"`([A-Z_]+)`", ENVIRONMENT.read_text()))
    assert {"OCLGEN_DB", "CXX", "OCLGEN_TUNABLE_ENABLED"} <= used
    assert used <= named, f"missing in {ENVIRONMENT.name}: {sorted(used - named)}"


def test_every_documented_variable_of_ours_is_read() -> None:
    named = set(re.findall(r"`(OCLGEN_[A-Z_]*[A-Z])`", ENVIRONMENT.read_text()))
    assert named <= set(variables())


def test_ci_runs_the_two_commands_of_the_readme() -> None:
    first, second = readme_commands()
    assert first.endswith("examples/digits.py")
    assert "-m pytest" in second
    script = (ROOT / ".ci/run").read_text()
    function = re.search(r"^readme_command\(\) \{.*?^\}", script, re.DOTALL | re.MULTILINE)
    assert function
    assert "pip install -q torch==2.13.0 '.[cpu" not in script, "the text stands in README.md alone"
    for number, command in enumerate((first, second), start=1):
        code = f"{function[0]}\nreadme_command {number}"
        done = subprocess.run(
            ["bash", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == command
    calls = re.findall(r"^part .*as_reader (\d)", script, flags=re.MULTILINE)
    assert calls == ["1", "2"]


@pytest.mark.parametrize(
    "script", sorted((ROOT / "docs/tutorials").glob("*.py")), ids=lambda p: p.name
)
def test_scripts_of_tutorials_are_shown_and_run_by_ci(script: Path) -> None:
    name = script.relative_to(ROOT).as_posix()
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
    assert any(script.read_text(encoding="utf-8") in page for page in pages), (
        f"no page shows {name} as it is"
    )
    assert "docs/tutorials/*.py" in (ROOT / ".ci/run").read_text()


COMMANDS: dict[str, click.Group] = {"oclgen": oclgen, "python -m benchmarks": benchmarks}
_COMMAND = re.compile(rf"(?<![\w./-])({'|'.join(COMMANDS)}) ((?:\\\n|[^\n`|#])+)")
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def unknown_words(group: click.Group, words: list[str]) -> Iterator[str]:
    """Yield what a command line names and `group` does not have: a command, or its options."""
    command: click.Command = group
    options = {"-h", "--help"}
    while True:
        options |= {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        if not isinstance(command, click.Group):
            break
        while words and words[0].startswith("-"):
            yield from {words.pop(0)} - options
            words = words[1:]  # its value
        if not words:
            return
        if (name := words.pop(0)) not in command.commands:
            yield name
            return
        command = command.commands[name]
    named = (word.split("=")[0].rstrip(".,:;)") for word in words if word.startswith("--"))
    yield from (name for name in named if name not in options)


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    code = "\n".join(_CODE.findall(page.read_text(encoding="utf-8")))
    for tool, words in _COMMAND.findall(code.replace("`oclgen signature 1`", "")):  # no command
        split = re.sub(r"[\\\[\]]", " ", words).split()
        if re.fullmatch(r"[a-z][a-z-]*|-.*", split[0]):  # else a name: `oclgen COMMAND --help`
            assert not list(unknown_words(COMMANDS[tool], split)), f"{tool} {words}"


def test_lines_of_documents_are_short() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    generated = set(ROOT.glob("docs/results_*.md"))
    assert len(generated) == 3
    for page in set(pages) - generated:
        is_code = False
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            is_code ^= line.startswith("```")
            short = len(line) <= LONGEST_LINE or line.startswith(("|", "    ", "![")) or is_code
            assert short, f"{page.relative_to(ROOT)}:{number} has {len(line)} columns"


@pytest.fixture(scope="module")
def ratios() -> dict[str, dict[tuple[str, str], float]]:
    """Torch's time over ours by device and (network, "eval" or "train"), of committed results."""
    pytest.importorskip("matplotlib")
    page = runpy.run_path(str(ROOT / "docs/tools/picture.py"))
    drawn = {(network, mode) for network in page["NETWORKS"] for mode in ("eval", "train")}
    return {
        device: {case: one for case, one in page["ratios"](device).items() if case in drawn}
        for device in page["PANELS"]
    }


def test_the_picture_shows_the_committed_results(
    ratios: dict[str, dict[tuple[str, str], float]],
) -> None:
    drawing = (ROOT / "docs/speed.svg").read_text()
    shown = Counter(re.findall(r">(\d\.\d\d)<", drawing))
    found = [f"{one:.2f}" for panel in ratios.values() for one in panel.values()]
    assert len(found) == 20
    assert Counter(found) <= shown


def test_pages_give_the_means_of_the_committed_results(
    ratios: dict[str, dict[tuple[str, str], float]],
) -> None:
    def mean(device: str, mode: str) -> str:
        found = [one for case, one in ratios[device].items() if case[1] == mode]
        return f"{geometric_mean(found):.2f}"

    def span(device: str) -> str:
        found = ratios[device].values()
        return f"{min(found):.1f} to {max(found):.1f}"

    gpu, cpu = ((mean(one, "eval"), mean(one, "train")) for one in ("nvidia_h200", "intel_cpu"))
    readme, index, performance = (
        " ".join((ROOT / name).read_text().split())
        for name in ("README.md", "docs/index.md", "docs/performance.md")
    )
    assert f"train **{gpu[1]} times as fast**" in readme
    assert f"{cpu[1]} times on two processor cores" in readme
    assert f"{span('nvidia_h200')} on an NVIDIA H200, {span('intel_cpu')} on two CPU" in readme
    assert f"evaluate {gpu[0]} and train {gpu[1]} times" in index
    assert f"evaluate {cpu[0]} and train {cpu[1]} times" in index
    row = f"| {' / '.join(gpu)} | {' / '.join(cpu)} |"
    assert f"| networks, evaluation / training {row}" in performance
    for pair in (gpu, cpu):
        assert f"| geometric mean | | | {' / '.join(pair)} |" in performance


def test_a_message_that_troubleshooting_explains_is_said() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    (quoted,) = re.findall(r"`(waiting: [^`]+)`", page)
    assert f'"{quoted}"' in (ROOT / "search_spaces/session.py").read_text()


def test_every_example_is_a_notebook_too() -> None:
    pytest.importorskip("mkdocs")
    page = runpy.run_path(str(ROOT / "docs/tools/examples_page.py"))
    assert len(page["EXAMPLES"]) >= 8
    for path in page["EXAMPLES"]:
        assert f"[script](../examples/{path.name})" in page["table"]()
        cells = page["notebook"](path.read_text())["cells"]
        about, *code = (cell["source"] for cell in cells)
        assert about and '"""' not in about
        text = path.read_text()
        assert ("main()" in code[-1]) == ("def main(" in text)
        assert [ast.dump(node) for node in ast.parse(text).body[1:2]] == [
            ast.dump(node) for node in ast.parse(code[0]).body[:1]
        ]
