"""Everything that wants an accelerator, in one short run: `python -m tools.accelerator`.

The tests that run on it, then the benchmarks of torch on it, which are stored in tests/benchmarks.
"""

import subprocess
import sys

import torch


def main():
    if not torch.accelerator.is_available():
        sys.exit("torch finds no accelerator here.")
    device = torch.accelerator.current_accelerator().type
    for command in (["pytest", "tests", "-q", "-k", device], ["tools.bench", "--device", device]):
        subprocess.run([sys.executable, "-m", *command], check=True)


if __name__ == "__main__":
    main()
