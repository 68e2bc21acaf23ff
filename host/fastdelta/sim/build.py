# SPDX-License-Identifier: Apache-2.0
"""Build the board model and simulated kernels, once for each configuration.

Every build is a shared library in ``<cache>/<kind>/<key>/``. The key is a hash of everything that
decides the result (sources, parameters, tools, flags, and the processor, for which the code is
optimised), so a changed source makes a new build and an unchanged one is never built again.
Processes that want the same build wait for the one that makes it.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import platform as host_platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from fastdelta.errors import FastdeltaError, MissingToolError
from fastdelta.filelist import read_file_list
from fastdelta.interface import KernelInterface
from fastdelta.sim.paths import cache_folder, find_compiler, find_verilator

BOARD_SOURCES: Final = Path(__file__).resolve().parent / "board"
SHIM_SOURCES: Final = Path(__file__).resolve().parent / "shim"
BRIDGE_SOURCES: Final = Path(__file__).resolve().parent / "shim_cpp"
OLDEST_VERILATOR: Final = (5, 36)
OLDEST_COMPILER: Final = 11  # C++20
LOG_TAIL_LINES: Final = 40

_KERNEL_HEADERS: Final = ("kernel_abi.h", "kernel_glue.h")
_LIBRARY: Final = "library.so"
_WARNINGS: Final = ("-Wall", "-Wextra")
_LIBRARY_FLAGS: Final = (
    "-fPIC",
    # Each library keeps its own copy of Verilator's run time.
    "-fvisibility=hidden",
    "-fno-gnu-unique",
)
_BOARD_FLAGS: Final = (
    "-std=c++20",
    "-O2",
    "-march=native",
    "-fPIC",
    "-fvisibility-inlines-hidden",
    "-pthread",
)
# Its own functions, whatever else of the same name the process has loaded.
_LINK_FLAGS: Final = ("-Wl,-Bsymbolic",)
_GLUE_FLAGS: Final = ("-std=c++20", "-O2", "-march=native", *_LIBRARY_FLAGS)
_VERILATOR_FLAGS: Final = (
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--noassert",
    "--unroll-count",
    "4",
    "--output-split",
    "3000",  # files of a size that two compilers can share
    "--quiet",
    "-Wno-fatal",  # style is lint's business
)
# Verilator's makefiles put their own -Os behind -CFLAGS, which costs a factor of 2.5.
_MAKE_FLAGS: Final = "OPT_FAST=-O3\\ -march=native OPT_GLOBAL=-O2 OPT_SLOW=-O1"
_VERILATOR_DEFINES: Final = (
    "-DVM_COVERAGE=0",
    "-DVM_SC=0",
    "-DVM_TIMING=0",
    "-DVM_TRACE_VCD=0",
    "-DVM_TRACE_SAIF=0",
)

Say = Callable[[str], None]


class BuildError(FastdeltaError):
    """A simulation could not be built; the message holds the end of the tools' output."""


@dataclass(frozen=True)
class Build:
    """A shared library in the cache.

    Attributes
    ----------
    key
        Hash of everything that decides the result.
    library
        The shared library.
    seconds
        What building it took now; None if it was there already.
    """

    key: str
    library: Path
    seconds: float | None


def rtl_parameters(shape: Any) -> dict[str, int]:
    """Return the RTL parameters of a shape: its fields by name, in capitals."""
    return {field.name.upper(): getattr(shape, field.name) for field in fields(shape)}


def build_board(*, cache: Path | None = None, quiet: bool = False) -> Build:
    """Build the board model.

    Parameters
    ----------
    cache
        Folder for builds; by default that of `fastdelta.sim.paths.cache_folder`.
    quiet
        Whether to say nothing while building.

    Raises
    ------
    MissingToolError
        If the compiler is missing or too old.
    BuildError
        If compiling fails.
    """
    return _build_cpp("board", "the board model", (BOARD_SOURCES,), cache, quiet)


def build_shim(*, bridge: bool = False, cache: Path | None = None, quiet: bool = False) -> Build:
    """Build the drop-in for XRT's core library, which holds the board model as well.

    With `bridge` it serves XRT's C++ interface, too; other parameters and errors are those of
    `build_board`.
    """
    folders = (BOARD_SOURCES, SHIM_SOURCES, *((BRIDGE_SOURCES,) if bridge else ()))
    return _build_cpp("shim", "the XRT library of simulated cards", folders, cache, quiet)


