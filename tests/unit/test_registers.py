# SPDX-License-Identifier: Apache-2.0
"""What is generated from the decode kernel's SystemRDL: current, and as the contract says."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from fastdelta.registers import decode

REPOSITORY = Path(__file__).resolve().parents[2]
CONTRACT = REPOSITORY / "docs/decode_engine.md"

SCALARS = ("command", "context", "tokens", "flags", "watchdog")
POINTERS = {"qk": "m_axi_qk", "v": "m_axi_v", "o": "m_axi_o", "result": "m_axi_o"}


def contract_section(title: str) -> str:
    """Return a section of the contract."""
    return CONTRACT.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_generated_files_are_current() -> None:
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "tools/generate_registers.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_offsets_are_those_of_the_contract() -> None:
    rows = re.findall(r"^\| (0x\w\w(?:, 0x\w\w)*) \| ([\w, ]+?) \|", CONTRACT.read_text(), re.M)
    offsets = {
        name.upper(): int(offset, 16)
        for cell, names in rows
        for offset, name in zip(cell.split(", "), names.split(", "), strict=True)
    }
    assert len(offsets) == 17
    registers = {register.name: register.value for register in decode.Register}
    for name, offset in offsets.items():
        if name.lower() in POINTERS:
            assert (registers[f"{name}_LOW"], registers[f"{name}_HIGH"]) == (offset, offset + 4)
        else:
            assert registers[name] == offset, name


def test_counters_follow_the_result_block() -> None:
    """Words 3 to 15 of the result block are the registers from 0x90, in the same order."""
    counters = [register.value for register in decode.Register if register.value >= 0x90]
    assert counters == [0x90 + 4 * index for index in range(13)]


def test_codes_are_those_of_the_contract() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+)\b", contract_section("Kernel"), re.M)
    assert {name: int(code) for code, name in rows} == {s.name: s.value for s in decode.Status}
    assert "0 decode, 1 clear, 2 load, 3 dump" in contract_section("Kernel")
    assert [command.name for command in decode.Command] == ["DECODE", "CLEAR", "LOAD", "DUMP"]
    assert decode.VERSION_VALUE == 0x0001_0000


def test_kernel_description() -> None:
    """kernel.xml gives each argument once, its id dense, at its register, on a port of the top."""
    kernel = ElementTree.parse(REPOSITORY / "overlays/decode/kernel.xml").find("kernel")
    assert kernel is not None
    assert kernel.get("hwControlProtocol") == "ap_ctrl_chain"
    arguments = kernel.findall("args/arg")
    assert [int(argument.attrib["id"]) for argument in arguments] == list(range(len(arguments)))
    assert {argument.attrib["name"] for argument in arguments} == {*SCALARS, *POINTERS}

    ports = {port.attrib["name"] for port in kernel.findall("ports/port")}
    top = (REPOSITORY / "rtl/decode/decode_kernel.v").read_text()
    assert ports == set(re.findall(r"\b([ms]_axi_\w+?)_(?:araddr|awaddr),", top))

    end = 0x10
    for argument in arguments:
        attributes = argument.attrib
        name, offset = attributes["name"], int(attributes["offset"], 16)
        pointer = name in POINTERS
        register = decode.Register[f"{name}_low".upper() if pointer else name.upper()]
        assert offset == register
        assert offset >= end, f"{name} overlaps the argument before it"
        size = 8 if pointer else 4
        assert int(attributes["size"], 16) == int(attributes["hostSize"], 16) == size
        assert attributes["port"] == POINTERS.get(name, "s_axi_control")
        assert attributes["addressQualifier"] == str(int(pointer))
        end = offset + size
