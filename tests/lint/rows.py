#!/usr/bin/env python3
"""Every row of a table has its file, and every file of its folder a row."""
import re

from common import ROOT, finish, read, report, without_comments

# table: (macro, folder, may several rows share a file?); the first argument names the file
TABLES = {
    "core/kernel/quant.def": ("QUANT", "core/kernel/quant", False),
    "core/kernel/panel.def": ("PANEL", "core/kernel/panel", False),
    "core/model/arch.def": ("ARCH", "core/model/arch", False),
    "core/sample/sampler.def": ("SAMPLER", "core/sample/sampler", False),
    "core/text/tokenizer.def": ("TOKENIZER", "core/text/tokenizer", False),
    "server/cmd/command.def": ("COMMAND", "server/cmd", False),
    "server/routes.def": ("ROUTE", "server/api", True),
}


def rows(table, macro):
    for row in re.findall(rf"^\s*{macro}\(([^)]*)\)", without_comments(read(table)), re.M):
        yield [cell.strip() for cell in row.split(",")]


def faults(table, macro, folder, shared):
    named = [row[0].lower() for row in rows(table, macro)]
    if not named:
        yield f"{table}: has no row {macro}(...)"
    for name in sorted(set(named)):
        if named.count(name) > 1 and not shared:
            yield f"{table}: {name} has {named.count(name)} rows"
        if not (ROOT / folder / f"{name}.c").exists():
            yield f"{table}: row {name} has no file {folder}/{name}.c"
    for path in sorted((ROOT / folder).glob("*.c")):
        if path.stem not in named:
            yield f"{folder}/{path.name}: has no row in {table}"


for table, (macro, folder, shared) in TABLES.items():
    if (ROOT / table).exists():
        report(table, faults(table, macro, folder, shared))
    elif list((ROOT / folder).glob("*.c")):
        report(table, [f"{folder} has files, and the table does not exist"])
finish()
