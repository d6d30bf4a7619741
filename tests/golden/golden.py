"""What the golden tests share: the program under test, its logits, distances, and one line per case."""
import array
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/golden"
ATTEND = os.environ.get("ATTEND", str(ROOT / "build/attend"))
SANITIZER = os.environ.get("MODE", "release") in ("asan", "tsan")  # many times slower: fewer cases
CONFORMANCE = pathlib.Path(os.environ.get("ATTEND_CONFORMANCE", ROOT.parent / "shared/conformance"))
counts = {"ok": 0, "not ok": 0, "skip": 0}


def say(verdict, name, why=""):
    counts[verdict] += 1
    print(f"{verdict} {name}{' - ' + why if why else ''}", flush=True)


def absent(names, why):
    """Cases of material that the repository does not carry: skipped by name. In CI, where a skipped golden
    is a failure, that material is never there, and only a remark is made."""
    for name in names:
        if os.environ.get("CI", "") in ("", "0", "false"):
            say("skip", name, why)
        else:
            print(f"# not in the repository: {name}")


def case(name, check):
    """check() returns '' or what is wrong, or raises."""
    try:
        why = check()
    except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as e:
        why = str(e)[-300:] or type(e).__name__
    say("not ok" if why else "ok", name, why)


def finish():
    print(f"{counts['ok']} passed, {counts['not ok']} failed, {counts['skip']} skipped")
    sys.exit(1 if counts["not ok"] else 0)


def attend(*words, stdin=None, env=None):
    run = subprocess.run([ATTEND, *map(str, words)], input=stdin, capture_output=True, timeout=900,
                         env={**os.environ, **(env or {})})
    if run.returncode:
        said = run.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"exit {run.returncode}: {said[-1] if said else 'silent'}")
    return run.stdout


def floats(path):
    a = array.array("f", pathlib.Path(path).read_bytes())
    if sys.byteorder == "big":
        a.byteswap()
    return a


def logits(model, ids, *flags):
    """[len(ids)] rows of logits, by one process."""
    with tempfile.NamedTemporaryFile(suffix=".f32") as out:
        attend("logits", model, "--tokens", ",".join(map(str, ids)), "--out", out.name, *flags)
        flat = floats(out.name)
    if len(flat) % len(ids):
        raise ValueError(f"{len(flat)} logits for {len(ids)} tokens")
    return rows(flat, len(flat) // len(ids))


def rows(flat, n):
    return [flat[i:i + n] for i in range(0, len(flat), n)]


def best(row):
    """The most probable id; of equal ones the lowest."""
    return max(range(len(row)), key=row.__getitem__)


def log_sum(row):
    top = max(row)
    return top + math.log(math.fsum(math.exp(x - top) for x in row))


def far(want, got, limit):
    """'' or how far got is from want: the largest difference of a logit."""
    if len(want) != len(got) or any(len(a) != len(b) for a, b in zip(want, got)):
        return f"{len(got)} rows instead of {len(want)}, or rows of another width"
    worst = max(abs(x - y) if math.isfinite(y) else math.inf for a, b in zip(want, got) for x, y in zip(a, b))
    return "" if worst <= limit else f"logits differ by {worst:.3g}, allowed is {limit:g}"


def diverges(want, got, limit):
    """'' or the mean Kullback-Leibler divergence of got from want."""
    if len(want) != len(got):
        return f"{len(got)} rows instead of {len(want)}"
    total = 0.0
    for a, b in zip(want, got):
        za, zb = log_sum(a), log_sum(b)
        total += math.fsum(math.exp(x - za) * ((x - za) - (y - zb)) for x, y in zip(a, b))
    mean = total / len(want)
    return "" if mean < limit else f"KL {mean:.3g}, allowed is below {limit:g}"


def continues(want, got):
    """'' or where the best ids of the rows leave the continuation."""
    for i, (row, id) in enumerate(zip(got, want, strict=True)):
        if best(row) != id:
            return f"token {i} of the continuation is {best(row)} instead of {id}"
    return ""


def greedy_differs(model, prompt, want, *flags):
    """'' or where the greedy continuation leaves want. One pass over prompt and continuation tells: each
    row's best id must be the next one."""
    return continues(want, logits(model, prompt + want[:-1], *flags)[len(prompt) - 1:])
