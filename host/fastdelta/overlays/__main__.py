# SPDX-License-Identifier: Apache-2.0
"""``python -m fastdelta.overlays``: what the Makefiles run; see each command's help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fastdelta.errors import FastdeltaError
from fastdelta.overlays import vitis
from fastdelta.overlays.generate import stale
from fastdelta.overlays.manifest import EMULATION, HARDWARE
from fastdelta.sim.paths import checkout
from fastdelta.xclbin import XclbinError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fastdelta.overlays", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("generate", help="write kernel.tcl, link_*.cfg and manifest templates")
    commands.add_parser("check", help="check all files of the overlays without Vitis")

    tools = commands.add_parser("tools", help="check the releases of vivado and v++ for a card")
    tools.add_argument("--card", required=True)
    tools.add_argument("tools", nargs="+", choices=("vivado", "v++"))

    settings = commands.add_parser("settings", help="check the settings of a build and write them")
    manifest = commands.add_parser("manifest", help="write the manifest of a build")
    verify = commands.add_parser("verify", help="check a build as the host does before loading it")
    for command in (settings, manifest, verify):
        command.add_argument("--kernel", required=True)
        command.add_argument("--card", required=True)
    for command in (settings, manifest):
        command.add_argument("--units", type=int, required=True)
        command.add_argument("--clock-mhz", type=int, required=True)
        command.add_argument("--parameters", default="")
    settings.add_argument("--platform", default="")
    settings.add_argument("--output", type=Path, required=True)
    manifest.add_argument("--target", choices=(HARDWARE, EMULATION), required=True)
    manifest.add_argument("--reports", type=Path, required=True)
    for command in (manifest, verify):
        command.add_argument("xclbin", type=Path)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    root = checkout()
    match arguments.command:
        case "generate":
            for path in stale(root, write=True):
                print(f"wrote {path.relative_to(root)}")
        case "check":
            from fastdelta.overlays.check import check_overlays

            faults, done = check_overlays(root)
            for line in (*faults, *done):
                print(line)
            return 1 if faults else 0
        case "tools":
            vitis.check_tools(vitis.find_card(arguments.card), arguments.tools)
        case "settings":
            text = vitis.build_settings(
                arguments.kernel,
                arguments.card,
                units=arguments.units,
                clock_mhz=arguments.clock_mhz,
                settings=arguments.parameters.split(),
                platform_file=arguments.platform,
            )
            output: Path = arguments.output
            if not output.is_file() or output.read_text() != text:  # make rebuilds what is older
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(text)
        case "manifest":
            card = vitis.find_card(arguments.card)
            vitis.write_manifest(
                arguments.kernel,
                arguments.card,
                arguments.xclbin,
                target=arguments.target,
                release=vitis.check_tools(card, ["v++"]),
                units=arguments.units,
                clock_mhz=arguments.clock_mhz,
                settings=arguments.parameters.split(),
                reports=arguments.reports,
            )
        case "verify":
            manifest = vitis.verify(arguments.kernel, arguments.card, arguments.xclbin)
            if (build := manifest.build) is not None:
                tested = "" if build.vitis in manifest.vitis_tested else "not yet "
                print(
                    f"{arguments.xclbin}: {build.clock_mhz} MHz, uuid {build.uuid}; overlays of "
                    f"Vitis {build.vitis} were {tested}tested on a card"
                )
    return 0


def main() -> int:
    """Run one command; foreseen errors end it with their message."""
    try:
        return _run(_parser().parse_args())
    except (FastdeltaError, XclbinError, OSError) as error:
        print(f"overlays: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
