# SPDX-License-Identifier: Apache-2.0
"""Read the RTL file lists, the one place that says which sources make up a kernel.

A list is ``rtl/<folder>/<folder>.f``: one source a line, relative to ``rtl/``, a file before the
files that instantiate it and the top module last; ``#`` starts a comment. Simulation, lint,
synthesis and packaging all read the same list.
"""

from pathlib import Path

SOURCE_SUFFIXES = (".v", ".sv")


def read_file_list(file_list: Path) -> list[Path]:
    """Return the sources that a file list names.

    Parameters
    ----------
    file_list
        Path of the list, ``rtl/<folder>/<folder>.f``.

    Returns
    -------
    list of Path
        Absolute paths in the order of the list.

    Raises
    ------
    FileNotFoundError
        The list, or a source that it names, does not exist.
    ValueError
        A line is not a Verilog source, or a source is named twice.
    """
    file_list = file_list.resolve()
    rtl_root = file_list.parents[1]
    sources: list[Path] = []
    for number, line in enumerate(file_list.read_text().splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        where = f"{file_list}:{number}"
        source = rtl_root / entry
        if source.suffix not in SOURCE_SUFFIXES:
            raise ValueError(
                f"{where}: '{entry}' is not a Verilog source; "
                f"a line is one {' or '.join(SOURCE_SUFFIXES)} file, relative to {rtl_root}"
            )
        if not source.is_file():
            raise FileNotFoundError(
                f"{where}: there is no file {source}; paths are relative to {rtl_root}"
            )
        if source in sources:
            raise ValueError(f"{where}: '{entry}' is in the list already; remove one of the two")
        sources.append(source)
    return sources
