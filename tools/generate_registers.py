# SPDX-License-Identifier: Apache-2.0
"""Generate everything that knows a kernel's registers from its SystemRDL source.

``overlays/<kernel>/registers.rdl`` holds one address map, ``<kernel>_registers``. From it come

- ``rtl/<kernel>/generated/<kernel>_registers.sv``: the AXI4-Lite register block,
- ``verif/fastdelta_verif/registers/<kernel>.py``: the pyuvm register model,
- ``host/fastdelta/registers/<kernel>.py``: offsets, field masks and codes for the host,
- ``overlays/<kernel>/kernel.xml``: ports and arguments for the Vitis linker and the simulated card,
- ``docs/registers_<kernel>.md``: the documentation.

The outputs are committed. ``--check`` writes nothing and fails when one of them is stale.
"""

import argparse
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from peakrdl_etana.cpuif.axi4lite import AXI4Lite_Cpuif_flattened
from peakrdl_etana.exporter import RegblockExporter
from peakrdl_etana.udps import ALL_UDPS
from peakrdl_pyuvm.exporter import PyUVMExporter
from systemrdl.compiler import RDLCompiler
from systemrdl.messages import RDLCompileError
from systemrdl.node import AddrmapNode, FieldNode, Node, RegfileNode, RegNode
from systemrdl.rdltypes.user_enum import UserEnum

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
    """Return the RTL of the register block, with flat ports that Yosys and Icarus read.

    Addresses without a register answer OKAY, as in blocks that Vitis generates: its runtime also
    writes the gaps between arguments.
    """
    RegblockExporter().export(
        top,
        str(scratch),
        cpuif_cls=AXI4Lite_Cpuif_flattened,
        address_width=ADDRESS_WIDTH,
        default_reset_activelow=True,
        flatten_nested_blocks=True,
    )
    text = (scratch / f"{top.inst_name}.sv").read_text()
    # A timescale in one source of a design and not in the others is an error in Verilator.
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith("`timescale")
    )


def register_model(top: AddrmapNode, scratch: Path) -> str:
    """Return the pyuvm register model."""
    path = scratch / "model.py"
    PyUVMExporter().export(top, str(path), reuse_class_definitions=False)
    return path.read_text()


def registers(top: AddrmapNode) -> Iterator[tuple[str, RegNode]]:
    """Yield each register with its path in upper case, such as ``Q_ADDRESS_LO``."""
    for node in top.descendants(unroll=True):
        if isinstance(node, RegNode):
            path = node.get_rel_path(top, hier_separator="_", array_suffix="_{index:d}")
            yield path.upper(), node


def description(node: Node) -> str:
    """Return the ``desc`` of a node as one line."""
    return " ".join(str(node.get_property("desc", default="")).split())


def is_whole(register: RegNode) -> bool:
    """Return whether the register is its only field."""
    fields = register.fields()
    return len(fields) == 1 and fields[0].width == register.get_property("regwidth")


def fixed_value(field: FieldNode) -> int | None:
    """Return the value of a field that nothing can change, else None."""
    reset = field.get_property("reset")
    changes = field.is_sw_writable or field.is_hw_writable
    return reset if isinstance(reset, int) and not changes else None


def codes(top: AddrmapNode) -> dict[str, type[UserEnum]]:
    """Return the enumerations that fields are encoded with, by the name of their Python class."""
    found: dict[str, type[UserEnum]] = {}
    kernel = top.inst_name.removesuffix("registers")
    for _, register in registers(top):
        for field in register.fields():
            encoding = field.get_property("encode")
            if encoding is not None:
                words = encoding.type_name.removeprefix(kernel).split("_")
                found["".join(map(str.capitalize, words))] = encoding
    return found


