"""Finding, opening and probing OpenCL devices; no kernel family is known here."""
