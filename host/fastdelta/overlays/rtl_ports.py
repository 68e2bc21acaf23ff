# SPDX-License-Identifier: Apache-2.0
"""Read the ports of a kernel's top module, to compare them with what Vitis is told.

The module has ANSI ports whose widths are numbers or arithmetic on parameters, as the style of the
repository asks for; no simulator is needed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_PARAMETER: Final = re.compile(r"\bparameter\s+(?:integer\s+)?(\w+)\s*=\s*([^,)]+)")
_PORT: Final = re.compile(
    r"\b(input|output)\s+(?:wire|reg|logic)?\s*(?:\[([^:\]]+):([^\]]+)\])?\s*(\w+)\s*(?=,|$)"
)
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


@dataclass(frozen=True)
class Port:
    """One port of a module."""

    direction: Literal["input", "output"]
    width: int


def _value(text: str, parameters: Mapping[str, int]) -> int:
    def visit(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in parameters:
                return parameters[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](visit(left), visit(right))
        raise ValueError(f"{text.strip()!r} is not arithmetic on numbers and parameters")

    return visit(ast.parse(text.strip(), mode="eval").body)


def module_ports(text: str, module: str) -> dict[str, Port]:
    """Return the ports of a module with the default values of its parameters.

    Parameters
    ----------
    text
        Verilog source.
    module
        Name of the module in it.

    Raises
    ------
    ValueError
        If the module is not there, or its head is not as described above.
    """
    source = _COMMENT.sub(" ", text)
    head = re.search(
        rf"\bmodule\s+{module}\s*(?:#\s*\((?P<parameters>.*?)\)\s*)?\((?P<ports>[^;]*)\)\s*;",
        source,
        re.S,
    )
    if head is None:
        raise ValueError(f"there is no module {module} with ANSI ports")
    parameters: dict[str, int] = {}
    for name, value in _PARAMETER.findall(head["parameters"] or ""):
        parameters[name] = _value(value, parameters)
    ports = {}
    for part in head["ports"].split(","):
        found = _PORT.search(part.strip())
        if found is None:
            raise ValueError(f"port {' '.join(part.split())!r} of {module} cannot be read")
        direction, high, low, name = found.groups()
        width = 1 if high is None else _value(high, parameters) - _value(low, parameters) + 1
        ports[name] = Port("input" if direction == "input" else "output", width)
    return ports
