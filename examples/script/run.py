"""A script is killed between two jobs, and run again: is each file measured once?

python run.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from faultline.testing import temporary_database

HERE = Path(__file__).parent
FILES = 5
LIMIT_SECONDS = 60


def run_script(folder: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "measure.py", folder],
        cwd=HERE,
        env=os.environ | environment,
        stderr=subprocess.DEVNULL,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return done.returncode


def main() -> int:
    with temporary_database() as url, tempfile.TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = url
        for number in range(1, FILES + 1):
            (Path(folder) / f"{number}.txt").write_text("x" * number)
        crashed = run_script(folder, CRASH="1")
        print("first run   is killed after it has measured a file")
        finished = run_script(folder)
        print("second run  finds the jobs of the first, and does the others")
        with psycopg.connect(url) as conn:
            found = conn.execute("select bytes from sizes order by bytes").fetchall()
    sizes = [size for (size,) in found]
    print(f"\n{len(sizes)} measurements of {FILES} files")
    holds = (crashed, finished) == (1, 0) and sizes == list(range(1, FILES + 1))
    print("Each file was measured once." if holds else f"WRONG: {sizes}, {crashed}, {finished}.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
