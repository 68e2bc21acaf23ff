# SPDX-License-Identifier: Apache-2.0
"""Run the simulations again with other seeds, and merge their coverage.

``python -m fastdelta_verif.regression --seeds 5 -k decode_core`` runs pytest on
``tests/simulation`` five times. A failing test prints the line that runs it again; the seeds that
failed are listed at the end. Arguments that are not known here go to pytest.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys

from fastdelta_verif import coverage
from fastdelta_verif.build import COVERAGE_FOLDER, LINE_COVERAGE_VARIABLE, REPOSITORY


def main() -> int:
    """Run the seeds and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="number of runs")
    parser.add_argument("--first-seed", type=int, help="random without it")
    parser.add_argument("--line-coverage", action="store_true", help="record lines of the RTL")
    arguments, pytest_arguments = parser.parse_known_args()

    shutil.rmtree(COVERAGE_FOLDER, ignore_errors=True)
    seed, failed = arguments.first_seed or random.SystemRandom().randrange(1, 2**31), []
    environment = dict(os.environ)
    if arguments.line_coverage:
        environment[LINE_COVERAGE_VARIABLE] = "1"
    for number in range(seed, seed + arguments.seeds):
        environment["COCOTB_RANDOM_SEED"] = str(number)
        command = [sys.executable, "-m", "pytest", "tests/simulation", *pytest_arguments]
        print(f"seed {number}: {' '.join(command[2:])}", flush=True)
        if subprocess.run(command, cwd=REPOSITORY, env=environment, check=False).returncode:
            failed.append(number)
    sys.argv = [sys.argv[0]]
    coverage.main()
    for number in failed:
        print(f"failed: COCOTB_RANDOM_SEED={number} {' '.join(command[2:])}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
