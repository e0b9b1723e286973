"""The `oclgen` command: options, progress, printing, exit codes; it decides nothing by itself.

The folder is `cli/` and is installed as `oclgen_cli`, since other packages are called `cli`, too.
"""
