"""Runs the command as `python -m oclgen_cli`; it defines nothing."""

from .main import main

main(prog_name="oclgen")
