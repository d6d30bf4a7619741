#!/usr/bin/env python3
"""Every lint passes a small clean house, and fails when one fault is planted in it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from common import ROOT, finish, report, skip

LINT = pathlib.Path(__file__).parent
STAGES = re.search(r'STAGES = \("(.*?)"\)', (LINT / "toc.py").read_text().replace('"\n          "', ""))[1].split()
CLEAN_C = """/* [{tag}] what it is for. */
#include "core/base/a.h"

int {name}_twice(int n)
{{
    n *= 2;
    return n + 1;
}}
"""


def house(root):
    """A clean tree: a file for each stage, one table with one row and its file."""
    for folder in ("core/base", "core/model/arch", "core/kernel", "server", "config", "tests/unit"):
        (root / folder).mkdir(parents=True)
    for name in (".clang-format", ".clang-tidy"):
        shutil.copy(ROOT / name, root / name)
    (root / "core/base/a.h").write_text("/* [base] a header. */\n#pragma once\n\n" + "".join(f"int {s}_twice(int n);\n" for s in STAGES))
    for number, stage in enumerate(STAGES):
        text = CLEAN_C.format(tag=f"{number:02} {stage}", name=stage)
        (root / f"core/model/{stage}.c").write_text(text)
    (root / "core/model/arch.def").write_text("/* id */\nARCH(llama, 1)\n")
    (root / "core/model/arch/llama.c").write_text("/* [arch] Llama. */\n#include \"core/base/a.h\"\n")


def put(path, text):
    def plant(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return plant


def change(path, old, new):
    def plant(root):
        text = (root / path).read_text()
        assert old in text, f"{path} has no {old}"
        (root / path).write_text(text.replace(old, new, 1))
    return plant


def long_function(name, lines):
    body = "    n++;\n" * lines
    return f"/* [base] long. */\nint {name}(int n);\nint {name}(int n)\n{{\n{body}    return n;\n}}\n"


THREADS = """/* [base] roles. */
struct __attribute__((capability("role"))) role {
    int x;
};
extern struct role role_a;
int only_a(void) __attribute__((requires_capability(role_a)));
int caller(void);

int caller(void)
{
    return only_a();
}
"""
UNINITIALISED = """/* [base] reads what was never written. */
int f(int n);

int f(int n)
{
    int x;
    if (n > 0)
        x = 1;
    return x + n;
}
"""
# lint, what is wrong, how it is planted, what the lint must say
PLANTS = [
    ("layers", "an include that points upwards", change("core/model/norm.c", '"core/base/a.h"', '"server/s.h"'), "core/model may not include server/s.h|not a path"),
    ("layers", "the engine includes the settings", put("core/base/b.c", '/* [base] b */\n#include "config/c.h"\n'), r"config/c\.h"),
    ("layers", "the server reaches past the two doors", lambda root: (put("core/kv/p.h", "/* [kv] p */\n")(root), put("server/x.c", '/* [server] x */\n#include "core/kv/p.h"\n')(root)), "server may not include core/kv/p.h"),
    ("layers", "a library where it does not belong", put("core/base/b.c", "/* [base] b */\n#include <microhttpd.h>\n"), "<microhttpd.h> belongs to server"),
    ("layers", "a file in no room", put("core/attic/b.c", "/* [base] b */\n"), "belongs to no room"),
    ("layers", "core calls exit", put("core/base/b.c", "/* [base] b */\nvoid f(void);\nvoid f(void) { exit(1); }\n"), "core never calls exit"),
    ("layers", "core reads the environment", put("core/base/b.c", "/* [base] b */\nvoid f(void);\nvoid f(void) { getenv(\"X\"); }\n"), "core never calls getenv"),
    ("rows", "a row without a file", change("core/model/arch.def", "ARCH(llama, 1)", "ARCH(llama, 1)\nARCH(gpt2, 2)"), "row gpt2 has no file"),
    ("rows", "a file without a row", put("core/model/arch/gpt2.c", "/* [arch] GPT-2. */\n"), "gpt2.c: has no row"),
    ("rows", "a row twice", change("core/model/arch.def", "ARCH(llama, 1)", "ARCH(llama, 1)\nARCH(llama, 2)"), "llama has 2 rows"),
    ("rows", "files without a table", put("core/kernel/quant/q.c", "/* [kernel] q */\n"), "the table does not exist"),
    ("toc", "a file without a tag", change("core/model/norm.c", "[07 norm] ", ""), r"norm\.c:1: does not begin"),
    ("toc", "a stage that does not exist", change("core/model/norm.c", "[07 norm]", "[08 norm]"), r"no stage or room is called \[08 norm\]"),
    ("toc", "a stage without a file", lambda root: (root / "core/model/norm.c").unlink(), r"no file carries \[07 norm\]"),
    ("size", "a function of 90 lines", put("core/base/b.c", long_function("f", 90)), "f has 94 lines"),
    ("size", "a file of 900 lines", put("core/base/b.h", "/* [base] b */\n" + "\n" * 899), "900 lines, at most 800"),
    ("headers", "a header that needs another before it", put("core/base/b.h", "/* [base] b */\n#pragma once\nsize_t f(void);\n"), "size_t"),
    ("threads", "a call on the wrong thread", put("core/base/b.c", THREADS), "only_a"),
    ("threads", "a warning of clang", put("core/base/b.c", "/* [base] b */\nstatic int unused(void) { return 1; }\n"), "unused function"),
    ("format", "two statements on one line", put("core/base/b.c", "/* [base] b */\nint f(int n);\nint f(int n) { n++; return n; }\n"), "clang-format"),
    ("tidy", "a value that was never written", put("core/base/b.c", UNINITIALISED), "core.UndefinedBinaryOperatorResult|garbage"),
]
NEEDS = {"headers": "clang", "threads": "clang", "format": "clang-format", "tidy": "clang-tidy"}


def run(lint, root):
    env = dict(os.environ, LINT_ROOT=str(root), LINT_STAMPS=str(root / "stamps"))
    return subprocess.run([sys.executable, str(LINT / f"{lint}.py")], env=env, capture_output=True, text=True)


def trial(lint, plant, expected):
    """What is wrong with the lint, in a list."""
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        root = pathlib.Path(folder)
        house(root)
        if plant:
            plant(root)
        done = run(lint, root)
        if not plant:
            return [f"fails a clean house: {(done.stdout + done.stderr).partition(chr(10))[0]}"] if done.returncode else []
        if done.returncode != 1 or not re.search(f"^not ok .*(?:{expected})", done.stdout, re.M):
            return [f"exit status {done.returncode}, said: {(done.stdout + done.stderr).strip()[:300]}"]
        return []


for lint in dict.fromkeys(lint for lint, *_ in PLANTS):
    if lint in NEEDS and not shutil.which(NEEDS[lint]):
        skip(f"{lint}_selftest", f"{NEEDS[lint]} is not installed")
        continue
    report(f"{lint}_passes_a_clean_house", trial(lint, None, None))
    for name, what, plant, expected in PLANTS:
        if name == lint:
            report(f"{lint}_finds_{what.replace(' ', '_')}", trial(lint, plant, expected))
finish()
