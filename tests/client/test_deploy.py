#!/usr/bin/env python3
"""The files in config/ that others read: systemd, HAProxy and Kubernetes accept them, and they name what exists."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXE = os.environ.get("ATTEND", str(ROOT / "build/attend"))
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Skip(Exception):
    pass


def need(program):
    if not shutil.which(program):
        raise Skip(f"{program} is not installed")


def run(*args):
    r = subprocess.run(args, capture_output=True, text=True, timeout=60)
    if r.returncode:
        raise AssertionError(f"{args[0]}: status {r.returncode}: {(r.stdout + r.stderr).strip()[-300:]}")
    return r.stdout + r.stderr


def settings():
    """Names of all settings."""
    rows = (ROOT / "config/option.def").read_text()
    return set(re.findall(r"^[A-Z]+\((\w+),", rows, re.M))


def test_haproxy_accepts_its_file():
    need("haproxy")
    run("haproxy", "-c", "-f", str(ROOT / "config/haproxy.cfg"))


def test_systemd_accepts_the_unit():
    need("systemd-analyze")
    text = (ROOT / "config/attend.service").read_text()
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d, "attend.service")
        path.write_text(text.replace("/usr/local/bin/attend", EXE))
        said = run("systemd-analyze", "verify", str(path))
        if said.strip():
            raise AssertionError(said.strip()[-300:])
        try:
            said = run("systemd-analyze", "security", "--offline=true", str(path))
        except AssertionError:  # before systemd 250
            raise Skip("systemd-analyze has no offline mode") from None
    level = re.search(r"exposure level for attend.service: ([\d.]+)", said)
    if not level or float(level[1]) > 2:
        raise AssertionError(f"exposure level {level and level[1]}, at most 2")


def test_kubernetes_file_is_consistent():
    try:
        import yaml
    except ImportError:
        raise Skip("python3-yaml is not installed") from None
    docs = list(yaml.safe_load_all((ROOT / "config/kubernetes.yaml").read_text()))
    by_kind = {d["kind"]: d for d in docs}
    pod = by_kind["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    labels = pod["metadata"]["labels"]
    for kind, selector in (("Deployment", by_kind["Deployment"]["spec"]["selector"]["matchLabels"]),
                           ("Service", by_kind["Service"]["spec"]["selector"]),
                           ("PodDisruptionBudget", by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])):
        if not selector.items() <= labels.items():
            raise AssertionError(f"{kind} selects {selector}, the pod has {labels}")
    if pod["spec"]["enableServiceLinks"] is not False:
        raise AssertionError("a service called attend would set ATTEND_PORT")
    ports = {p["name"] for p in container["ports"]}
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        get = container[probe]["httpGet"]
        if get["path"] != path or get["port"] not in ports:
            raise AssertionError(f"{probe} asks {get}")
    for variable in container["env"]:
        if variable["name"].removeprefix("ATTEND_").lower() not in settings():
            raise AssertionError(f"{variable['name']} is no setting")
    volumes = {v["name"] for v in pod["spec"]["volumes"]}
    if {m["name"] for m in container["volumeMounts"]} != volumes:
        raise AssertionError(f"mounts {container['volumeMounts']}, volumes {volumes}")


def main():
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        name = name[5:]
        try:
            test()
            print(f"ok {name}")
            counts["passed"] += 1
        except Skip as why:
            print(f"skip {name} - {why}")
            counts["skipped"] += 1
        except Exception as why:  # any fault of a test is its failure, and the others go on
            print(f"not ok {name} - {type(why).__name__}: {why}".replace("\n", " "))
            counts["failed"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(1 if counts["failed"] else 0)


main()
