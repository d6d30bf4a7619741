#!/usr/bin/env python3
"""clang-tidy finds nothing (.clang-tidy says what it looks for)."""
import shutil

from common import ROOT, compiler_flags, complaints, finish, report, run_per_file, skip, sources

if shutil.which("clang-tidy"):
    flags = compiler_flags()
    settings = [p.relative_to(ROOT) for p in [ROOT / ".clang-tidy", *ROOT.glob("core/**/.clang-tidy")]]
    said = run_per_file("tidy", sources(".c"), lambda path: ["clang-tidy", "--quiet", str(path), "--", *flags],
                        settings)
    report("tidy", complaints(said))
else:
    skip("tidy", "clang-tidy is not installed")
finish()
