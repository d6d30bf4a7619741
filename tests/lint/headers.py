#!/usr/bin/env python3
"""Every header compiles alone, with gcc and with clang."""
import shutil

from common import compiler_flags, complaints, finish, report, run_per_file, skip, sources

flags = compiler_flags()
for compiler in ("gcc", "clang"):
    if not shutil.which(compiler):
        skip(f"headers_{compiler}", f"{compiler} is not installed")
        continue
    said = run_per_file(f"headers-{compiler}", sources(".h"), lambda path: [
        compiler, *flags, "-Werror", "-fsyntax-only", "-include", str(path), "-x", "c", "/dev/null"])
    report(f"headers_{compiler}", complaints(said))
finish()
