"""The rows of a run as tables for the terminal.

python -m runner show
"""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table as Grid
from rich.text import Text

from runner.analysis.audit.grades import Finding, audit, grade
from runner.cli.ceilings import print_ceilings
from runner.cli.lists import headed, print_left_out, runs_grid
from runner.cli.progress import STATUS_STYLES
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.formats import format_bytes, format_quantity
from runner.schema import AttentionRow, StepRow, SweepRow
from runner.schema.titles import title
from runner.store import history
from runner.store.queries import kernels, numerics
from runner.store.queries.latest import Rows
from runner.sweep import frontier


def print_run(console: Terminal, run: str, *, db: Path) -> None:
    """The rows of one run: by the beginning of its id or by its label; the latest if neither is given."""
    known = history.runs(db)
    if not known:
        raise UsageError(f"There are no runs in {db}.", do="Measure some: python -m runner sweep")
    found = next((item for item in known if run == item.label or str(item.run_id).startswith(run)), None)
    if found is None:
        labels = ", ".join(item.label or str(item.run_id) for item in known[:5])
        raise UsageError(f"No run is called {run!r}.", expected=f"an id, its beginning or a label, such as {labels}")
    measured = sorted(history.cells_of(db, found.run_id), key=lambda item: _order(item.row))
    findings = [audit(item.row, step_ms=item.step_ms) for item in measured]
    console.print(runs_grid([found]), "")
    print_left_out(console, db)
    if measured:
        console.print(_cells(measured, findings), "")
    attention = sorted(history.attention_of(db, found.run_id), key=lambda pair: _attention_order(pair[0]))
    if attention:
        console.print(_attention(attention), "")
    precise = _print_numerics(console, db, Rows(run=found.run_id))
    _print_profiles(console, db, Rows(run=found.run_id))
    print_ceilings(console, db, Rows(run=found.run_id))
    for answered in history.frontier_of(db, found.run_id):
        line = f"{frontier.title(answered)}: {frontier.answer(answered)}"
        console.say(line)
    said = [finding for of_cell in findings for finding in of_cell]
    for code in sorted({finding.code for finding in said}):
        sentences = [finding.sentence for finding in said if finding.code == code]
        console.say(f"{code}, {len(sentences)} cells. For one: {sentences[0]}", style="dim")
    rows: list[SweepRow] = [*(item.row for item in measured), *(row for row, _ in attention)]
    rows += precise
    for row in rows:
        if row.status != "ok":
            doing = f" during {row.failed_phase}" if row.failed_phase else ""
            reason = f"{title(row)}: {row.status}{doing}. {row.message or ''}"
            console.say(reason, style="dim")


def _status(status: str) -> Text:
    return Text(status, STATUS_STYLES.get(status, ""))


def _order(row: StepRow) -> tuple[object, ...]:
    return row.layers * row.d_model**2, row.context, row.mode, row.backend, row.precision, row.warmup_steps, row.cell_id


def _cells(measured: list[history.Measured], findings: list[list[Finding]]) -> Grid:
    """One line a cell: the median of each phase, how sure the step's is, and the row's grade with its reasons."""
    phases = ("forward", "loss", "backward", "optimizer", "step")
    grid = headed("cell", "status", *phases, "±", "n", "tokens/s", "grade", "findings")
    for item, found in zip(measured, findings, strict=True):
        row, medians = item.row, item.medians_ms
        grid.add_row(
            title(row),
            _status(row.status),
            *(f"{medians[phase]:,.2f}" if phase in medians else "" for phase in phases),
            "" if row.interval_share is None else f"{row.interval_share * 50:.1f}%",
            "" if row.steps is None else str(row.steps),
            "" if row.tokens_per_s is None else f"{row.tokens_per_s:,.0f}",
            grade(found) if row.status == "ok" else "",
            ", ".join(finding.code for finding in found),
        )
    grid.caption = "Medians in ms; ± is half the 95% interval of the median step, n the measured steps."
    return grid


def _attention_order(row: AttentionRow) -> tuple[object, ...]:
    return row.d_head, row.seq_len, row.precision, row.implementation, row.backend, row.causal, row.cell_id


def _attention(measured: list[tuple[AttentionRow, Mapping[str, float]]]) -> Grid:
    """One line an attention cell: times, rate, memory as measured and as predicted, errors against float64."""
    grid = headed("cell", "status", "forward", "backward", "n", "rate", "before backward", "peak", "predicted", "error")
    for row, medians in measured:
        bytes_shown = (row.before_backward_bytes, row.peak_allocated_bytes, row.predicted_peak_bytes)
        worst = None if row.output_error is None else max(row.output_error, row.gradient_error or 0)
        grid.add_row(
            title(row),
            _status(row.status),
            *(f"{medians[phase]:,.3f}" if phase in medians else "" for phase in ("forward", "backward")),
            "" if row.steps is None else str(row.steps),
            "" if row.forward_flops_per_s is None else format_quantity(row.forward_flops_per_s, "FLOP/s"),
            *("" if number is None else format_bytes(number) for number in bytes_shown),
            "" if worst is None else f"{worst:.0e}",
        )
    grid.caption = "Medians in ms; rate and error are of the forward pass and of the worst of output and gradients."
    return grid


def _print_profiles(console: Terminal, db: Path, of: Rows) -> None:
    """One line a profiled cell: what profiling cost, and how much of the step the device worked."""
    grid = headed("cell", "status", "step", "overhead", "kernels", "kernel time", "busy", "attributed")
    for trace in kernels.traces(db, of):
        if trace.cell is None:
            continue
        times = (f"{ms:,.2f}" if ms is not None else "" for ms in (trace.unprofiled_step_ms, trace.kernel_ms))
        asked = (trace.overhead_share, trace.busy_share, trace.attributed_share)
        overhead, busy, known = (f"{share:.0%}" if share is not None else "" for share in asked)
        step, kernel_time = times
        status = _status(trace.status)
        grid.add_row(title(trace.cell), status, step, overhead, str(trace.kernel_calls or ""), kernel_time, busy, known)
    if grid.row_count:
        console.print(grid, "")


def _print_numerics(console: Terminal, db: Path, of: Rows) -> list[SweepRow]:
    """What a run says of precision, as tables; returns the rows."""
    sums, precise = numerics.accumulations(db, of), numerics.precisions(db, of)
    if sums:
        console.print(_sums(sums), "")
    if precise:
        console.print(_errors(precise), "")
    return [*(item.row for item in sums), *(item.row for item in precise)]


def _sums(found: list[numerics.Accumulated]) -> Grid:
    """One line a sum, with what makes it what it is."""
    grid = headed("cell", "status", "sum", "error", "addend as held", "spacing there", "last increment", "slips at")
    for item in found:
        row = item.row
        shown = (row.total, row.error, row.rounded_value, row.spacing, row.last_increment, row.slips_at)
        status = _status(row.status)
        grid.add_row(title(row), status, *("" if number is None else f"{number:.9g}" for number in shown))
    return grid


def _errors(found: list[numerics.Precise]) -> Grid:
    """One line a precision: its relative errors against the reference."""
    grid = headed("cell", "status", "reference", "loss", "loss error", "logits", "gradients", "worst of one")
    for item in found:
        row = item.row
        shown = (row.loss_error, row.logits_error, row.gradient_error, row.worst_gradient_error)
        grid.add_row(
            title(row),
            _status(row.status),
            row.reference or "",
            "" if row.loss is None else f"{row.loss:.6f}",
            *("" if error is None else f"{error:.1e}" for error in shown),
        )
    grid.caption = "Errors are relative: ‖x − reference‖ / ‖reference‖."
    return grid
