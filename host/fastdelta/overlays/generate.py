# SPDX-License-Identifier: Apache-2.0
"""Generate what Vitis needs of a kernel from its ``kernel.xml`` and ``interface.toml``.

For each kernel that has registers of its own under ``overlays/``:

- ``<kernel>/kernel.tcl``: name, ports and arguments for ``package_kernel.tcl``,
- ``<kernel>/<card>/link_<count>.cfg``: compute units, memory banks and dies for ``v++ --link``,
- ``<kernel>/<card>/manifest.toml``: the template of the manifest, which says "not built".

They are committed; a check fails when one of them is stale.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fastdelta.interface import Connections, KernelInterface, load_interface
from fastdelta.overlays.manifest import template
from fastdelta.platforms import PLATFORMS, Platform

HEAD = (
    "# SPDX-License-Identifier: Apache-2.0\n# Generated from {} by 'make overlays'; do not edit.\n"
)


def kernels(root: Path) -> list[str]:
    """Return the kernels of a checkout that are built for cards."""
    return sorted(path.parent.name for path in root.glob("overlays/*/interface.toml"))


def kernel_tcl(interface: KernelInterface, folder: Path) -> str:
    """Return the Tcl dictionary from which a kernel is packaged."""
    vendor, library, name, version = interface.vlnv.split(":")
    file_list = os.path.relpath(interface.file_list, folder.resolve())
    lines = [
        "set kernel {",
        f"  name      {name}",
        f"  vendor    {vendor}",
        f"  library   {library}",
        f"  version   {version}",
        f"  protocol  {interface.control}",
        f"  range     {interface.control_range}",
        f"  file_list {file_list}",
        f"  masters   {{{' '.join(interface.ports)}}}",
        "  arguments {",
    ]
    lines += [
        f"    {{{argument.name} 0x{argument.offset:02X} {8 * argument.size} "
        f"{argument.port or '{}'}}}"
        for argument in interface.arguments
    ]
    return "\n".join([*lines, "  }", "}"]) + "\n"


def _bank_range(platform: Platform, tags: Sequence[str]) -> str:
    """Return one bank, or neighbouring ones as the link configuration writes them."""
    if len(tags) == 1:
        return tags[0]
    indices = [platform.bank_index(tag) for tag in tags]
    kinds = {platform.banks[index].memory_type for index in indices}
    if indices != list(range(indices[0], indices[0] + len(indices))) or len(kinds) > 1:
        raise ValueError(f"{', '.join(tags)} are not neighbours in ascending order")
    return f"{tags[0][:-1]}:{tags[-1].partition('[')[2]}"


def link_configuration(interface: KernelInterface, platform: Platform, count: int) -> str:
    """Return the configuration of ``v++ --link`` for some compute units of a kernel.

    Raises
    ------
    ValueError
        If the kernel has no connections for so many compute units, or ones that cannot be linked.
    """
    units: tuple[Connections, ...] = interface.connections(platform, count)
    names = [interface.unit_name(index) for index in range(count)]
    lines = ["[connectivity]", f"nk={interface.name}:{count}:{'.'.join(names)}"]
    for name, connections in zip(names, units, strict=True):
        lines += [
            f"sp={name}.{port}:{_bank_range(platform, connections[port])}"
            for port in interface.ports
        ]
    placements = interface.placements[platform.name][:count]
    lines += [
        f"slr={name}:{slr}" for name, slr in zip(names, placements, strict=True) if slr is not None
    ]
    return "\n".join(lines) + "\n"


def outputs(root: Path, kernel: str) -> dict[Path, str]:
    """Return path and text of everything that is generated for one kernel.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `fastdelta.interface.load_interface`.
    """
    folder = root / "overlays" / kernel
    interface = load_interface(folder)
    from_xml = HEAD.format(f"overlays/{kernel}/kernel.xml")
    from_toml = HEAD.format(f"overlays/{kernel}/interface.toml")
    texts = {folder / "kernel.tcl": from_xml + kernel_tcl(interface, folder)}
    for card, units in interface.compute_units.items():
        platform = PLATFORMS[card]
        for count in range(1, len(units) + 1):
            text = link_configuration(interface, platform, count)
            texts[folder / card / f"link_{count}.cfg"] = from_toml + text
        texts[folder / card / "manifest.toml"] = from_toml + (
            "# A template: a build writes a manifest with uuid, sha256, clock and worst slack\n"
            "# beside its xclbin. Tested releases are those with which a card has run an overlay.\n"
            + template(interface, platform).to_toml()
        )
    return texts


def stale(root: Path, *, write: bool = False) -> list[Path]:
    """Return the generated files that are not as they should be; write them if asked to."""
    found = []
    for kernel in kernels(root):
        texts = outputs(root, kernel)
        for path, text in texts.items():
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            found.append(path)
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        folder = root / "overlays" / kernel
        for path in sorted({*folder.glob("*/link_*.cfg"), *folder.glob("*/manifest.toml")}):
            if path not in texts:
                found.append(path)
                if write:
                    path.unlink()
    return found
