"""Hugging Face folders: the real transformers loads them, the card's lines run, and verify --hf sees every change."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

import transformula as tf
from support.one_layer_models import model_named, points_of
from transformula.errors import ExportError, InputError, ModelFileError
from transformula.export import hf_files
from transformula.export.hf_files import hf_bound, hf_differences, hf_export, hf_rounding, layout_of
from transformula.export.runtime_checks import hf_runner
from transformula.runtime.reference import run

pytest.importorskip("transformers")
ONE_LAYER = ("two heads", "no table", "partition in two", "sequence", "wide sequence", "memorize")
CIRCUITS = ("quotient", "kinks", "two outputs")


def _distance(model, arch):
    """|folder − T_w| at points, T_w in extended precision, and the proven rounding."""
    made, x = hf_export(model, arch, proven=False), points_of(model, 40).astype(model.weights.dtype)
    found = hf_runner(model, made)(x)
    wanted = run(model.weights, x.astype(np.longdouble), dtype=np.longdouble)
    assert found.dtype == model.weights.dtype and found.shape == wanted.shape
    return float(np.abs(found - wanted).max()), made.rounding


@pytest.mark.parametrize("arch", ["t5", "gpt2"])
@pytest.mark.parametrize("name", ONE_LAYER)
def test_one_layer_models_in_stock_architectures(name, arch):
    distance, rounding = _distance(model_named(name), arch)
    assert distance <= rounding


@pytest.mark.parametrize("arch", ["t5", "gpt2"])
@pytest.mark.parametrize("name", CIRCUITS)
def test_circuits_in_stock_architectures(name, arch, circuits):
    distance, rounding = _distance(circuits(name), arch)
    assert distance <= rounding


@pytest.mark.parametrize("arch", ["t5", "llama"])
def test_float32(arch, circuits):
    model = circuits("quotient", "float32")
    distance, rounding = _distance(model, arch)
    assert distance <= rounding <= 1.01 * model.certificate.rounding  # RMSNorm costs nothing but underflow


def test_what_no_stock_architecture_has_is_refused():
    with pytest.raises(ExportError, match="--construction circuit"):
        layout_of(tf.compile("x**2", on="x=0..1"), "t5")
    with pytest.raises(ExportError, match="causal"):
        model_named("two heads").to_hf("nowhere", arch="t5", text=True)
    with pytest.raises(ExportError, match="float32"):
        layout_of(model_named("two heads"), "llama")
    with pytest.raises(InputError, match="t5, gpt2, llama, transformula, not 'bert'"):
        model_named("two heads").to_hf("nowhere", arch="bert")


@pytest.fixture(scope="module", params=["t5", "gpt2"])
def exported(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    model = tf.compile("x*exp(-y)", on="x=0..1, y=0..2", eps=1e-6, construction="circuit")
    model.save(place / "model")
    return model, model.to_hf(place / "hf", arch=request.param)


_WITHOUT = """
import json, os, re, sys
sys.modules["transformula"] = None  # importing it is an error
for folder in sys.argv[1:]:
    os.chdir(folder)
    names = {}
    exec(re.search(r"```python\\n(.*?)```", open("README.md").read(), re.DOTALL).group(1), names)
    print(json.dumps(names["y"].detach().flatten().tolist()))
