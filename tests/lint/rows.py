#!/usr/bin/env python3
"""Every row of a table has its file, and every file of its folder a row."""
import re

from common import ROOT, finish, read, report, without_comments

# table: (macro, folder, which argument names the file)
TABLES = {
    "core/kernel/quant.def": ("QUANT", "core/kernel/quant", 0),
    "core/kernel/panel.def": ("PANEL", "core/kernel/panel", 0),
    "core/model/arch.def": ("ARCH", "core/model/arch", 0),
    "core/sample/sampler.def": ("SAMPLER", "core/sample/sampler", 0),
    "core/text/tokenizer.def": ("TOKENIZER", "core/text/tokenizer", 0),
    "server/cmd/command.def": ("COMMAND", "server/cmd", 0),
}


def rows(table, macro):
    for row in re.findall(rf"^\s*{macro}\(([^)]*)\)", without_comments(read(table)), re.M):
        yield [cell.strip() for cell in row.split(",")]


def faults(table, macro, folder, column):
    named = [row[column].lower() for row in rows(table, macro)]
    if not named:
        yield f"{table}: has no row {macro}(...)"
    for name in sorted(set(named)):
        if named.count(name) > 1:
            yield f"{table}: {name} has {named.count(name)} rows"
        if not (ROOT / folder / f"{name}.c").exists():
            yield f"{table}: row {name} has no file {folder}/{name}.c"
    for path in sorted((ROOT / folder).glob("*.c")):
        if path.stem not in named:
            yield f"{folder}/{path.name}: has no row in {table}"


for table, (macro, folder, column) in TABLES.items():
    if (ROOT / table).exists():
        report(table, faults(table, macro, folder, column))
    elif list((ROOT / folder).glob("*.c")):
        report(table, [f"{folder} has files, and the table does not exist"])
finish()
