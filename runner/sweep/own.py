"""The own models of a sweep: each is built once before anything is planned.

own, left_out = describe_models(request, engine, device="cpu")
"""

from collections.abc import Mapping

from runner.engines.engine import Engine
from runner.errors import BadModel
from runner.job import OwnModelJob
from runner.plan.planning import Request
from runner.schema import MemoryCell, Model, NumericsCell, ProfileCell, StepCell
from runner.schema.own import OwnModel

#: Where the user named no context: those at which an own model's operations are counted. And the most counts of one.
CONTEXTS, MAX_POINTS = (64, 128, 512), 8


def describe_models(
    request: Request, engine: Engine, *, device: str
) -> tuple[Mapping[str, OwnModel], Mapping[str, str]]:
    """Builds every own model of a request once. Returns them by key, and by name why others cannot be built.

    Raises BadModel where none can, and where a cell that was given is of another version of its source."""
    specs: tuple[str, ...] = request.axes.get("model", ())
    given = [cell for cell in request.cells if isinstance(cell, Model) and cell.model_key is not None]
    own, failed = dict[str, OwnModel](), dict[str, BadModel]()
    for spec in dict.fromkeys((*specs, *(cell.model or "" for cell in given))):
        try:
            described = engine.describe_model(OwnModelJob(spec=spec, device=device, points=list_points(request, spec)))
        except BadModel as error:
            failed[spec] = error
        else:
            own[described.key] = described
    if failed and (not own or given):
        raise next(iter(failed.values()))
    for cell in given:
        if cell.model_key not in own:
            raise BadModel(
                f"{cell.model} is another version than that of the row, whose key is {cell.model_key}.",
                do="Bring back that version of the source, or measure the new one with sweep --model.",
            )
    return own, {spec: str(error) for spec, error in failed.items()}


def list_points(request: Request, spec: str) -> tuple[tuple[int, int], ...]:
    """Returns the batches and contexts at which an own model may be measured, at most MAX_POINTS."""
    kinds = StepCell | MemoryCell | ProfileCell | NumericsCell
    given = {(cell.batch, cell.context) for cell in request.cells if isinstance(cell, kinds) and cell.model == spec}
    asked = {
        (batch, context)
        for batch in request.axes.get("batch", (StepCell.batch,))
        for context in request.axes.get("contexts", CONTEXTS)
    }
    return tuple(sorted(given or asked)[:MAX_POINTS])
