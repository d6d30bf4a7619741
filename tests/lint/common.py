"""What the lints share: the sources, their includes, the result lines, and a memory of what was already clean."""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys

# The lints look at the tree they lie in; the self-test points them at a copy with a planted fault.
ROOT = pathlib.Path(os.environ.get("LINT_ROOT", pathlib.Path(__file__).resolve().parents[2]))
STAMPS = pathlib.Path(os.environ.get("LINT_STAMPS", ROOT / "build" / "lint"))
ROOMS = ("core", "server", "config")
PACKAGES = ("libmicrohttpd", "libuv", "jansson", "libpcre2-8", "libutf8proc")

_results = {"passed": 0, "failed": 0, "skipped": 0}


def sources(*suffixes, folders=ROOMS):
    """Paths relative to ROOT, sorted."""
    found = (p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)
    return sorted(p.relative_to(ROOT) for p in found)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(text):
    """The same lines and columns, comments and the insides of strings blanked."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m[0]) if m[0][0] == "/" else m[0][0] + re.sub(r"[^\n]", " ", m[0][1:-1]) + m[0][0]
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def report(name, faults):
    """One `ok` for a rule that holds, one `not ok` for each place where it does not."""
    faults = list(faults)
    if not faults:
        print(f"ok {name}")
        _results["passed"] += 1
    for fault in faults:
        print(f"not ok {name} - {fault}")
        _results["failed"] += 1


def skip(name, why):
    print(f"skip {name} - {why}")
    _results["skipped"] += 1


def finish():
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**_results))
    sys.exit(1 if _results["failed"] else 0)


def compiler_flags():
    packages = subprocess.run(["pkg-config", "--cflags", *PACKAGES], capture_output=True, text=True, check=True)
    return ["-std=c11", "-D_GNU_SOURCE", "-I.", "-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes",
            "-Wmissing-prototypes", "-Wundef", "-Wvla", *packages.stdout.split()]


def _included(path, seen):
    """The file and every file of ours that it includes, directly or not."""
    if path in seen or not (ROOT / path).exists():
        return seen
    seen.add(path)
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(path), re.M):
        for candidate in (pathlib.Path(name), path.parent / name):
            if (ROOT / candidate).exists():
                _included(candidate, seen)
                break
    return seen


def run_per_file(kind, files, command, extra=()):
    """Runs command(file) on each; yields what it said for those that fail. A file that was clean is not looked at
    again until it, a header of it, the command or one of the `extra` files changes."""
    def one(path):
        digest = hashlib.sha256(repr(command(path)).encode())
        for dependency in [*sorted(_included(path, set())), *extra]:
            digest.update(b"\0" + str(dependency).encode() + (ROOT / dependency).read_bytes())
        stamp = STAMPS / kind / f"{str(path).replace('/', '@')}"
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return None
        done = subprocess.run(command(path), cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return (done.stdout + done.stderr).strip() or f"{path}: exit status {done.returncode}"
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest.hexdigest())
        return None
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for said in pool.map(one, files):
            if said:
                yield said


def complaints(said):
    """The lines of a compiler that name a place and a fault."""
    for text in said:
        lines = [line for line in text.splitlines() if re.search(r": (?:fatal )?(?:error|warning): ", line)]
        yield from dict.fromkeys(lines or text.splitlines()[:3])
