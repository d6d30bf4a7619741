#!/usr/bin/env python3
"""Runs the test programs and sums them up. Usage: tests/run.py [SUITE or FILE ...], all suites by default.

A test program runs once, under a time limit, and speaks in lines.
Python: `ok NAME`, `not ok NAME - why`, `skip NAME - why`, and `N passed, N failed, N skipped` at its end.
cmocka: TAP, which is nearly the same. A program that wants other than the usual time says so in a line
`timeout: SECONDS` in its first 20 lines. Faults of their own: a crash, a missing end, an exit status that
contradicts the lines, running no test, leaving processes behind, and what a sanitizer wrote.

Environment: BUILD, MODE (where the programs are), ATTEND (the program under test), JOBS,
CI (a golden test that is skipped is a failure there).
"""
import concurrent.futures
import glob
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = os.environ.get("BUILD", "build")
MODE = os.environ.get("MODE", "release")
OUT = pathlib.Path(BUILD) if MODE == "release" else pathlib.Path(BUILD) / MODE
CI = os.environ.get("CI", "") not in ("", "0", "false")
PROCESSORS = len(os.sched_getaffinity(0))
SLOWER = {"asan": 4, "tsan": 10}.get(MODE, 1)

# suite: (where its programs are, run side by side?, seconds a program may take)
SUITES = {
    "unit": ("{out}/tests/unit/test_*", True, 60),
    "kernel": ("{out}/tests/kernel/test_*", True, 300),
    "fuzz": ("{out}/tests/fuzz/fuzz_*", True, 120),
    "golden": ("tests/golden/test_*.py", False, 600),
    "http": ("tests/http/test_*.py", False, 600),
    "client": ("tests/client/test_*.py", False, 900),
    "fault": ("tests/fault/test_*.py", False, 300),
    "lint": ("tests/lint/[a-z]*.py", True, 900),
}
NOT_TESTS = {"common.py"}
SANITIZER = {
    "asan": {
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:{log}",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:{log}",
        "LSAN_OPTIONS": "suppressions={root}/tests/lsan.supp:print_suppressions=0",
    },
    "tsan": {"TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1:suppressions={root}/tests/tsan.supp:{log}"},
}
RESULT = re.compile(r"^(ok|not ok|skip)\b[ :]*(?:\d+ +- +|\d+ +(?=#))?(.*)")
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")


class Outcome:
    def __init__(self, name):
        self.name, self.passed, self.skipped, self.faults, self.log, self.seconds = name, 0, [], [], "", 0.0


def read_results(out, text):
    """The lines of one program, TAP or ours, into counts; returns the counts its last line claims, if any."""
    claimed, planned, seen = None, 0, 0
    for line in text.splitlines():
        if plan := re.match(r"^1\.\.(\d+)$", line):
            planned += int(plan[1])
            continue
        if closing := CLOSING.match(line):
            claimed = tuple(int(n or 0) for n in closing.groups())
            continue
        result = RESULT.match(line)
        if not result:
            continue
        seen += 1
        word, rest = result[1], result[2].strip()
        if word == "skip" or re.search(r"# ?SKIP", rest):
            out.skipped.append(re.sub(r"^# ?SKIP *", "", rest))
        elif word == "ok":
            out.passed += 1
        else:
            out.faults.append(rest)
    if planned > seen:
        out.faults.append(f"{planned} tests were planned, {seen} reported")
    return claimed


def group_alive(pgid):
    """Does a process of the group still run? (One that has ended but was not yet reaped does not count.)"""
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = pathlib.Path(stat).read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == pgid and fields[0] not in "ZX":
            return True
    return False


