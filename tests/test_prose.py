"""Prose that a newcomer who is no native speaker cannot read: idioms, in comments and documents.

It looks at Markdown, at comments and docstrings of code, and at the help of commands, of which a
page of the documentation is made; messages and names are not its part.
A pattern enters `IDIOMS` with what to write instead. `IN_KERNELS` shrinks and never grows.
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

IDIOMS: dict[str, str] = {
    r"\bso many\b": "name the count: `count` rows, as many items as `width`",
    r"\bnobody\b": "name what does not act: no caller, no user, no kernel",
    r"'s business\b|'s? matter\b": "say which module does it: `x` belongs to `y`, `y` decides `x`",
    r"\b(by|of|to|from|on) whom\b|\bwhom not\b": "name the work-item, module, origin or caller",
    r"\bbut for\b": "except for",
    r"\bwhat (came|comes|becomes) of\b": "the result of, what happens if",
    r"\bwhoever\b|\bwho (asks|comes|computes|counts|copies|has|is left|knows|listens|launches"
    r"|loads|owns|reads|stores|takes|wants|waits|writes)\b": (
        "name the thing that acts: the work-item that stores, the thread that waits, the caller"
    ),
    r"\b(some|any)body\b": "name it: a caller, a user, another thread",
    r"\bsoonest\b": "fastest, first",
    r"\bdearer\b": "slower, more expensive",
    r"(?<!hand)(?<!hands)(?<!handed) out again\b": "removed, since ...",
    r"\btold of\b|\bword of\b": "reported, listed, registered",
    r"\bas far as\b(?! [\d`])": "if, where: say the condition",
    r"\bnone of all\b|\bthat is all there is\b": "say what is left out",
    r"\b(to and fro|now and then|here and there)\b": "both ways; from time to time; in places",
    r"\bpast all\b|\ball reason\b": "give the bound",
    r"\bworth one\b|\bkeeps? nothing\b": "say what is computed, and for what it is dropped",
    r"\bmust not add up\b|\bnever come again\b": "LRU bound",
    r"\bwhat (is|was) told\b|\bspeaks? to programs\b": "say the format: JSON for programs",
    r"\b(thereof|whereof|lest|whence|hither|henceforth)\b": "plain words: of it, so that not, from",
}
"""Pattern, without regard to case, and what to write instead."""

IN_KERNELS = {
    "oclgen/families/conv/conv_async.cl.mako": "word of",
    "oclgen/families/conv/conv_gemm_pixels_weights.cl.mako": "so many",
    "oclgen/families/conv/conv_mma_weights.cl.mako": "so many",
    "oclgen/families/conv/conv_narrow_weights.cl.mako": "as far as",
    "oclgen/families/depthwise/depthwise_pixels_weights.cl.mako": "keeps nothing",
    "oclgen/families/parts/async_tiles.cl.mako": "nobody, who comes",
}
"""Idioms in comments of generated kernels, which are part of the text that records are known by.

An entry goes when the kernel's text changes for another reason.
"""

_C_COMMENT = re.compile(
    r"//[^\n]*|/\*.*?\*/|<%doc>.*?</%doc>|^[ \t]*##[^\n]*", re.DOTALL | re.MULTILINE
)
_FENCE = re.compile(r"^(`{3,}).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def tracked(*endings: str) -> list[Path]:
    """Return the files of the repository with these endings."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.splitlines() if name.endswith(endings)]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def prose_of(path: Path) -> str:
    """Return the text of a file with everything blanked, line by line, that is no prose."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return _of_python(text)
    if path.suffix == ".md":
        return _FENCE.sub(lambda found: _blank(found.group()), text)
    kept = ["\n" * text.count("\n", 0, m.start()) + m.group() for m in _C_COMMENT.finditer(text)]
    return _merged(kept, text.count("\n") + 1)


def _of_python(text: str) -> str:
    """Return comments, strings that are statements, which begin a logical line, and `help=`."""
    kept, begins, last, is_help = [], True, "", False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_string = token.type == tokenize.STRING
        if token.string == "=":
            is_help = last == "help"
        elif not is_string and token.string.strip() not in ("", "("):
            is_help = False
        last = token.string
        if token.type == tokenize.COMMENT or (is_string and (begins or is_help)):
            kept.append("\n" * (token.start[0] - 1) + token.string)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return _merged(kept, text.count("\n") + 1)


def _merged(parts: list[str], lines: int) -> str:
    """Lay texts that begin with as many line feeds as their place demands over each other."""
    page = [""] * lines
    for part in parts:
        for number, line in enumerate(part.splitlines()):
            page[number] = f"{page[number]} {line}" if line else page[number]
    return "\n".join(page)


def _blank(text: str) -> str:
    return "\n" * text.count("\n")


def complaints(path: Path) -> Iterator[str]:
    """Yield place, words and remedy of each idiom in a file; one may cross a line's end."""
    text = prose_of(path)
    for pattern, instead in IDIOMS.items():
        spaced = pattern.replace(" ", r"\s+(?:(?:#|//|\*)\s*)?")
        for match in re.finditer(spaced, text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            words = " ".join(match.group().split())
            yield f"{path.relative_to(ROOT)}:{line}: {words!r}; write instead: {instead}"


def test_documents_have_no_idioms() -> None:
    found = [one for path in tracked(".md") for one in complaints(path)]
    assert not found, "\n".join(found)


def test_comments_have_no_idioms() -> None:
    found: dict[str, list[str]] = {}
    for path in tracked(".py", ".cpp", ".h", ".mako", ".toml", ".yml"):
        if listed := list(complaints(path)):
            found[path.relative_to(ROOT).as_posix()] = listed
    assert found.keys() <= IN_KERNELS.keys(), found
    assert IN_KERNELS.keys() <= found.keys(), "take the clean ones out of IN_KERNELS"
    for name, kept in IN_KERNELS.items():
        idioms = {complaint.split("'")[1].lower() for complaint in found[name]}
        assert idioms == set(kept.split(", ")), found[name]


@pytest.mark.parametrize("suffix", [".py", ".cpp", ".cl.mako", ".md"])
def test_an_idiom_is_found_in_each_kind_of_file(suffix: str, tmp_path: Path) -> None:
    marks = {".py": "# {}", ".cpp": "// {}", ".cl.mako": "<%doc>{}</%doc>", ".md": "{}"}
    page = tmp_path / f"page{suffix}"
    page.write_text("\n" + marks[suffix].format("read by so many rows") + "\n")
    assert re.search(next(iter(IDIOMS)), prose_of(page).splitlines()[1])


def test_the_help_of_a_command_is_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(
        'option(\n    help=(\n        "reads "\n        "so many rows"\n    ), key="nobody")\n'
    )
    assert prose_of(page).splitlines()[3].strip() == '"so many rows"'
    assert "nobody" not in prose_of(page)


def test_code_is_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text('MESSAGE = "so many"\n')
    assert "so many" not in prose_of(page)
