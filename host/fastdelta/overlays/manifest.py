# SPDX-License-Identifier: Apache-2.0
"""Manifests: what was built, for which card, with which tools, and whether it may be loaded.

``overlays/<kernel>/<card>/manifest.toml`` is the template: it says that nothing has been built. A
build writes ``<name>.manifest.toml`` beside its ``<name>.xclbin``, and the host reads it before
the card sees the overlay.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fastdelta.errors import ManifestError
from fastdelta.interface import KernelInterface
from fastdelta.platforms import Platform, find_platform
from fastdelta.xclbin import Xclbin

FORMAT: Final = 1
SUFFIX: Final = ".manifest.toml"
HARDWARE: Final = "hw"
EMULATION: Final = "hw_emu"

_HEADER_KEYS: Final = ("engine", "kernel", "register_map", "card", "platform", "target")
_VERSION_KEYS: Final = ("vitis_tested", "vitis_not_tested", "xrt_tested", "xrt_not_tested")


@dataclass(frozen=True)
class Build:
    """What a build found out.

    Attributes
    ----------
    vitis
        Release of the tools.
    compute_units
        Copies of the kernel.
    parameters
        RTL parameters of the kernel.
    requested_clock_mhz, clock_mhz
        Clock asked for, and the one in the xclbin.
    worst_negative_slack_ns, worst_hold_slack_ns
        From the last timing report, at the requested clock; None for emulation, which has none.
    uuid, sha256
        Of the xclbin.
    """

    vitis: str
    compute_units: int
    parameters: Mapping[str, int]
    requested_clock_mhz: int
    clock_mhz: int
    worst_negative_slack_ns: float | None
    worst_hold_slack_ns: float | None
    uuid: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One manifest.

    Attributes
    ----------
    engine, kernel
        ``decode`` or ``prefill``, and the name of its kernel.
    register_map
        Version of the kernel's registers, ``major.minor``.
    card, platform
        Short name of the card, and the platform that Vitis links for.
    target
        ``hw`` or ``hw_emu``.
    vitis_tested, vitis_not_tested, xrt_tested, xrt_not_tested
        Releases with which an overlay was run on a card, and those that know the platform but
        with which none was.
    build
        What the build found out; None before there is one.
    """

    engine: str
    kernel: str
    register_map: str
    card: str
    platform: str
    target: str
    vitis_tested: tuple[str, ...]
    vitis_not_tested: tuple[str, ...]
    xrt_tested: tuple[str, ...]
    xrt_not_tested: tuple[str, ...]
    build: Build | None = None

    def to_toml(self) -> str:
        """Return the text of the manifest, without a comment in front."""
        built = self.build is not None
        lines = [f"format = {FORMAT}", f'state = "{"built" if built else "not built"}"']
        lines += [f"{key} = {json.dumps(getattr(self, key))}" for key in _HEADER_KEYS]
        lines += ["", "[versions]"]
        lines += [f"{key} = {json.dumps(list(getattr(self, key)))}" for key in _VERSION_KEYS]
        if self.build is not None:
            values = {key: value for key, value in vars(self.build).items() if value is not None}
            parameters = values.pop("parameters")
            lines += ["", "[build]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
            lines += ["", "[build.parameters]"]
            lines += [f"{key} = {value}" for key, value in parameters.items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str, where: object) -> Manifest:
        """Read a manifest.

        Parameters
        ----------
        text
            The manifest.
        where
            What messages call it.

        Raises
        ------
        ManifestError
            If it is none, or one of another format.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ManifestError(f"{where} is not TOML ({error}); build the overlay again") from None
        if table.get("format") != FORMAT:
            raise ManifestError(
                f"{where} has format {table.get('format')!r}, this host reads {FORMAT}: use the "
                "release of fastdelta that built the overlay, or build it again"
            )
        states = {"built": True, "not built": False}
        state = table.get("state")
        if state not in states or states[state] != ("build" in table):
            raise ManifestError(
                f"{where} says state {state!r} and has {'a' if 'build' in table else 'no'} table "
                "[build]; it is 'built' with one or 'not built' without"
            )
        try:
            values: dict[str, Any] = {key: _text(table[key]) for key in _HEADER_KEYS}
            for key in _VERSION_KEYS:
                values[key] = tuple(map(_text, table["versions"][key]))
            return cls(**values, build=_build(table["build"]) if states[state] else None)
        except (KeyError, TypeError, ValueError) as error:
            raise ManifestError(
                f"{where} lacks a value or has one of a wrong kind ({error!r}); build the overlay "
                "again"
            ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    return value


def _number(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{value!r} is no number")
    return None if value is None else float(value)


def _build(table: Mapping[str, Any]) -> Build:
    return Build(
        vitis=_text(table["vitis"]),
        compute_units=int(table["compute_units"]),
        parameters={name: int(value) for name, value in table["parameters"].items()},
        requested_clock_mhz=int(table["requested_clock_mhz"]),
        clock_mhz=int(table["clock_mhz"]),
        worst_negative_slack_ns=_number(table.get("worst_negative_slack_ns")),
        worst_hold_slack_ns=_number(table.get("worst_hold_slack_ns")),
        uuid=_text(table["uuid"]),
        sha256=_text(table["sha256"]),
    )


def register_map(engine: str) -> str:
    """Return the version of an engine's registers that this host knows, ``major.minor``."""
    value: int = import_module(f"fastdelta.registers.{engine}").VERSION_VALUE
    return f"{value >> 16}.{value & 0xFFFF}"


def template(interface: KernelInterface, platform: Platform) -> Manifest:
    """Return the manifest of a kernel for a card before anything was built."""
    tested = interface.tested[platform.name]

    def untested(tool: str, releases: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(release for release in releases if release not in tested[tool])

    return Manifest(
        engine=interface.instance,
        kernel=interface.name,
        register_map=register_map(interface.instance),
        card=platform.name,
        platform=platform.vbnv,
        target=HARDWARE,
        vitis_tested=tested["vitis"],
        vitis_not_tested=untested("vitis", platform.releases),
        xrt_tested=tested["xrt"],
        xrt_not_tested=untested("xrt", platform.xrt_releases),
    )


def manifest_path(xclbin: Path) -> Path:
    """Return where the manifest of an xclbin is: beside it, with its name."""
    return xclbin.with_name(xclbin.name.removesuffix(".xclbin") + SUFFIX)


def sha256(data: bytes) -> str:
    """Return the digest of a file as manifests write it."""
    return hashlib.sha256(data).hexdigest()


def check_manifest(
    manifest: Manifest,
    where: object,
    data: bytes,
    container: Xclbin,
    engine: str,
    card: Platform,
) -> None:
    """Refuse an overlay whose manifest says that it must not be loaded, or is another's.

    Parameters
    ----------
    manifest
        The manifest.
    where
        What messages call it.
    data, container
        The xclbin, as bytes and read.
    engine
        Engine that is to be opened.
    card
        Card that is to load it.

    Raises
    ------
    ManifestError
        Says what does not fit and what to do.
    """
    build = manifest.build
    if build is None:
        raise ManifestError(
            f"{where} is a template: its overlay was not built. make -C overlays xclbin writes the "
            "manifest of a build beside its xclbin"
        )
    if manifest.engine != engine:
        raise ManifestError(
            f"{where} is of the {manifest.engine} engine; load the overlay of the {engine} engine"
        )
    known = register_map(engine)
    if manifest.register_map.partition(".")[0] != known.partition(".")[0]:
        raise ManifestError(
            f"{where} has register map {manifest.register_map}, which this host does not know: it "
            f"has {known}. Use the release of fastdelta that built the overlay, or build it again"
        )
    try:
        built_for = find_platform(manifest.platform)
    except ValueError as error:
        raise ManifestError(f"{where} is for platform {manifest.platform!r}: {error}") from None
    if built_for is not card or manifest.platform != container.vbnv:
        raise ManifestError(
            f"{where} is for platform {manifest.platform}, the xclbin for {container.vbnv}, and "
            f"the card is a {card.name}; load an overlay that was built for this card, with its "
            "own manifest"
        )
    for name, said, found in (
        ("sha256", build.sha256.lower(), sha256(data)),
        ("uuid", build.uuid.replace("-", "").lower(), container.uuid),
    ):
        if said != found:
            raise ManifestError(
                f"{where} is of another xclbin: its {name} is {said}, the file has {found}. Copy "
                "both from one build, or build again"
            )
    emulating = os.environ.get("XCL_EMULATION_MODE") == EMULATION
    if manifest.target != (EMULATION if emulating else HARDWARE):
        raise ManifestError(
            f"{where} is for target {manifest.target!r}, but XCL_EMULATION_MODE is "
            f"{os.environ.get('XCL_EMULATION_MODE')!r}; a card needs an overlay for {HARDWARE!r} "
            f"and no such variable, emulation both as {EMULATION!r}"
        )
    if manifest.target == HARDWARE:
        _check_timing(build, where)


def _check_timing(build: Build, where: object) -> None:
    for kind, slack in (
        ("negative", build.worst_negative_slack_ns),
        ("hold", build.worst_hold_slack_ns),
    ):
        if slack is None:
            raise ManifestError(
                f"{where} names no worst {kind} slack, so nobody knows whether the overlay met its "
                "timing; build it again"
            )
        if not slack >= 0:
            raise ManifestError(
                f"{where} says that timing failed: the worst {kind} slack is {slack:g} ns at "
                f"{build.requested_clock_mhz} MHz. Results could be wrong at any time; build again "
                "with a lower CLOCK_MHZ"
            )