"""


def test_the_cards_run_without_transformula(tmp_path):
    """In a fresh process, offline, exactly as they say; inputs far from 1 are scaled for GPT-2."""
    near = tf.compile("x*exp(-y)", on="x=0..1, y=0..2", eps=1e-6, construction="circuit")
    far = tf.compile("x*exp(-y/1000)", on="x=0..4096, y=0..2000", eps=1e-2, construction="circuit")
    made = [(near, "t5"), (near, "gpt2"), (far, "gpt2")]
    folders = [model.to_hf(tmp_path / str(k), arch=arch) for k, (model, arch) in enumerate(made)]
    assert "2.0**-" in (folders[2] / "README.md").read_text()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", _WITHOUT, *map(str, folders)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    centres = [0.5 * np.exp(-1)] * 2 + [2048 * np.exp(-1)]
    for line, wanted, folder in zip(done.stdout.splitlines(), centres, folders, strict=True):
        (found,) = json.loads(line)
        assert abs(found - wanted) <= hf_bound(folder) <= 1e-2


def test_the_softmax_in_float32_of_older_transformers_breaks_the_claim_of_t5(exported, monkeypatch):
    """The card and the configuration name a version that keeps float64."""
    from transformers import AutoModelForTokenClassification as Loader

    model, folder = exported
    card, config = (folder / "README.md").read_text(), json.loads((folder / "config.json").read_text())
    assert f"transformers {config['transformers_version']} or later" in card
    assert ("softmax in float32" in card) == (config["model_type"] == "t5")
    if config["model_type"] == "t5":
        module = Loader.from_pretrained(folder, attn_implementation="eager")
        layout, x = layout_of(model, "t5"), points_of(model, 40)
        softmax, wanted = torch.nn.functional.softmax, run(model.weights, x.astype(np.longdouble), dtype=np.longdouble)

        def distance():
            with torch.no_grad():
                found = module(inputs_embeds=torch.from_numpy(layout.embed(x))).logits.numpy()
            return float(np.abs(layout.read_out(found) - wanted).max())

        assert distance() <= hf_rounding(model, "t5")
        monkeypatch.setattr("torch.nn.functional.softmax", lambda s, dim: softmax(s.float(), dim=dim).type_as(s))
        assert distance() > 1000 * hf_rounding(model, "t5")


def test_circuit_json_names_places_in_the_architecture(exported):
    """The slot that holds a sub-expression holds it in the hidden states that transformers returns."""
    import transformers

    model, folder = exported
    known, layout = json.loads((folder / "circuit.json").read_text()), layout_of(model, folder.parent.name[:-1])
    module = getattr(transformers, layout.loader).from_pretrained(folder)
    x = points_of(model, 20)
    with torch.no_grad():
        states = module(inputs_embeds=torch.from_numpy(layout.embed(x)), output_hidden_states=True).hidden_states
    truth, seen = model.ground_truth, 0
    for node in known["nodes"]:
        if node["kind"] in ("table", "relu") and node["layer"] + 2 < len(states):  # the last state is a norm's
            held = states[node["layer"] + 1][:, known["tokens"].index("data"), node["slot"]].numpy()
            exact = model.trace(x).residual(node["name"], token="data") * known["scales"].get(node["name"], 1)
            assert np.abs(held - exact).max() <= 1e-9 and truth[node["name"]].expression == node["expression"]
            seen += 1
    assert seen > 0


def test_an_untouched_folder_is_the_model(exported):
    model, folder = exported
    assert hf_differences(model, folder) == ()


def _json_edit(name, change):
    def edit(folder):
        path = folder / name
        body = json.loads(path.read_text())
        change(body)
        path.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n")

    return edit


def _tensor_edit(change):
    def edit(folder):
        path = folder / "model.safetensors"
        tensors = {name: array.copy() for name, array in load(path.read_bytes()).items()}
        metadata = change(tensors) or {"format": "pt"}
        path.write_bytes(save(tensors, metadata))

    return edit


def _next(array, place):
    flat = array.reshape(-1)
    flat[place] = np.nextafter(flat[place], np.inf, dtype=flat.dtype)


def _nudged(part, place=0):
    def change(tensors):
        name = sorted(name for name in tensors if part in name)[0]
        _next(tensors[name], place)

    return _tensor_edit(change)


def _set(key, value):
    return _json_edit("config.json", lambda body: body.__setitem__(key, value))


def _claimed(key, value):
    return _json_edit("config.json", lambda body: body["transformula"].__setitem__(key, value))


def _text(name, old, new):
    def edit(folder):
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


def _added(name, content="{}"):
    def edit(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    return edit


def _header(change):
    """Edit the safetensors header itself, which no library would write so."""

    def edit(folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header, body = change(data[8 : 8 + size].decode(), data[8 + size :])
        path.write_bytes(len(header.encode()).to_bytes(8, "little") + header.encode() + body)

    return edit


def _twice(header, body):
    """The first tensor listed twice, the second time with another's numbers."""
    first = next(name for name in json.loads(header) if name != "__metadata__")
    return header.rstrip()[:-1] + f',"{first}":' + json.dumps(json.loads(header)[first]) + "}", body


