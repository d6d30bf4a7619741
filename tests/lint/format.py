#!/usr/bin/env python3
"""clang-format would change nothing (`make format` does what it would)."""
import shutil

from common import complaints, finish, report, run_per_file, skip, sources

if shutil.which("clang-format"):
    said = run_per_file("format", sources(".c", ".h", folders=("core", "server", "config", "tests")),
                        lambda path: ["clang-format", "--dry-run", "-Werror", str(path)], [".clang-format"])
    report("format", complaints(said))
else:
    skip("format", "clang-format is not installed")
finish()
