#!/usr/bin/env python3
"""The runner (tests/run.py) believes no program that fails silently."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from common import ROOT, finish, report

# what the program is like, its text, what the runner must say
PROGRAMS = [
    ("passes", 'print("ok a"); print("skip b - absent"); print("1 passed, 0 failed, 1 skipped")', "^1 passed, 0 failed, 1 skipped$"),
    ("fails", 'print("not ok a - why"); print("0 passed, 1 failed, 0 skipped"); raise SystemExit(1)', "not ok a - why"),
    ("crashes", 'import os; print("ok a", flush=True); os.abort()', "killed by SIGABRT"),
    ("runs_no_test", 'print("0 passed, 0 failed, 0 skipped")', "ran no test"),
    ("stops_half_way", 'print("ok a")', "no closing line"),
    ("counts_wrongly", 'print("ok a"); print("2 passed, 0 failed, 0 skipped")', "its closing line says"),
    ("hides_its_status", 'print("not ok a - why"); print("0 passed, 1 failed, 0 skipped")', "exit status 0, though"),
    ("exits_with_1", 'print("ok a"); print("1 passed, 0 failed, 0 skipped"); raise SystemExit(1)', "exit status 1, though"),
    ("hangs", '# timeout: 1\nimport time; time.sleep(60)', "still running after 1 s"),
    ("leaves_a_process", 'import subprocess; subprocess.Popen(["sleep", "60"]); print("ok a"); print("1 passed, 0 failed, 0 skipped")', "left processes running"),
    ("reports_too_few_of_its_plan", 'print("1..2"); print("ok 1 - a"); print("1 passed, 0 failed, 0 skipped")', "2 tests were planned, 1 reported"),
]


def run(program, suite="http", **environment):
    with tempfile.TemporaryDirectory(prefix="runner-") as folder:
        root = pathlib.Path(folder)
        (root / "tests" / suite).mkdir(parents=True)
        shutil.copy(ROOT / "tests/run.py", root / "tests/run.py")
        (root / "tests" / suite / "test_it.py").write_text(program + "\n")
        env = {k: v for k, v in os.environ.items() if k not in ("TALLY", "CI", "MODE", "BUILD")} | environment
        return subprocess.run([sys.executable, str(root / "tests/run.py")], env=env, capture_output=True, text=True)


def faults(done, expected, status):
    if done.returncode != status or not re.search(expected, done.stdout, re.M):
        yield f"exit status {done.returncode}, said: {done.stdout.strip()!r}"


for name, program, expected in PROGRAMS:
    report(f"runner_sees_a_program_that_{name}", faults(run(program), expected, 0 if name == "passes" else 1))
SANITIZED = """import os
path = os.environ["ASAN_OPTIONS"].rpartition("log_path=")[2] + ".7"
open(path, "w").write({!r})
print("ok a"); print("1 passed, 0 failed, 0 skipped")"""
report("runner_sees_what_a_sanitizer_wrote", faults(
    run(SANITIZED.format("==7==ERROR: AddressSanitizer: heap-use-after-free"), MODE="asan"), "heap-use-after-free", 1))
report("runner_passes_over_what_is_no_finding", faults(
    run(SANITIZED.format("==8==Running thread 4 was not suspended. False leaks are possible."), MODE="asan"),
    "^asan: 1 passed, 0 failed$", 0))
report("runner_fails_a_golden_that_is_skipped_in_ci",
       faults(run(PROGRAMS[0][1], "golden", CI="true"), "skipped in CI: b", 1))
finish()
