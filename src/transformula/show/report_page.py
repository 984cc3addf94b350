"""The report: one self-contained page about a model, with its formula, claim, architecture and error.

The page needs no network and runs one small script, which its policy names by hash. Figures are sampled and say so;
the numbers of the claim are copied from the certificate, digit by digit.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

from transformula import model_folder
from transformula.coq.coq_files import theorem_archive
from transformula.errors import InputError, ModelFileError, TransformulaError
from transformula.files import as_path, write_file
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.check import Verification
from transformula.kernel.folder.description import EVIDENCE_FILE, MODEL_FILE, WEIGHTS_FILE
from transformula.kernel.syntax.boxes import Formula
from transformula.learn.columns import read_notes
from transformula.model import Model
from transformula.optional import require
from transformula.proven import stated, verify_folder
from transformula.show import page_parts as html
from transformula.show.card import box_markup, formula_lines
from transformula.show.drawings import MAX_OUTPUTS, Followed, all_drawings, follow_heads
from transformula.show.figure_style import PRINT, picture
from transformula.show.fit_section import fit_section
from transformula.show.report_sections import (
    attention_section,
    error_section,
    inside_section,
    slider_data,
    tables_section,
)

#: Formats of pictures.
FORMATS = ("png", "svg")
#: Largest number of intervals of the box that are shown.
MAX_INTERVALS = 24
#: Target of a model → the places where its claim holds, and the noun of the target.
_WORDS: dict[type, tuple[str, str]] = {
    Formula: ("every point of the box", "formula"),
    Samples: ("every sample", "target"),
    Prompts: ("every prompt of the box", "exact answer"),
}
#: Explanation of a claim about a mean.
_SEAMS = (
    "A continuous function cannot jump: between its cells the model has seams, a part “seams” of the box, where its "
    "error may be as large as the values. At every point outside them |computed − formula| is at most “outside seams”, "
    "and at every point of the box |computed| is at most “largest”."
)


@dataclass(frozen=True)
class Written:
    """Files of a report; ``verification`` is None if the checker was not run."""

    page: Path
    plots: tuple[Path, ...]
    verification: Verification | None


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    plots: str | Path | None = None,
    form: str = "png",
    verify: bool = True,
) -> Written:
    """Write a model folder's page, and static plots if a folder for them is given.

    Parameters
    ----------
    folder : path
        As written by `Model.save`.
    out : path, optional
        The page, ``-`` for standard output; default FOLDER/report.html.
    plots : path, optional
        A folder for one picture per figure.
    form : {"png", "svg"}
        The pictures' format.
    verify : bool
        Whether to run the checker and show its verdict on the page.

    Examples
    --------
    >>> import tempfile, transformula as tf
    >>> with tempfile.TemporaryDirectory() as where:
    ...     written = write_report(tf.compile("x*y", on="x=0..1, y=0..1").save(where + "/product"))
    ...     written.page.name, written.verification.verified
    ('report.html', True)
    """
    require("a report", "matplotlib")
    if form not in FORMATS:
        raise InputError(f"plots can be written as {' or '.join(FORMATS)}, not {form}")
    folder = as_path(folder)
    if not folder.is_dir():
        raise ModelFileError(f"there is no model folder {folder}")
    place = folder / model_folder.REPORT_FILE if out is None else as_path(out)
    verification = verify_folder(folder) if verify else None
    try:
        model = Model.load(folder)
    except ModelFileError:
        if verification is None or verification.verified:
            raise
        write_file(place, refused_page(folder.name, verification), parents=True)
        return Written(place, (), verification)
    write_file(place, report_page(model, folder.name, verification, read_notes(folder)), parents=True)
    pictures = []
    if plots is not None:
        for drawing in all_drawings(model, PRINT):
            pictures.append(as_path(plots) / f"{drawing.name}.{form}")
            write_file(pictures[-1], picture(drawing.figure, form), parents=True)
    return Written(place, tuple(pictures), verification)


def report_page(
    model: Model, name: str = "", verification: Verification | None = None, notes: Mapping[str, Any] | None = None
) -> str:
    """The page as text; ``verification`` is the checker's verdict, None if it was not run; ``notes`` are of a fit."""
    # weights that do not verify may have any shape: parts that cannot be drawn are left out, with the reason
    trusted = model.proven
    followed: list[Followed] = []

    def attention() -> str:
        followed.extend(follow_heads(model))
        return attention_section(model, followed)

    parts: list[Callable[[], str]] = [
        lambda: _headline(model, name, verification),
        lambda: _claim(model, name),
        lambda: fit_section(notes or {}),
        lambda: error_section(model),
        lambda: inside_section(model),
        attention,
        lambda: tables_section(model),
    ]
    body = [_guarded(part, trusted) for part in parts]
    body.append(_footer())
    data = [slider_data(one) for one in followed]
    title = f"{name or 'model'}: {html.cut(str(model.formula), 80)}"
    return html.page(title, "\n".join(filter(None, body)), data)


def refused_page(name: str, verification: Verification) -> str:
    """The page of a folder that cannot even be loaded, with the checker's reasons."""
    body = f"<h1>{escape(name)}</h1>\n" + _verdict(verification)
    return html.page(f"{name}: does not verify", body)


def _guarded(part: Callable[[], str], trusted: bool) -> str:
    try:
        return part()
    except InputError as error:
        return html.paragraph(f"Not drawn: {error}.")
    except Exception as error:
        if trusted:
            raise
        return html.paragraph(f"Not drawn: the weights are not what the construction promises ({error}).")