def end_group(pgid):
    """Ends what a program left running; tells whether there was anything."""
    for _ in range(20):  # a child that was just told to stop gets a moment
        if not group_alive(pgid):
            return False
        time.sleep(0.05)
    try:
        os.killpg(pgid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def time_limit(path, usual):
    if path.suffix == ".py":
        head = path.read_text(errors="replace").splitlines()[:20]
        for line in head:
            if found := re.search(r"\btimeout: (\d+)", line):
                return int(found[1]) * SLOWER
    return usual * SLOWER


def judge(out, path, status, claimed, left_running, reports):
    """What the lines do not say."""
    counted = (out.passed, len(out.faults), len(out.skipped))
    if status < 0:
        out.faults.append(f"killed by {signal.Signals(-status).name}")
    elif status and not out.faults:
        out.faults.append(f"exit status {status}, though no test failed")
    elif not status and out.faults:
        out.faults.append("exit status 0, though a test failed")
    if path.suffix == ".py":
        if claimed is None and status >= 0:
            out.faults.append("no closing line `N passed, N failed, N skipped`")
        elif claimed is not None and counted != claimed and sum(counted):
            out.faults.append(f"its closing line says {claimed}, its lines {counted} (passed, failed, skipped)")
        elif claimed is not None and not sum(counted):
            out.passed = claimed[0]
            out.faults += ["(its lines name none)"] * claimed[1]
            out.skipped += ["(its lines name none)"] * claimed[2]
    if not (out.passed or out.faults or out.skipped):
        out.faults.append("ran no test")
    if left_running:
        out.faults.append("left processes running")
    for report in reports:
        text = report.read_text(errors="replace")
        out.log += text
        # "Running thread was not suspended" of a process 1, which cannot be traced, is not a finding.
        first = re.search(r"^.*(?:ERROR|WARNING|FATAL|runtime error|Sanitizer:).*$", text, re.M)
        if first:
            out.faults.append(f"{report.name}: {first[0].strip()}")


def run_program(suite, path, usual):
    name = f"{suite}/{path.stem if suite == 'lint' else path.name}"
    out = Outcome(name)
    logs = OUT / "test-logs" / suite
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob(path.name + ".san*"):
        old.unlink()
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", MODE=MODE)
    env.setdefault("ATTEND", str((ROOT / OUT / "attend")))
    log_path = f"log_path={(ROOT / logs / path.name)}.san"
    for key, value in SANITIZER.get(MODE, {}).items():
        env[key] = value.format(log=log_path, root=ROOT)
    command = [sys.executable, str(path)] if path.suffix == ".py" else [str(ROOT / path)]
    limit, start = time_limit(path, usual), time.monotonic()
    with tempfile.TemporaryFile() as sink:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=sink,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            out.faults.append(f"still running after {limit} s")
        left_running = end_group(process.pid)
        out.seconds = time.monotonic() - start
        sink.seek(0)
        out.log = sink.read().decode(errors="replace")
    timed_out = list(out.faults)
    out.faults.clear()
    claimed = read_results(out, out.log)
    reports = sorted(logs.glob(path.name + ".san*"))
    judge(out, path, 1 if timed_out else status, claimed, left_running, reports)
    out.faults = timed_out + [f for f in out.faults if not (timed_out and f.startswith(("exit status", "no closing")))]
    if CI and suite == "golden":
        out.faults += [f"skipped in CI: {name}" for name in out.skipped]
        out.skipped = []
    (logs / (path.name + ".log")).write_text(out.log)
    return out


def report(out):
    counts = f"{out.passed} passed"
    if out.faults:
        counts += f", {len(out.faults)} FAILED"
    if out.skipped:
        counts += f", {len(out.skipped)} skipped"
    print(f"{out.name:<34} {out.seconds:7.2f} s  {counts}", flush=True)
    for fault in out.faults:
        print(f"    not ok {fault}")
    for skipped in out.skipped:
        print(f"    skip {skipped}")
    crashed = any(not re.search(r"^not ok", out.log, re.M) for _ in out.faults[:1])
    if crashed:
        for line in out.log.splitlines()[-25:]:
            print(f"    | {line}")
    elif out.faults:
        for line in out.log.splitlines():
            if line.startswith("# ") and not line.startswith("# not ok"):
                print(f"    {line}")
    sys.stdout.flush()


def programs(suite):
    pattern, _, _ = SUITES[suite]
    found = sorted(pathlib.Path(p) for p in glob.glob(pattern.format(out=OUT)))
    if suite in ("unit", "kernel", "fuzz"):  # built from a source that is still there
        found = [p for p in found if not p.suffix and (ROOT / "tests" / suite / (p.name + ".c")).exists()]
    return [p for p in found if p.name not in NOT_TESTS]


def select(words):
    """Suites and single files, as given, to (suite, path) pairs."""
    for word in words or SUITES:
        if word in SUITES:
            for path in programs(word):
                yield word, path
            continue
        path = pathlib.Path(word)
        suite = path.parent.name
        if suite not in SUITES or not path.exists():
            sys.exit(f"tests/run.py: no suite or test program is called {word}; the suites are {', '.join(SUITES)}")
        yield suite, path


def main():
    os.chdir(ROOT)
    jobs = int(os.environ.get("JOBS", PROCESSORS))
    queue = list(select(sys.argv[1:]))
    done = []
    for suite in dict.fromkeys(suite for suite, _ in queue):
        _, side_by_side, usual = SUITES[suite]
        with concurrent.futures.ThreadPoolExecutor(jobs if side_by_side else 1) as pool:
            futures = [pool.submit(run_program, suite, path, usual) for s, path in queue if s == suite]
            for future in concurrent.futures.as_completed(futures):
                done.append(future.result())
                report(done[-1])
    passed, failed = sum(o.passed for o in done), sum(len(o.faults) for o in done)
    skipped = sum(len(o.skipped) for o in done)
    label = "" if MODE == "release" else MODE + ": "
    print(f"{label}{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    if tally := os.environ.get("TALLY"):  # .ci/run adds up several modes
        with open(tally, "a") as f:
            f.write(f"{passed} {failed} {skipped}\n")
    sys.exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()
