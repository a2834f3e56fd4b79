"""Renew requirements.lock: what running and developing need, one version for each package, with hashes.

The lock must install by plain pip on every supported Python and platform, from any index: it names no address.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = "3.11"


def main() -> int:
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--extra", "dev", "--upgrade"),
        *("--universal", "--python-version", OLDEST_PYTHON, "--fork-strategy", "fewest"),
        *("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"),
        *("--quiet", "--output-file", "requirements.lock"),
    ]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
