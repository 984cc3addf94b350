"""Proof.v of memorised tables: at every sample Coq follows the data token's slots through the model, by computation.

Samples.v proves once that what it computes is near what the model computes: the token that leads by g leaves at most
n·2^-k, k <= 23/16 g, to the others. Scores are sums of products of whole numbers, which take most of the time, so that
samples are checked in files of their own.
"""

from __future__ import annotations

from transformula.coq.coq_source import Source
from transformula.coq.coq_statement import allowed_bound
from transformula.coq.coq_terms import quotient
from transformula.errors import ExportError, NotProvenError

HEADER = """Require Import Bool List NArith ZArith QArith Qreals Reals.
Require Import Transformula.Transformer Transformula.Reading Transformula.Samples.
Require Import Transformula.Model Transformula.Statement{more}.
Import ListNotations.
"""
#: Products in all scores of all samples: 23 microseconds each, twice; and those of one file.
MAX_PRODUCTS, FILE_PRODUCTS = 4_000_000, 1_000_000


def sample_files(source: Source) -> dict[str, str]:
    """The generated files beside Model.v, by name."""
    count, bound = len(source.samples), allowed_bound(source)
    if 2 * source.certificate.approximation > bound:  # Samples.v rounds 1.4427 g down, to a whole number
        raise NotProvenError("the samples' scores lead by too little for Samples.v: memorise them with a smaller eps")
    heads = [head for block in source.weights.blocks for head in block.attention.heads]
    each = source.weights.tokens * sum(len(head.query.rows) for head in heads)
    if count * each > MAX_PRODUCTS:
        raise ExportError(
            f"no Coq theorem can be written for samples with over {MAX_PRODUCTS} products in their scores: "
            f"these have {count * each}"
        )
    step = max(1, FILE_PRODUCTS // max(each, 1))
    parts = [f"(firstn {min(step, count - s)} (skipn {s} rows))" for s in range(0, count, step)]
    inputs = len(source.weights.inputs)
    check = f"fun p => N.eqb (N.of_nat (length (fst p))) {inputs} && recalls model_ ready {quotient(bound)} p"
    table = [
        HEADER.format(more="").rstrip(),
        "Definition ready := Eval vm_compute in match prepared model_ with Some l => l | None => [] end.",
        "Lemma ready_read : prepared model_ = Some ready.",
        "Proof. vm_compute. reflexivity. Qed.",
    ]
    files = {"Table_0.v": "\n".join(table) + "\n"}
    for j, part in enumerate(parts):
        lines = [
            HEADER.format(more=" Transformula.Table_0").rstrip(),
            f"Definition part_{j} := Eval vm_compute in {part}.",
            f"Lemma recalled_{j} : forallb ({check}) part_{j} = true.",
            "Proof. vm_compute. reflexivity. Qed.",
        ]
        files[f"Part_{j}.v"] = "\n".join(lines) + "\n"
    more = " Transformula.Table_0" + "".join(f" Transformula.Part_{j}" for j in range(len(parts)))
    proof = [
        HEADER.format(more=more).rstrip(),
        f"Lemma fit : fits model_ {inputs} = true.",
        "Proof. vm_compute. reflexivity. Qed.",
        f"Lemma all_rows : rows = {' ++ '.join(f'part_{j}' for j in range(len(parts)))}.",
        "Proof. reflexivity. Qed.",
        "Theorem certified : claim.",
        f"Proof. apply (memory_ok model_ ready {quotient(bound)} {inputs} rows fit ready_read).",
        f"  rewrite all_rows, ?forallb_app, {', '.join(f'recalled_{j}' for j in range(len(parts)))}. reflexivity. Qed.",
    ]
    return files | {"Proof.v": "\n".join(proof) + "\n"}
