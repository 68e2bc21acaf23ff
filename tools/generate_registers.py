# SPDX-License-Identifier: Apache-2.0
"""Generate everything that knows a kernel's registers from its SystemRDL source.

``overlays/<kernel>/registers.rdl`` holds one address map, ``<kernel>_registers``. From it come

- ``rtl/<kernel>/generated/<kernel>_registers.sv``: the AXI4-Lite register block,
- ``verif/fastdelta_verif/generated/<kernel>_registers.py``: the pyuvm register model,
- ``host/fastdelta/generated/<kernel>_registers.py``: offsets and field masks for the host,
- ``docs/registers/<kernel>.md``: the documentation.

The outputs are committed. ``--check`` writes nothing and fails when one of them is stale.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from peakrdl_etana.cpuif.axi4lite import AXI4Lite_Cpuif_flattened
from peakrdl_etana.exporter import RegblockExporter
from peakrdl_etana.udps import ALL_UDPS
from peakrdl_markdown.exporter import MarkdownExporter
from peakrdl_pyuvm.exporter import PyUVMExporter
from systemrdl.compiler import RDLCompiler
from systemrdl.messages import RDLCompileError
from systemrdl.node import AddrmapNode, RegNode

REPOSITORY = Path(__file__).resolve().parents[1]
ADDRESS_WIDTH = 12  # bits of s_axi_control: one 4 KiB page, the range that Vitis gives a kernel


def compile_registers(source: Path) -> AddrmapNode:
    """Return the elaborated address map of a SystemRDL file; errors in it end the program."""
    compiler = RDLCompiler()
    for definition in ALL_UDPS:
        compiler.register_udp(definition)
    try:
        compiler.compile_file(str(source))
        return compiler.elaborate().top
    except RDLCompileError as error:  # the compiler has printed each fault with its line
        raise SystemExit(f"{source}: {error}") from None


def register_block(top: AddrmapNode, scratch: Path) -> str:
    """Return the RTL of the register block, with flat ports that Yosys and Icarus read."""
    RegblockExporter().export(
        top,
        str(scratch),
        cpuif_cls=AXI4Lite_Cpuif_flattened,
        address_width=ADDRESS_WIDTH,
        default_reset_activelow=True,
        flatten_nested_blocks=True,
        err_if_bad_addr=True,
        err_if_bad_rw=True,
    )
    text = (scratch / f"{top.inst_name}.sv").read_text()
    # A timescale in one source of a design and not in the others is an error in Verilator.
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith("`timescale")
    )


def register_model(top: AddrmapNode, scratch: Path) -> str:
    """Return the pyuvm register model."""
    path = scratch / "model.py"
    PyUVMExporter().export(top, str(path))
    return path.read_text()


def documentation(top: AddrmapNode, scratch: Path) -> str:
    """Return the register map as Markdown."""
    path = scratch / "registers.md"
    MarkdownExporter().export(top, str(path))
    text = path.read_text()
    return text[text.index("\n## ") + 1 :]  # drop the exporter's own comment on its input files


def registers(top: AddrmapNode) -> Iterator[tuple[str, RegNode]]:
    """Yield each register with its path in upper case, such as ``Q_ADDRESS_LO``."""
    for node in top.descendants(unroll=True):
        if isinstance(node, RegNode):
            path = node.get_rel_path(top, hier_separator="_", array_suffix="_{index:d}")
            yield path.upper(), node


def host_constants(top: AddrmapNode, _scratch: Path) -> str:
    """Return a Python module with the offset of each register and the mask of each field."""
    lines = [
        f'"""Offsets and field masks of ``{top.inst_name}``."""',
        "",
        "from enum import IntEnum",
        "from typing import Final",
        "",
        "",
        "class Register(IntEnum):",
        '    """Byte offset of each register."""',
        "",
    ]
    lines += [f"    {path} = 0x{node.absolute_address:03X}" for path, node in registers(top)]
    lines += ["", ""]
    for path, node in registers(top):
        fields = node.fields()
        if len(fields) == 1 and fields[0].width == node.get_property("regwidth"):
            continue  # the register is its only field
        for field in fields:
            mask = (1 << field.width) - 1 << field.low
            lines.append(f"{path}_{field.inst_name.upper()}: Final = 0x{mask:08X}")
    return "\n".join(lines).rstrip() + "\n"


Generator = Callable[[AddrmapNode, Path], str]


def outputs(kernel: str) -> dict[Path, tuple[Generator, str]]:
    """Return each generated file of a kernel, what makes it, and its comment syntax."""
    name = f"{kernel}_registers"
    return {
        REPOSITORY / "rtl" / kernel / "generated" / f"{name}.sv": (register_block, "// {}\n"),
        REPOSITORY / "verif/fastdelta_verif/generated" / f"{name}.py": (register_model, "# {}\n"),
        REPOSITORY / "host/fastdelta/generated" / f"{name}.py": (host_constants, "# {}\n"),
        REPOSITORY / "docs/registers" / f"{kernel}.md": (documentation, "<!-- {} -->\n"),
    }


def generate(source: Path) -> dict[Path, str]:
    """Return path and text of everything that one SystemRDL file generates."""
    kernel = source.parent.name
    top = compile_registers(source)
    if top.inst_name != f"{kernel}_registers":
        raise SystemExit(
            f"{source}: the address map is '{top.inst_name}'; call it '{kernel}_registers', "
            "so that its outputs can be found by the name of the kernel"
        )
    origin = f"Generated from {source.relative_to(REPOSITORY)} by 'make registers'; do not edit."
    texts = {}
    for path, (generator, comment) in outputs(kernel).items():
        with tempfile.TemporaryDirectory() as scratch:
            body = generator(top, Path(scratch))
        head = "".join(map(comment.format, ("SPDX-License-Identifier: Apache-2.0", origin)))
        lines = (head + body).splitlines()
        texts[path] = "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
    return texts


def main() -> int:
    """Write the outputs of every kernel, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description="Generate RTL, models and documents of registers.")
    parser.add_argument("--check", action="store_true", help="fail if an output is stale")
    check = parser.parse_args().check

    stale = []
    for source in sorted(REPOSITORY.glob("overlays/*/registers.rdl")):
        for path, text in generate(source).items():
            if path.is_file() and path.read_text() == text:
                continue
            stale.append(path.relative_to(REPOSITORY))
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for path in stale:
        print(f"{path} is stale; run 'make registers'" if check else f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