def _headline(model: Model, name: str, verification: Verification | None) -> str:
    label = f"<h1>transformula report{': ' + escape(name) if name else ''}</h1>"
    formula = "\n".join(f'<div class="headline">{line}</div>' for line in formula_lines(model, MAX_OUTPUTS))
    sequence = ""
    if model.sequence is not None:
        sequence = f' <span class="soft">a sequence of {model.sequence[0]} positions × {model.sequence[1]}</span>'
    box = f'<p class="box">{box_markup(model, MAX_INTERVALS)}{sequence}</p>'
    return f"<header>\n{label}\n{formula}\n{box}\n{_badge(model)}\n{_verdict(verification)}\n</header>"


def _badge(model: Model) -> str:
    where, target = _WORDS[type(model.formula)]
    bound, mean = html.bound(model.certificate.bound, "bound"), model.certificate.mean
    which = "" if mean is None else "mean of "
    place = f"at {where}" if mean is None else "over the box, not at every point"
    return (
        f'<div class="badge"><p><strong>{which}|computed − {target}| ≤ {bound}</strong></p>'
        f"<p>claimed {place}, rounding included, in {escape(model.weights.dtype)}: {_size(model)}</p></div>"
    )


def _size(model: Model) -> str:
    sizes = ((model.layers, "layer"), (model.heads, "head"), (model.tokens, "token"))
    return ", ".join([escape(model.construction), *(html.counted(value, noun) for value, noun in sizes)])


def _verdict(verification: Verification | None) -> str:
    if verification is None:
        return '<div class="badge" data-verified="unknown"><p>The checker was not run for this page.</p></div>'
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if not verification.verified:
        reasons = "".join(f"<p>{escape(reason)}</p>" for reason in verification.reasons)
        return (
            '<div class="badge bad" role="alert" data-verified="no">'
            "<p><strong>This model does NOT verify.</strong> Do not rely on its claim. "
            f"The checker, run {when}, says:</p>{reasons}</div>"
        )
    assert verification.approximation is not None and verification.rounding is not None
    proven = [html.bound(value) for value in (verification.approximation, verification.rounding)]
    return (
        '<div class="badge good" data-verified="yes"><p><strong>Verified.</strong> When this page was '
        f"written ({when}) the checker proved the claim again from the files alone: "
        f"approximation {proven[0]}, rounding {proven[1]}"
        f"{'' if verification.mean is None else ', means over the box'}.</p></div>"
    )


def _claim(model: Model, name: str) -> str:
    certificate = model.certificate
    where, target = _WORDS[type(model.formula)]
    mean = certificate.mean
    words = [
        "Let T be the function that the stored weights compute in exact real arithmetic. "
        + (f"At {where}, " if mean is None else "On average over the box (and not at every point), ")
        + f"T is within “approximation” of the {target}, and what {certificate.dtype} arithmetic computes, adding up "
        "in any order, is within “rounding” of T. Their sum, rounded up, is the bound; it is at most eps"
        + (" for every output." if model.weights.outputs > 1 else "."),
        *([] if mean is None else [_SEAMS]),
        _how(model),
        "The proof uses no samples. The figures below are samples; they prove nothing.",
    ]
    marks = {"approximation", "rounding", "eps"}
    rows = [
        (name.replace("_", " "), html.number(value, name) if name in marks else html.number(value))
        for name, value in stated(certificate).items()
        if value is not None
    ]
    model_of = [(k.replace("_", " "), html.short(v)) for k, v in certificate.rounding_model.items()]
    hashes = (certificate.weights_sha256, certificate.model_sha256, certificate.evidence_sha256)
    names = (WEIGHTS_FILE, MODEL_FILE, EVIDENCE_FILE)
    sums = [(n, f'<span class="hash">{escape(h)}</span>') for n, h in zip(names, hashes, strict=True)]
    left = [
        html.facts(rows),
        *map(html.paragraph, words),
        f"<p>To prove it again: <code>transformula verify {escape(name or 'FOLDER')}</code></p>",
        _theorem(model),
    ]
    right = [
        "<h3>The arithmetic assumed</h3>" + html.facts(model_of),
        html.folded("sha256 of the files that it covers", html.facts(sums)),
    ]
    return html.section("The claim", html.columns("".join(left), "".join(right)))


def _theorem(model: Model) -> str:
    """A link to the theorem for Coq, or why there is none."""
    if not model.proven:
        return ""
    try:
        with tempfile.TemporaryDirectory() as place:
            content = theorem_archive(model.save(Path(place) / "model"))
    except TransformulaError as error:
        said = str(error)
        return html.paragraph(f"{said[:1].upper()}{said[1:]}.")
    link = f'<a download="theorem.zip" href="data:application/zip;base64,{base64.b64encode(content).decode()}">'
    return f"<p>The claim as a theorem for the proof assistant Coq: {link}theorem.zip</a></p>"


def _how(model: Model) -> str:
    if not model.proven:
        return "This is the folder's own claim; it was not proven when this page was written."
    if model.made_by.exact and model.certificate.approximation == 0:
        return model.made_by.identity
    return model.made_by.proof


def _footer() -> str:
    from transformula import __version__

    text = (
        f"Written by transformula {__version__}. The formula in the figures was evaluated in 128-bit "
        "arithmetic where that is quick, else in float64."
    )
    return f"<footer><p>{escape(text)}</p></footer>"
