#!/usr/bin/env python3
"""clang sees no warning, and none of a function called on a thread that is not its own (core/base/thread.h)."""
import shutil

from common import compiler_flags, complaints, finish, report, run_per_file, skip, sources

if shutil.which("clang"):
    flags = compiler_flags()
    said = run_per_file("threads", sources(".c"), lambda path: [
        "clang", *flags, "-Werror", "-Wthread-safety", "-fsyntax-only", str(path)])
    report("threads", complaints(said))
else:
    skip("threads", "clang is not installed")
finish()
