"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_first_example_prints_what_stands_below_it() -> None:
    code, shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL).groups()  # type: ignore[union-attr]
    assert len(code.strip().splitlines()) <= 12
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == shown


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text("utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", README)) - {"help"}:
        assert re.search(rf"(?m)^{target}:", makefile), target
