# SPDX-License-Identifier: Apache-2.0
"""Where the repository, the tools and the cache are.

RTL and overlays are not part of the installed package: it is used from a checkout, installed in
place with ``pip install -e``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fastdelta.errors import MissingToolError

CHECKOUT_VARIABLE = "FASTDELTA_CHECKOUT"
CACHE_VARIABLE = "FASTDELTA_CACHE"


def checkout() -> Path:
    """Return the root folder of the repository.

    Raises
    ------
    MissingToolError
        If the package was installed without its repository.
    """
    given = os.environ.get(CHECKOUT_VARIABLE)
    root = Path(given).expanduser().resolve() if given else Path(__file__).resolve().parents[3]
    if (root / "rtl").is_dir() and (root / "overlays").is_dir():
        return root
    raise MissingToolError(
        f"{root} is no checkout of fastdelta: it has no rtl/ and overlays/, from which simulated "
        "cards are built. Clone the repository and install it with 'pip install -e .', or set "
        f"{CHECKOUT_VARIABLE} to the folder of a checkout"
    )


def overlay_folder(kernel: str) -> Path:
    """Return the folder of a kernel's overlay.

    Raises
    ------
    ValueError
        If there is no such kernel.
    """
    overlays = checkout() / "overlays"
    folder = overlays / kernel
    if not (folder / "interface.toml").is_file():
        known = sorted(path.parent.name for path in overlays.glob("*/interface.toml"))
        raise ValueError(f"there is no kernel {kernel!r}; known are {', '.join(known) or 'none'}")
    return folder


def cache_folder() -> Path:
    """Return the folder for built simulations.

    That is ``$FASTDELTA_CACHE``, else ``fastdelta`` in ``$XDG_CACHE_HOME``, else
    ``~/.cache/fastdelta``.
    """
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fastdelta"


def find_verilator() -> Path:
    """Return the Verilator to use: the checkout's own, else the one in PATH.

    Raises
    ------
    MissingToolError
        If there is none.
    """
    own = checkout() / ".tools" / "verilator" / "bin" / "verilator"
    if own.is_file():
        return own
    found = shutil.which("verilator")
    if found is None:
        raise MissingToolError(
            "Verilator, which turns the RTL into a simulation, is not installed; "
            f"run 'make setup' in {checkout()}"
        )
    return Path(found)


def find_compiler() -> Path:
    """Return the C++ compiler.

    Raises
    ------
    MissingToolError
        If there is none.
    """
    found = shutil.which("g++")
    if found is None:
        raise MissingToolError(
            "g++, which compiles simulations, is not installed; on Debian or Ubuntu: "
            "apt-get install g++ make"
        )
    return Path(found)
