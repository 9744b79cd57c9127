"""Writes pages of the dashboard as HTML files that open offline: `python -m pages.export --help`.

    python -m pages.export training-step kernels --db results.duckdb --out report --mode train --context 512
    python -m pages.export --all --out report
    python -m pages.export 'http://localhost:8501/attention?mask=causal&dtype=bf16#attention-time'

One file a page, with everything in it: charts, tables, answers, commands. Limits: about 5 MB a page, most of it Plotly.
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pages.offline.document import Origin, document
from pages.offline.visit import Visits
from runner.errors import StepscopeError, UsageError
from runner.store.queries.overview import load_contents
from runner.store.reference import choose_file, find_file
from runner.visible import visible

Parameters = dict[str, list[str]]
_OPTIONS = {"db": "FILE", "out": "DIR", "address": "URL"}
_HELP = """\
Writes pages as HTML files that open without a server and ask for nothing from outside: to mail, to archive, to attach
to a pull request. Each file holds the page's answer, its charts (they zoom and hover), its tables, what was left out,
the commands that measure the rows again, and the edition of the data.

  python -m pages.export training-step                   one page, as it opens, into ./export
  python -m pages.export --all --out report              every page; the files link to one another
  python -m pages.export kernels --mode train --cell ID  filters and choices: the parameters of the page's URL
  python -m pages.export training-step --context 128 --context 512
  python -m pages.export 'LINK'                          what “Share” gives: the page with every filter of the link
"""


def main(words: Sequence[str]) -> int:
    """Exports the pages that `words` name, and returns the exit code. An expected failure is one line on stderr."""
    try:
        _export(words)
    except StepscopeError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


def _export(words: Sequence[str]) -> None:
    rest, parameters = _parse_filters(words)
    given = _make_parser().parse_args(rest)
    folder = _find_folder(given.out)
    path = find_file(Path(given.db)) if given.db else choose_file()
    edition = load_contents(path).edition
    visits = Visits(path, origin=given.address)
    targets = _find_targets(given, parameters, list(visits.places))
    origin = Origin(file=path.name, edition=edition, pages={name: visits.places[name] for name in targets},
                    written=datetime.now(UTC))  # fmt: skip
    # All before the first is written: a filter that one page does not know leaves no half of an export behind.
    written = {address: document(visits.visit(address, parameters), origin) for address, parameters in targets.items()}
    _write(folder, written)


def _find_folder(name: str) -> Path:
    """Returns the folder for the files. Raises UsageError where something else is in its place."""
    folder = Path(name)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--out {name}: {there} is no folder.", expected="a folder, or a name that is free")
    return folder


def _write(folder: Path, written: Mapping[str, str]) -> None:
    """Writes one file a page. Raises UsageError where the folder takes none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for address, html in written.items():
            file = folder / f"{address}.html"
            file.write_text(html, encoding="utf-8")
            print(f"{visible(str(file))}  {file.stat().st_size / 1e6:.1f} MB", flush=True)
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be written: {error.strerror}.", do="Name another folder with --out."
        ) from None


def _parse_filters(words: Sequence[str]) -> tuple[list[str], Parameters]:
    """Returns the words for argparse, and the parameters of the URL: `--context 128 --context 512` or
    `--context=128`."""
    rest: list[str] = []
    parameters: Parameters = {}
    left = iter(words)
    for word in left:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name in ("all", "help"):
            rest.append(word)
        elif name in _OPTIONS:
            rest += [word] if equals else [word, next(left, "")]
        else:
            found = value if equals else next(left, None)
            if found is None:
                raise UsageError(f"--{name} has no value.", expected=f"--{name} VALUE", do="See --help.")
            parameters.setdefault(name, []).append(found)
    return rest, parameters


def _make_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m pages.export",
        usage="%(prog)s [PAGE|LINK ...] [--all] [options] [--FILTER VALUE ...]",
        description=_HELP,
        epilog="--FILTER is any parameter of the page's URL; one that does not exist is answered with those that do.",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="address of a page, such as training-step, or a link")
    parser.add_argument("--all", action="store_true", help="every page")
    parser.add_argument(
        "--db", metavar="FILE", help="the results file (default: STEPSCOPE_DB, else data/results.duckdb)"
    )
    parser.add_argument("--out", metavar="DIR", default="export", help="folder for the files (default: export)")
    parser.add_argument("--address", metavar="URL", default="", help="where your dashboard is served, for the links")
    return parser


def _find_targets(given: Namespace, parameters: Parameters, known: list[str]) -> Mapping[str, Parameters]:
    """Returns the pages to write, each with its parameters."""
    found: dict[str, Parameters] = dict.fromkeys(known, parameters) if given.all else {}
    for word in given.pages:
        parts = urlsplit(word)
        is_link = bool(parts.scheme or parts.query)
        address = (parts.path.strip("/").rsplit("/", 1)[-1] or known[0]) if is_link else word
        if address not in known:
            raise UsageError(f"There is no page “{address}”.", expected=f"one of {', '.join(known)}")
        if address in found:
            raise UsageError(f"{address} is asked for twice, and would be written to one file.",
                             do="Export it a second time into another --out.")  # fmt: skip
        found[address] = {**parse_qs(parts.query), **parameters}
    if not found:
        raise UsageError("No page was named.", expected=f"some of {', '.join(known)}, or --all", do="See --help.")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
