"""Results of accelerator.py as console output, as a Markdown page of tables, and as panels of a plot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from report import bar, panel

Row = dict[str, Any]
TITLES = {
    "device": "Devices",
    "core": "Correctness",
    "w1": "Training speed (W1: CartPole-v1, separate 2x64 networks)",
    "arms": "Other options of the training program (W1)",
    "layout": "Layout of the program (W1)",
    "w3": "Training speed with memory (W3: CartPole-v1, 128 wide)",
    "rules": "Rules of the platform",
    "ant": "Training speed on brax/ant",
    "playground": "Training speed on playground/CartpoleBalance",
}
SPEEDS = ("w1", "ant", "playground")
RESULT = {True: "passed", False: "FAILED", None: "-"}


def line(stage: str, row: Row) -> str:
    """One row, for the console."""
    if "failed" in row:
        return f"FAILED: {row['failed']}"
    if stage == "device" and "devices" in row:
        memory = f", {row['memory_gb']} GiB" if row["memory_gb"] else ""
        peers = ", ".join(name for name, there in row["peers"].items() if there) or "none"
        beside = "; no accelerator: all figures are of this CPU" if row["platform"] == "cpu" else ""
        return (
            f"{row['platform']}: {row['devices']}{memory}; jax {row['jax']} ({row['driver']}); peers: {peers}{beside}"
        )
    if stage == "core" and "check" in row:
        return f"{RESULT[row['passed']]:7} {row['check']}: {_deviation(row)} ({row['seconds']:.1f} s)"
    if row.get("systems"):
        note = f" ({row['note']})" if row["note"] else ""
        return f"{row['num_envs']:>9,} environments: {', '.join(_speeds(row))}{note}"
    if "program" in row:
        return f"{row['num_envs']:>9,} environments: {_layout(row)}"
    if "shares" in row:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in row["shares"].items())
        return f"{row['num_envs']:>9,} environments: {row['steps_per_second']:,.0f} steps/s: {shares}"
    if "arm" in row:
        compiled = f", compiled in {row['compile_seconds']:.0f} s" if row.get("compile_seconds") else ""
        own = f"{row['steps_per_second']:,.0f} steps/s{compiled}"
        return f"{row['num_envs']:>9,} environments, {row['arm']}: {own}; {_times(row['ratio'])}"
    if "ratio" in row:
        return f"{row['rule']}: {_verdict(row)}"
    where = f"{row['rule']}: " if "rule" in row else f"{row['num_envs']:,} environments: " if "num_envs" in row else ""
    return where + row["note"]


def _times(ratio: Row) -> str:
    return f"{ratio['median']:.2f} times as fast ({ratio['min']:.2f} .. {ratio['max']:.2f})"


def _deviation(row: Row) -> str:
    limit = f" (limit {row['allowed']:.2g})" if row["allowed"] is not None else ""
    value = f"{row['value']:.2g}{limit} " if row["value"] is not None else ""
    return f"{value}{row['note']}".strip()


def _speeds(row: Row) -> Iterator[str]:
    for system, own in row["systems"].items():
        ratio = f" (ppax is {own['ratio']['median']:.2f} times as fast)" if "ratio" in own else ""
        yield f"{system} {own['steps_per_second']:,.0f} steps/s{ratio}"


def _layout(row: Row) -> str:
    chosen = ", ".join(f"{name} = {value}" for name, value in row["program"].items() if value is not None)
    faster = row["speedup"] > 1.0
    return f"{chosen}: {row['speedup']:.2f} times as fast as the default" if faster else "no other layout is faster"


def _verdict(row: Row) -> str:
    ratio, now = row["ratio"], row["now"]
    if ratio["min"] > 1.0:
        return f"{not now} is {ratio['median']:.2f} times as fast as {now}: change the entry in devices/platforms.py"
    return f"{now} stays; {not now} has {ratio['median']:.2f} of its speed ({ratio['min']:.2f} .. {ratio['max']:.2f})"


# ---------------------------------------------------------------- page


def page(content: Row) -> str:
    """All results as Markdown."""
    machine, results = content["hardware"], content["results"]
    name = machine.get("devices", f"{machine['cpu']}, {machine['cores']} cores")
    lines = [f"# {content['task']}", "", f"{name}; jax {content['versions']['jax']}; {content['date'][:10]}.", ""]
    for stage, rows in results.items():
        lines += [f"## {TITLES[stage]}", ""]
        tabled = [row for row in rows if "check" in row or row.get("systems")]
        if tabled:
            lines += [*_table(stage, tabled), ""]
        lines += [f"* {line(stage, row)}" for row in rows if row not in tabled]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _table(stage: str, rows: list[Row]) -> Iterator[str]:
    if stage == "core":
        yield "| check | result | deviation | seconds |"
        yield "|---|---|---|---|"
        for row in rows:
            yield f"| {row['check']} | {RESULT[row['passed']]} | {_cell(_deviation(row))} | {row['seconds']:.1f} |"
        return
    yield "| environments | system | steps/s | compilation, s | device memory, MB | ppax over it |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        for system, own in row["systems"].items():
            ratio = own.get("ratio")
            over = f"{ratio['median']:.2f} ({ratio['min']:.2f} .. {ratio['max']:.2f})" if ratio else ""
            seconds = own.get("compile_seconds") or own.get("start_seconds")
            compilation = f"{seconds:.1f}" if seconds else ""
            memory = f"{own['device_memory_mb']:,.0f}" if "device_memory_mb" in own else ""
            cells = (f"{row['num_envs']:,}", system, f"{own['steps_per_second']:,.0f}", compilation, memory, over)
            yield f"| {' | '.join(cells)} |"
        if row["note"]:
            yield f"| {row['num_envs']:,} | {_cell(row['note'])} | | | | |"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


# ---------------------------------------------------------------- picture


def panels(results: dict[str, list[Row]]) -> list[Row]:
    """Bars of training speed, of ratios to peers, and of the other entry of each rule."""
    drawn = []
    for stage in SPEEDS:
        rows = sorted((row for row in results.get(stage, []) if row.get("systems")), key=lambda row: row["num_envs"])
        speeds = [
            bar(_label(row, system), _exactly(own["steps_per_second"] / 1e6), None)
            for row in rows
            for system, own in row["systems"].items()
        ]
        over = [
            bar(_label(row, system), own["ratio"], 1.0)
            for row in rows
            for system, own in row["systems"].items()
            if "ratio" in own and not system.startswith("ppax")
        ]
        drawn += [panel(f"{TITLES[stage]}:\nmillion steps/s", speeds, "higher") | {"parity": False}] if speeds else []
        drawn += [panel(f"{TITLES[stage]}:\nppax over the peer", over, "higher")] if over else []
    found = [row for row in results.get("rules", []) if "ratio" in row]
    rules = [bar(f"{row['rule']}\n= {not row['now']}".replace("_", "\n"), row["ratio"], None) for row in found]
    drawn += [panel("speed with the other entry of a rule\nover that of the table", rules, "lower")] if rules else []
    return drawn


def _label(row: Row, system: str) -> str:
    """Label of a bar, in lines that fit its width."""
    return f"{row['num_envs']:,}\n{system}".replace(", ", "\n").replace("-playground", "").replace("-ant", "")


def _exactly(value: float) -> dict[str, float]:
    return dict.fromkeys(("median", "min", "max"), value)