def _moved(header, body):
    """The data of two tensors of one shape exchanged by their offsets."""
    entries = json.loads(header)
    same = {}
    for name, entry in entries.items():
        if name != "__metadata__":
            same.setdefault((entry["dtype"], tuple(entry["shape"])), []).append(name)
    one, two = next(names for names in same.values() if len(names) > 1)[:2]
    entries[one]["data_offsets"], entries[two]["data_offsets"] = (
        entries[two]["data_offsets"],
        entries[one]["data_offsets"],
    )
    return json.dumps(entries), body


def _linked(folder):
    target = folder.parent / f"{folder.name}-elsewhere"
    shutil.move(folder / "config.json", target)
    (folder / "config.json").symlink_to(target)


def _linked_weights(folder):
    """The same bytes, which whoever owns the other file can change later."""
    target = folder.parent / f"{folder.name}-weights"
    shutil.move(folder / "model.safetensors", target)
    (folder / "model.safetensors").symlink_to(target)


def _sharded(folder):
    """The same tensors as transformers would save them in parts."""
    shard = "model-00001-of-00001.safetensors"
    names = load((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").rename(folder / shard)
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _folder_for_a_file(folder):
    (folder / "README.md").unlink()
    (folder / "README.md").mkdir()


CONFIG = {
    "dtype": "float32", "model_type": "llama", "architectures": ["AutoModel"], "tie_word_embeddings": "yes",
    "layer_norm_epsilon": 1e-5, "layer_norm_epsilon ": 1e-5, "use_cache": True, "num_labels": 2, "eos_token_id": 0,
    "auto_map": {"AutoModelForTokenClassification": "evil.Model", "AutoModelForCausalLM": "evil.Model"},
    "quantization_config": {"load_in_8bit": True}, "attn_implementation": "flash_attention_2", "torch_dtype": "float16",
    "_name_or_path": "other/model", "chunk_size_feed_forward": 1, "pruned_heads": {"0": [0]}, "output_attentions": True,
    "is_decoder": True, "activation_function": "gelu", "feed_forward_proj": "gated-gelu", "dropout_rate": 0.5,
    "attn_pdrop": 0.5, "scale_attn_weights": False, "reorder_and_upcast_attn": True, "vocab_size": 7,
    "attention_dropout": 0.5, "_attn_implementation": "eager", "n_inner": None, "use_bfloat16": True,
    "custom_pipelines": {"x": {"impl": "evil.P"}}, "transformers_version": "4.0.0",
}  # fmt: skip
CLAIMS = {
    "bound": "1e-09", "rounding": "0.0", "approximation": "0.0", "formula": '["x"]', "box": "x=0..9, y=0..2",
    "status": "proven by everyone", "weights_sha256": "0" * 64, "certificate_sha256": "0" * 64, "eps": "1e-09",
    "transformula_version": "99", "inputs": '["y", "x"]',
}  # fmt: skip
FILES = {
    "generation_config.json": '{"max_new_tokens": 1}', "tokenizer.json": "{}", "tokenizer_config.json": "{}",
    "modeling_evil.py": "import os", "pytorch_model.bin": "x", "model.safetensors.index.json": '{"weight_map": {}}',
    "adapter_config.json": '{"peft_type": "LORA"}', "adapter_model.safetensors": "x", "special_tokens_map.json": "{}",
    ".gitattributes": "x", "custom_generate/generate.py": "x", "chat_template.jinja": "x", "config.json.bak": "{}",
    "model-00001-of-00002.safetensors": "x", "processor_config.json": "{}", "flax_model.msgpack": "x",
}  # fmt: skip
ATTACKS = {
    **{f"config {key}": _set(key, value) for key, value in CONFIG.items()},
    **{f"claim {key}": _claimed(key, value) for key, value in CLAIMS.items()},
    **{f"file {name}": _added(name, content) for name, content in FILES.items()},
    **{f"missing {name}": lambda folder, name=name: (folder / name).unlink()
       for name in ("README.md", "circuit.json", "certificate.json", "model.safetensors")},
    "config without claim": _json_edit("config.json", lambda body: body.pop("transformula")),
    "config with a key twice": _text("config.json", '  "dtype"', '  "dtype": "float32",\n  "dtype"'),
    "config with other spaces": _text("config.json", "\n  ", "\n    "),
    "config is a link": _linked,
    "weights are a link": _linked_weights,
    "weights in parts": _sharded,
    "card is a folder": _folder_for_a_file,
    "card bound": _text("README.md", "error <= ", "error <= 0."),
    "card formula": _text("README.md", "x*exp(-y)", "x*exp(y)"),
    "card box": _text("README.md", "y=0..2", "y=0..3"),
    "card call": _text("README.md", "y = logits", "y = 0 * logits"),
    "card with a line more": _text("README.md", "```python\n", "```python\nimport os\n"),
    "card front matter": _text("README.md", "library_name: transformers", "library_name: peft"),
    "circuit expression": _text("circuit.json", "exp", "sin"),
    "circuit error": _text("circuit.json", '"error": ', '"error": 0'),
    "certificate": _text("certificate.json", '"eps"', '"eps "'),
    "a norm's gain": _tensor_edit(lambda tensors: _next(next(a for a in tensors.values() if (a == a.flat[0]).all()), 0)),
    "a score": _nudged("0", 0),
    "a weight": _nudged("weight", -1),
    "the last tensor": _tensor_edit(lambda tensors: _next(tensors[sorted(tensors)[-1]], -1)),
    "every tensor in float32": _tensor_edit(
        lambda tensors: tensors.update({name: array.astype("float32") for name, array in tensors.items()})),
    "a zero that is negative": _tensor_edit(
        lambda tensors: tensors.update({n: np.where(a == 0, -0.0, a) for n, a in tensors.items()})),
    "a tensor more": _tensor_edit(lambda tensors: tensors.update({"extra.weight": np.zeros(1)})),
    "a tensor less": _tensor_edit(lambda tensors: tensors.__delitem__(sorted(tensors)[0])),
    "a tensor of another shape": _tensor_edit(
        lambda tensors: tensors.update({sorted(tensors)[0]: tensors[sorted(tensors)[0]][..., None]})),
    "not a number": _tensor_edit(lambda tensors: tensors[sorted(tensors)[0]].reshape(-1).__setitem__(0, np.nan)),
    "metadata more": _tensor_edit(lambda tensors: {"format": "pt", "note": "x"}),
    "metadata format": _tensor_edit(lambda tensors: {"format": "tf"}),
    "a tensor listed twice": _header(_twice),
    "two tensors exchanged": _header(_moved),
    "bytes behind the tensors": _header(lambda header, body: (header, body + b"\0" * 8)),
    "header with spaces": _header(lambda header, body: (header + " " * 8, body)),
    "empty weights": lambda folder: (folder / "model.safetensors").write_bytes(b""),
    "weights that are no safetensors": lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64),
}  # fmt: skip


#: Proven once for each model; the comparison is what is attacked.
_ROUNDINGS = cache(hf_rounding)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_folder_is_not_the_model(attack, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(hf_files, "hf_rounding", _ROUNDINGS)
    model, folder = exported
    changed = tmp_path / "hf"
    shutil.copytree(folder, changed)
    before = {path.name: path.read_bytes() for path in changed.iterdir()}
    ATTACKS[attack](changed)
    after = {path.name: path.read_bytes() if path.is_file() else b"" for path in changed.iterdir()}
    assert before != after or any(path.is_symlink() for path in changed.iterdir()), "the attack changed nothing"
    assert hf_differences(model, changed) != ()


def _tokenizer(change):
    """Edit tokenizer.json, written as the export writes it."""

    def edit(folder):
        path = folder / "tokenizer.json"
        body = json.loads(path.read_text())
        change(body)
        path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")

    return edit


def _exchange_digits(body):
    vocabulary = body["model"]["vocab"]
    one, two = (next(name for name in vocabulary if name.startswith(digit)) for digit in ("１", "２"))
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]


def _entry(name, *keys_and_value):
    *keys, last, value = keys_and_value

    def change(body):
        for key in keys:
            body = body[key]
        assert body.get(last) != value
        body[last] = value

    return _json_edit(name, change)


TEXT_FILES = ("added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "special_tokens_map.json",
              "chat_template.json", "tokenization_evil.py", "circuit.json")  # fmt: skip
TEXT_ATTACKS = {
    **{name: attack for name, attack in ATTACKS.items()
       if "circuit" not in name and not name.startswith("card ")},
    **{f"text file {name}": _added(name) for name in TEXT_FILES},
    **{f"text missing {name}": lambda folder, name=name: (folder / name).unlink()
       for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json")},
    "two digits exchanged": _tokenizer(_exchange_digits),
    "malformed prompts let through": _tokenizer(lambda body: body["normalizer"]["normalizers"].pop(0)),
    "one digit's rule gone": _tokenizer(lambda body: body["normalizer"]["normalizers"].pop()),
    "a longer number": _text("tokenizer.json", "{0,", "{1,"),
    "no anchor": _tokenizer(lambda body: body["post_processor"]["single"].pop(0)),
    "marks are printed": _tokenizer(lambda body: body["decoder"]["decoders"].pop(0)),
    "unknown tokens are names": _tokenizer(lambda body: body["model"].__setitem__("unk_token", " F=")),
    "a token more": _tokenizer(lambda body: body["added_tokens"].append(
        {**body["added_tokens"][0], "id": 10**4, "content": "G="})),
    "a tokenizer that truncates": _tokenizer(lambda body: body.__setitem__("truncation", {"max_length": 9})),
    "padding on the right": _entry("tokenizer_config.json", "padding_side", "right"),
    "special tokens in prompts": _entry("tokenizer_config.json", "split_special_tokens", False),
    "code for the tokenizer": _entry("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["evil.T", None]}),
    "sampling": _entry("generation_config.json", "do_sample", True),
    "a digit less": _entry("generation_config.json", "max_new_tokens", 2),
    "another end": _entry("generation_config.json", "eos_token_id", 0),
    "penalty": _entry("generation_config.json", "repetition_penalty", 1.2),
    "decimals of the claim": _entry("config.json", "transformula", "grammar", "decimals", 1),
    "no decimals": _entry("config.json", "transformula", "grammar", "decimals", None),
    "bound of the claim": _entry("config.json", "transformula", "bound", 1e-9),
    "activation": _entry("config.json", "activation_function", "gelu_new"),
    "eps": _entry("config.json", "layer_norm_epsilon", 1e-5),
    "card decimals": _text("README.md", "prints ", "prints 1"),
    "card formula": _text("README.md", "sin(x)", "cos(x)"),
    "card box": _text("README.md", "x=0..1", "x=0..2"),
    "card with code": _text("README.md", "    from transformers", "    import os\n    from transformers"),
}  # fmt: skip


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    model = tf.compile("sin(x)", on="x=0..1", eps=1e-4)
    return model, model.to_hf(tmp_path_factory.mktemp("text") / "hf", text=True)


#: Proven once, too.
_LAYOUTS = cache(hf_files.text_model)


@pytest.mark.filterwarnings("ignore:overflow")  # the gains of a text model are beyond float32
@pytest.mark.parametrize("attack", TEXT_ATTACKS)
def test_a_changed_text_folder_is_not_the_model(attack, text_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(hf_files, "text_model", _LAYOUTS)
    model, folder = text_folder
    changed = tmp_path / "hf"
    shutil.copytree(folder, changed)
    before = {path.name: path.read_bytes() for path in changed.iterdir()}
    TEXT_ATTACKS[attack](changed)
    after = {path.name: path.read_bytes() if path.is_file() else b"" for path in changed.iterdir()}
    assert before != after or any(path.is_symlink() for path in changed.iterdir()), "the attack changed nothing"
    assert hf_differences(model, changed) != ()
    assert hf_differences(model, folder) == ()


@pytest.mark.parametrize("decimals", ["1e999", "null", "true", "[]", '"x"', "-1"])
def test_decimals_that_are_none_are_a_difference(decimals, exported, tmp_path):
    """An infinite number was a traceback."""
    model, folder = exported
    changed = tmp_path / "hf"
    shutil.copytree(folder, changed)
    stated = f'{{"model_type": "gpt2", "transformula": {{"grammar": {{"decimals": {decimals}}}}}}}'
    (changed / "config.json").write_text(stated)
    assert hf_differences(model, changed) != ()


@pytest.mark.parametrize("content", ["", "[]", "{", "\x00", "[" * 100_000])
def test_a_config_that_cannot_be_read_is_a_sentence(content, exported, tmp_path):
    model, folder = exported
    changed = tmp_path / "hf"
    shutil.copytree(folder, changed)
    (changed / "config.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        hf_differences(model, changed)
    with pytest.raises(ModelFileError, match="cannot read"):
        hf_differences(model, tmp_path / "nowhere")


def test_a_config_without_an_end_is_not_read(exported, tmp_path):
    """A pipe, or a link to a device, would be read for ever."""
    model, folder = exported
    changed = tmp_path / "hf"
    shutil.copytree(folder, changed)
    (changed / "config.json").unlink()
    os.mkfifo(changed / "config.json")
    with pytest.raises(ModelFileError, match="is not JSON"):
        hf_differences(model, changed)
    (changed / "config.json").unlink()
    (changed / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ModelFileError, match="is not JSON"):
        hf_differences(model, changed)


def test_another_model_is_not_this_one(exported, tmp_path):
    _, folder = exported
    other = tf.compile("x*exp(-y)", on="x=0..1, y=0..2", eps=1e-5, construction="circuit")
    assert any("the tensor" in text for text in hf_differences(other, folder))


def test_transformer_lens_sees_the_same_circuit(exported):
    pytest.importorskip("transformer_lens")
    model, _ = exported
    bridge, x = model.to_transformer_lens(), points_of(model, 8)
    logits, cache = bridge.run_with_cache(bridge.embed_points(x))
    assert np.abs(logits[:, -1, 0].detach().numpy() - model(x)).max() <= hf_rounding(model, "gpt2")
    layout, seen = layout_of(model, "gpt2"), model.trace(x)
    for node in model.ground_truth.nodes:
        if node.kind == "table":
            held = cache[f"blocks.{node.block}.hook_resid_post"][:, -1, layout.slots[node.name]].detach().numpy()
            assert np.abs(held - seen.residual(node.name, token="data")).max() <= 1e-9
            pattern = cache[f"blocks.{node.block}.attn.hook_pattern"][:, layout.heads[node.block][node.head], -1]
            ours = seen.pattern(node.block, node.head)
            assert np.abs(pattern.detach().numpy()[:, layout.tokens[: model.tokens]] - ours).max() <= 1e-9