def _build_cpp(
    kind: str, title: str, folders: Sequence[Path], cache: Path | None, quiet: bool
) -> Build:
    """Build a library from all sources in some folders."""
    sources = [path for folder in folders for path in sorted(folder.glob("*.cpp"))]
    compiler = check_compiler()
    command = [str(compiler), *_BOARD_FLAGS, *_WARNINGS]
    key = _key(
        {
            "flags": [*command[1:], *_LINK_FLAGS],
            "compiler": _version(compiler),
            "processor": _processor(),
            "sources": {
                path.name: path.read_text() for folder in folders for path in _files(folder)
            },
        }
    )

    def make(folder: Path, log: Path) -> None:
        objects = []
        for source in sources:
            target = folder / f"{source.stem}.o"
            objects.append(str(target))
            includes = [f"-I{path}" for path in folders]
            compile_one = [*command, *includes, "-c", "-o", str(target), str(source)]
            _run([*_launcher(), *compile_one], folder, log)
        link = [*command, "-shared", *_LINK_FLAGS, "-o", str(folder / _LIBRARY), *objects, "-ldl"]
        _run(link, folder, log)

    return cached_library(kind, key, title, make, {}, cache, quiet)


def build_kernel(
    interface: KernelInterface,
    parameters: Mapping[str, int] | None = None,
    *,
    trace: bool = False,
    cache: Path | None = None,
    quiet: bool = False,
) -> Build:
    """Build the simulation of a kernel.

    Parameters
    ----------
    interface
        The kernel.
    parameters
        RTL parameters, beside those that the interface sets for simulation.
    trace
        Whether waveforms can be written, which makes the simulation slower.
    cache, quiet
        As for `build_board`.

    Raises
    ------
    MissingToolError
        If Verilator, the compiler, or what they need is missing or too old.
    BuildError
        If the RTL or the generated code cannot be built.
    """
    verilator = find_verilator()
    check_verilator(verilator)
    compiler = check_compiler()
    check_make()
    everything = {**interface.simulation_parameters, **(parameters or {})}
    sources = read_file_list(interface.file_list)
    glue = kernel_glue(interface)
    verilate = [
        str(verilator),
        "--cc",
        "--build",
        "--build-jobs",
        "2",
        *_VERILATOR_FLAGS,
        *(("--trace-fst",) if trace else ()),
        "-CFLAGS",
        " ".join(_LIBRARY_FLAGS),
        "-MAKEFLAGS",
        _MAKE_FLAGS,
        "--top-module",
        interface.name,
        *(f"-G{name}={value}" for name, value in sorted(everything.items())),
    ]
    defines = [*_VERILATOR_DEFINES, f"-DVM_TRACE={int(trace)}", f"-DVM_TRACE_FST={int(trace)}"]
    key = _key(
        {
            "verilate": verilate[1:],
            "verilator": _version(verilator),
            "compiler": _version(compiler),
            "processor": _processor(),
            "glue": [glue, *_GLUE_FLAGS, *defines],
            "headers": {name: (BOARD_SOURCES / name).read_text() for name in _KERNEL_HEADERS},
            "rtl": [[path.name, path.read_text()] for path in sources],
        }
    )

    def make(folder: Path, log: Path) -> None:
        model = folder / "model"
        _run([*verilate, "--Mdir", str(model), *map(str, sources)], folder, log)
        glue_path = folder / "glue.cpp"
        glue_path.write_text(glue)
        includes = [model, BOARD_SOURCES, _verilator_root(verilator) / "include"]
        _run(
            [
                str(compiler),
                *_GLUE_FLAGS,
                *defines,
                *(f"-I{path}" for path in includes),
                "-shared",
                "-o",
                str(folder / _LIBRARY),
                str(glue_path),
                str(model / f"libV{interface.name}.a"),
                str(model / "libverilated.a"),
                "-pthread",
                *(("-llz4", "-lz") if trace else ()),
            ],
            folder,
            log,
        )

    shown = {"kernel": interface.name, "parameters": everything, "trace": trace}
    sizes = " ".join(f"{name}={value}" for name, value in everything.items())
    title = f"the simulated {interface.instance} kernel" + (f" ({sizes})" if sizes else "")
    return cached_library("kernels", key, title, make, shown, cache, quiet)


def find_kernel(key: str, *, cache: Path | None = None) -> Path | None:
    """Return the library of a kernel that was built under a key, or None."""
    library = (cache or cache_folder()) / "kernels" / key / _LIBRARY
    return library if re.fullmatch(r"[0-9a-f]{32}", key) and library.is_file() else None


def kernel_glue(interface: KernelInterface) -> str:
    """Return the C++ that binds a Verilated kernel's ports to the board model."""
    model = f"V{interface.name}"
    ports = " ".join(f"FD_PORT({port})" for port in interface.ports)
    return f'#include "{model}.h"\n#include "kernel_glue.h"\n\nFD_KERNEL({model}, {ports})\n'


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h"))