def host_constants(top: AddrmapNode, _scratch: Path) -> str:
    """Return a Python module with offsets, field masks, fixed values and codes."""
    lines = [
        f'"""Offsets, field masks and codes of ``{top.inst_name}``."""',
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
    for name, encoding in codes(top).items():
        lines += ["", "", f"class {name}(IntEnum):", f'    """{name} codes."""', ""]
        for member in encoding:
            if member.rdl_desc:
                words = " ".join(member.rdl_desc.split())
                lines += [f"    # {line}" for line in textwrap.wrap(words, 94)]
            lines += [f"    {member.name} = {member.value}"]
    lines += ["", ""]
    for path, node in registers(top):
        fields = node.fields()
        if not is_whole(node):  # the masks of its fields, each in its place
            for field in fields:
                mask = (1 << field.width) - 1 << field.low
                lines.append(f"{path}_{field.inst_name.upper()}: Final = 0x{mask:08X}")
        fixed = [
            value << field.low for field in fields if (value := fixed_value(field)) is not None
        ]
        if len(fixed) == len(fields):
            lines.append(f"{path}_VALUE: Final = 0x{sum(fixed):08X}")
    return "\n".join(lines).rstrip() + "\n"


def access(field: FieldNode) -> str:
    """Return what software can do with a field, with the side effects."""
    words = [field.get_property("sw").name]
    for effect in (field.get_property("onread"), field.get_property("onwrite")):
        if effect is not None:
            words.append(effect.name)
    return ", ".join(words)


def documentation(top: AddrmapNode, _scratch: Path) -> str:
    """Return the register map as Markdown."""
    lines = [
        f"# {top.get_property('name')}",
        "",
        description(top),
        "",
        "Access: r read, w write, woset write 1 to set, wot write 1 to toggle, "
        "rclr cleared by a read.",
        "",
        "| offset | register | bits | field | access | reset | meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    for path, register in registers(top):
        group = "" if isinstance(register.parent, AddrmapNode) else description(register.parent)
        lead = f"| 0x{register.absolute_address:02X} | {path}"
        meaning = " ".join(filter(None, (group, description(register))))
        if not is_whole(register):
            lines.append(f"{lead} | | | | | {meaning} |")
            lead = "| |"
        for field in register.fields():
            whole = is_whole(register)
            reset = field.get_property("reset")
            cells = (
                f"{field.high}:{field.low}" if field.width > 1 else f"{field.low}",
                "" if whole else field.inst_name,
                access(field),
                "" if reset is None else f"{reset:#x}",
                meaning if whole else description(field),
            )
            lines.append(f"{lead} | {' | '.join(cells)} |")
    for name, encoding in codes(top).items():
        lines += ["", f"## {name} codes", "", "| code | name | meaning |", "|---|---|---|"]
        for member in encoding:
            text = " ".join((member.rdl_desc or "").split())
            lines.append(f"| {member.value} | {member.name} | {text} |")
    return "\n".join(lines) + "\n"


def kernel_description(top: AddrmapNode, _scratch: Path) -> str:
    """Return kernel.xml: name, control protocol, ports and arguments of the kernel."""
    name = f"{top.inst_name.removesuffix('_registers')}_kernel"
    root = ElementTree.Element("root", versionMajor="1", versionMinor="6")
    kernel = ElementTree.SubElement(
        root,
        "kernel",
        name=name,
        language="ip_c",
        vlnv=f"fastdelta:kernel:{name}:{top.get_property('kernel_version')}",
        attributes="",
        preferredWorkGroupSizeMultiple="0",
        workGroupSize="1",
        interrupt="true",
        hwControlProtocol="ap_ctrl_chain",
    )
    ports = ElementTree.SubElement(kernel, "ports")
    arguments = ElementTree.SubElement(kernel, "args")

    def add_port(port: str, mode: str, span: int, width: int) -> None:
        ElementTree.SubElement(
            ports,
            "port",
            name=port,
            mode=mode,
            range=f"0x{span:X}",
            dataWidth=str(width),
            portType="addressable",
            base="0x0",
        )

    add_port("s_axi_control", "slave", 1 << ADDRESS_WIDTH, 32)
    masters: list[str] = []
    children = [node for node in top.children() if isinstance(node, RegNode | RegfileNode)]
    for node in children:
        is_pointer = isinstance(node, RegfileNode)
        if not is_pointer and not node.get_property("scalar_argument", default=False):
            continue
        port = str(node.get_property("memory_port")) if is_pointer else "s_axi_control"
        if is_pointer and port not in masters:
            masters.append(port)
            add_port(port, "master", 2**64 - 1, top.get_property("memory_width"))
        size = f"0x{8 if is_pointer else 4:X}"
        ElementTree.SubElement(
            arguments,
            "arg",
            name=node.inst_name,
            addressQualifier="1" if is_pointer else "0",
            id=str(len(arguments)),
            port=port,
            size=size,
            offset=f"0x{node.absolute_address:02X}",
            type="void*" if is_pointer else "uint",
            hostOffset="0x0",
            hostSize=size,
        )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


Generator = Callable[[AddrmapNode, Path], str]


def outputs(kernel: str) -> dict[Path, tuple[Generator, str]]:
    """Return each generated file of a kernel, what makes it, and its comment syntax."""
    block = REPOSITORY / "rtl" / kernel / "generated" / f"{kernel}_registers.sv"
    return {
        block: (register_block, "// {}\n"),
        REPOSITORY / f"verif/fastdelta_verif/registers/{kernel}.py": (register_model, "# {}\n"),
        REPOSITORY / f"host/fastdelta/registers/{kernel}.py": (host_constants, "# {}\n"),
        REPOSITORY / f"overlays/{kernel}/kernel.xml": (kernel_description, "<!-- {} -->\n"),
        REPOSITORY / f"docs/registers_{kernel}.md": (documentation, "<!-- {} -->\n"),
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