def _key(ingredients: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()[:32]


@functools.cache
def _version(tool: Path) -> str:
    command = [str(tool), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@functools.cache
def _processor() -> str:
    """Return what identifies the processor that code is optimised for."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{host_platform.machine()} {host_platform.processor()}"
    kept = ("vendor_id", "cpu family", "model\t", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.startswith(kept))


def check_compiler() -> Path:
    """Return the C++ compiler.

    Raises
    ------
    MissingToolError
        If there is none, or it is too old.
    """
    compiler = find_compiler()
    command = [str(compiler), "-dumpversion"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if int(version.split(".")[0]) < OLDEST_COMPILER:
        raise MissingToolError(
            f"{compiler} is version {version}; simulations need g++ {OLDEST_COMPILER} or newer"
        )
    return compiler


def check_verilator(verilator: Path) -> None:
    """Refuse a Verilator that is too old.

    Raises
    ------
    MissingToolError
        If it is.
    """
    found = re.search(r"Verilator (\d+)\.(\d+)", _version(verilator))
    if found is None or (int(found[1]), int(found[2])) < OLDEST_VERILATOR:
        raise MissingToolError(
            f"{verilator} is {_version(verilator)!r}; simulations need Verilator "
            f"{OLDEST_VERILATOR[0]}.{OLDEST_VERILATOR[1]:03d} or newer: run 'make setup'"
        )


def check_make() -> None:
    """Refuse to go on without make.

    Raises
    ------
    MissingToolError
        If it is missing.
    """
    if shutil.which("make") is None:
        raise MissingToolError(
            "make, which Verilator compiles with, is not installed; on Debian or Ubuntu: "
            "apt-get install make"
        )


def _verilator_root(verilator: Path) -> Path:
    command = [str(verilator), "--getenv", "VERILATOR_ROOT"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(result.stdout.strip())


def _launcher() -> tuple[str, ...]:
    """Return the compiler cache to use: ``$OBJCACHE``, else ccache if it is installed."""
    given = os.environ.get("OBJCACHE")
    found = shutil.which("ccache") if given is None else given
    return (found,) if found else ()


def _run(command: Sequence[str], folder: Path, log: Path) -> None:
    launcher = _launcher()
    environment = {**os.environ, **({"OBJCACHE": launcher[0]} if launcher else {})}
    # Inherited make variables would change Verilator's own makefiles.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    with log.open("a") as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        result = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if result.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        hint = (
            "; waveforms need the headers of lz4 and zlib: apt-get install liblz4-dev zlib1g-dev"
            if re.search(r"(lz4|zlib)\.h: No such file|cannot find -l(lz4|z)\b", tail)
            else ""
        )
        raise BuildError(f"{Path(command[0]).name} failed{hint}:\n{tail}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached_library(
    kind: str,
    key: str,
    title: str,
    make: Callable[[Path, Path], None],
    description: Mapping[str, Any],
    cache: Path | None,
    quiet: bool,
) -> Build:
    """Return a library from the cache, made first if it is not there.

    Parameters
    ----------
    kind, key
        Folder in the cache.
    title
        What is built, for messages.
    make
        Builds ``library.so`` in a folder and writes the tools' output to a log.
    description
        What to note beside the library.
    cache, quiet
        As for `build_board`.
    """
    root = (cache or cache_folder()) / kind
    final = root / key
    library = final / _LIBRARY
    if library.is_file():
        return Build(key, library, None)
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock"):
        if library.is_file():  # another process made it meanwhile
            return Build(key, library, None)
        for leftover in root.glob(f"building-{key}-*"):  # of a process that was killed
            shutil.rmtree(leftover)
        started = time.monotonic()
        with (
            _progress(f"Building {title}, once for this configuration", quiet),
            tempfile.TemporaryDirectory(prefix=f"building-{key}-", dir=root) as scratch,
        ):
            work = Path(scratch) / "work"
            done = Path(scratch) / "done"
            work.mkdir()
            done.mkdir()
            log = done / "build.log"
            try:
                make(work, log)
            except BuildError as error:
                failed = root / f"{key}.log"
                failed.write_text(log.read_text(errors="replace"))
                raise BuildError(f"cannot build {title}: {error}\nall output: {failed}") from None
            seconds = time.monotonic() - started
            (work / _LIBRARY).rename(done / _LIBRARY)
            record = {**description, "seconds": round(seconds, 1)}
            (done / "build.json").write_text(json.dumps(record, indent=1) + "\n")
            done.rename(final)
    return Build(key, library, seconds)


@contextmanager
def _progress(message: str, quiet: bool) -> Iterator[None]:
    if quiet:
        yield
        return
    console = Console(file=sys.stderr)
    if console.is_terminal:
        with console.status(message + " ..."):
            yield
    else:
        console.print(message + " ...", highlight=False, soft_wrap=True)
        yield
