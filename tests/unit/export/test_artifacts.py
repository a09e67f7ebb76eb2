"""Exports for real: every variant runs and agrees, and the cache is neither fooled nor fragile.

The repository's own models come from the product's cache, so a second run of the tests is quick.
What the cache itself must do is tried on a tiny model in a cache of its own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import ExportError, ModelError, StorageError, UsageError, install
from pytest_sme2.export import artifacts
from pytest_sme2.export.artifacts import cache_key, export_model
from pytest_sme2.export.registry import ModelEntry, discover
from pytest_sme2.export.store import is_current, load_artifact, read_meta
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.results.run import Artifact, TensorSpec
from pytest_sme2.system.cache import mark_cache
from pytest_sme2.verdict.limits import TOLERANCES
from pytest_sme2.verdict.numerics import agreement, within
from tests.support import Command
from tests.support.artifacts import make_artifact
from tests.support.gone import wait_for, wait_until_gone
from tests.support.needs import needs_export

pytestmark = needs_export

MAIN = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"
ROOT = Path(__file__).parents[3]
MODELS = discover([ROOT / "models"])
FP32 = Variant("fp32")

TINY_NAME = """../tiny 'x" ; <script>"""
TINY = f"""
import torch
from pytest_sme2 import register_model
from tiny_helper import WIDTH

class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, WIDTH)

    def forward(self, x, scale=None):
        print("noise on stdout")
        return self.linear(x) * scale, {{"sum": x + scale}}

@register_model({TINY_NAME!r}, variants=("fp32",))
class TinyModel:
    def get_eager_model(self):
        return Tiny()

    def get_example_inputs(self):
        return (torch.randn(1, 4),)

    def get_example_kwarg_inputs(self):
        return {{"scale": torch.full((1,), 2.0)}}
"""

HEADER = "import torch\nfrom pytest_sme2 import register_model\n"
FORWARD = "class Net(torch.nn.Module):\n    def forward(self, x):\n"
MODEL = """
@register_model({name!r})
class Model:
    def get_eager_model(self):
        return Net()
    def get_example_inputs(self):
        return {inputs}
"""


def write_model(folder: Path, text: str) -> ModelEntry:
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(text, encoding="utf-8")
    (entry,) = discover([folder]).entries
    return entry


def write_network(folder: Path, network: str, inputs: str = "(torch.ones(3),)") -> ModelEntry:
    """A model of the folder's name with this class ``Net``, or this code in place of one."""
    return write_model(folder, HEADER + network + MODEL.format(name=folder.name, inputs=inputs))


@pytest.fixture(scope="module", autouse=True)
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a model's own module is. On the path of all exports: one process serves them all."""
    folder = tmp_path_factory.mktemp("outside")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(str(folder))
        yield folder


Differences = Callable[[Artifact], list[tuple[float, float, bool]]]


@pytest.fixture
def differences() -> Iterator[Differences]:
    """With ExecuTorch's own runtime, of each output: its largest error, how large it is, and
    whether that is tolerated.
    """

    def read(files: Sequence[Path], specs: Sequence[TensorSpec]) -> list[Any]:
        return [
            numpy.fromfile(file, dtype=spec.dtype).reshape(spec.shape)
            for file, spec in zip(files, specs, strict=True)
        ]

    def run(artifact: Artifact) -> list[tuple[float, float, bool]]:
        inputs = [torch.from_numpy(array) for array in read(artifact.input_files, artifact.inputs)]
        method = Runtime.get().load_program(str(artifact.pte)).load_method("forward")
        outputs = [output.numpy() for output in method.execute(inputs)]
        answer = []
        wanted = read(artifact.reference_files, artifact.outputs)
        for one, other in zip(outputs, wanted, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            one, other = one.astype("float64").ravel(), other.astype("float64").ravel()
            found = agreement(one, other, against="reference")
            tolerance = TOLERANCES[artifact.variant.partition("@")[0]]
            answer.append((found.max_abs, float(abs(other).max()), within(found, tolerance)))
        return answer

    # torch and ExecuTorch use what they have deprecated themselves.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from executorch.runtime import Runtime

        yield run


@pytest.mark.parametrize(
    ("model", "variant"),
    [
        pytest.param(name, variant, marks=marks)
        # The others take minutes: the suite in tests/performance runs them, and this one too.
        for name, marks in (("toy_cnn", ()), ("mobilenet_v3_small", pytest.mark.nightly))
        for variant in MODELS.get(name).variants
    ]
    + [("toy_cnn", Variant("int4")), ("toy_cnn", Variant("int4_channel"))],
    ids=str,
)
def test_every_variant_runs_and_agrees_with_the_eager_model(
    model: str, variant: Variant, differences: Differences
) -> None:
    if model == "mobilenet_v3_small" and importlib.util.find_spec("torchvision") is None:
        pytest.skip("needs torchvision, which the extra 'models' brings")
    artifact = export_model(MODELS.get(model), variant)

    assert artifact.pte.name == f"{model}_xnnpack_{variant}.pte"
    for _, size, tolerated in differences(artifact):
        assert size > 0
        assert tolerated


def test_toy_cnn_is_as_documented() -> None:
    made = {
        name: export_model(MODELS.get("toy_cnn"), parse_variant(name))
        for name in ("fp32", "fp16", "int8")
    }
    artifact = made["fp32"]
    meta = json.loads((artifact.folder / "export_meta.json").read_text())
    assert artifact.inputs[0].shape == (1, 3, 64, 64)
    assert artifact.input_files[0].stat().st_size == 4 * 3 * 64 * 64
    assert 100_000 <= meta["parameters"] <= 300_000
    assert meta["operators"] == {"delegate_calls": 1, "portable": {}}
    assert artifact.weights == "random (seed 0)"
    assert {"torch", "executorch", "torchao"} <= set(artifact.versions)

    assert [one.inputs[0].dtype for one in made.values()] == ["float32", "float16", "float32"]
    fp32, fp16, int8 = (one.pte.stat().st_size for one in made.values())
    assert int8 < fp16 < fp32
    assert int8 < 0.4 * fp32


def test_a_second_export_imports_no_torch() -> None:
    export_model(MODELS.get("toy_cnn"), FP32)
    script = (
        "import sys; from pytest_sme2.cli.main import main;"
        "assert main(['export', 'toy_cnn', '--variant', 'fp32']) == 0;"
        "print({'torch', 'numpy', 'executorch', 'pandas'} & set(sys.modules))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert seen.stderr == ""
    assert seen.stdout.splitlines()[-1] == "set()"


def refuse(_: object) -> Artifact:
    raise LookupError


def is_cached(entry: ModelEntry, cache: Path) -> bool:
    """Whether the cache has it, so that nothing is to be made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts._Export, "make", refuse)
        try:
            return bool(export_model(entry, FP32, cache=cache))
        except LookupError:
            return False


class Tiny:
    """The tiny model, exported once by two processes at the same time."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.answers: list[subprocess.CompletedProcess[str]] = []
        self.cache = root / "cache"
        mark_cache(self.cache)
        self.helper = outside / "tiny_helper.py"
        self.helper.write_text("WIDTH = 3\n")
        self.models = root / "models"
        self.entry = write_model(self.models / "tiny", TINY)

    def words(self, *words: str) -> list[str]:
        return ["export", "--models-folder", str(self.models), *words, "--", TINY_NAME]

    def copy(self, root: Path) -> Tiny:
        """The same with a cache of its own, free to be damaged."""
        copied = copy.copy(self)
        copied.cache = root / "cache"
        shutil.copytree(self.cache, copied.cache)
        return copied

    def folders(self) -> list[Path]:
        return sorted((self.cache / "exports").glob("*_xnnpack_*"))

    def is_cached(self) -> bool:
        return is_cached(self.entry, self.cache)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Tiny:
    tiny = Tiny(tmp_path_factory.mktemp("tiny"), outside)
    paths = os.pathsep.join([str(outside), str(ROOT)])
    environment = {**os.environ, "SME2_CACHE_DIR": str(tiny.cache), "PYTHONPATH": paths}
    words = [sys.executable, "-c", MAIN, *tiny.words()]
    run = functools.partial(subprocess.run, env=environment, capture_output=True, text=True)
    with ThreadPoolExecutor() as pool:
        tiny.answers = list(pool.map(run, [words, words]))
    return tiny


@pytest.fixture
def tiny(exported: Tiny, tmp_path: Path) -> Tiny:
    return exported.copy(tmp_path)


def test_two_processes_make_it_once(exported: Tiny, differences: Differences) -> None:
    one, other = exported.answers
    assert (one.returncode, other.returncode) == (0, 0), one.stderr + other.stderr
    assert one.stdout == other.stdout
    assert "lowering to XNNPACK" in one.stderr + other.stderr
    assert ("importing torch" in one.stderr) != ("importing torch" in other.stderr)
    # A hostile name makes a safe path, and nothing is left beside it.
    (folder,) = exported.folders()
    artifact = load_artifact(folder)
    assert artifact.model == TINY_NAME
    assert artifact.pte.name.startswith("=2E.=2Ftiny=20=27x=22=20=3B=20=3Cscript=3E_xnnpack_fp32")
    beside = {path.name for path in exported.cache.parent.iterdir()}
    assert beside == {"cache", "models"}
    left = {path.name for path in (exported.cache / "exports").iterdir()}
    assert left == {folder.name, "locks"}
    assert not (folder / "work").exists()
    # Inputs and references follow the program's order.
    assert [spec.shape for spec in artifact.inputs] == [(1, 4), (1,)]
    assert [spec.shape for spec in artifact.outputs] == [(1, 3), (1, 4)]
    assert all(error <= 1e-5 for error, _, _ in differences(artifact))
    # What the export prints goes to the log.
    terminal = "".join(done.stdout + done.stderr for done in exported.answers)
    assert "noise on stdout" in (folder / "export.log").read_text()
    assert "noise on stdout" not in terminal
    assert "Warning" not in terminal


def test_a_truncated_entry_is_noticed_and_made_again(tiny: Tiny) -> None:
    (folder,) = tiny.folders()
    whole = load_artifact(folder)
    with whole.pte.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ExportError, match="damaged"):
        load_artifact(folder)

    lines: list[str] = []
    again = export_model(tiny.entry, FP32, cache=tiny.cache, progress=lines.append)

    assert "damaged" in lines[0]
    assert again.sha256 == whole.sha256
    assert load_artifact(again.folder) == again
    assert len(tiny.folders()) == 1


def test_cache_key_depends_on_the_content_of_the_model(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And on what lowers, also where that was edited in place; not on where the model lies."""

    def key(entry: ModelEntry = tiny.entry, variant: Variant = FP32, **options: Any) -> str:
        chosen = {"weights": None, "seed": 0, **options}
        return cache_key(entry, variant, **chosen)

    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"1")
    changed = write_model(tmp_path / "changed" / "tiny", TINY + "# touched\n")
    keys = [
        key(),
        key(variant=Variant("fp16")),
        key(variant=Variant("fp32", 32)),
        key(seed=1),
        key(weights=weights),
        key(entry=changed),
    ]
    moved = write_model(tmp_path / "moved", TINY)
    (tmp_path / "moved" / "limits.toml").write_text("")
    (tmp_path / "moved" / "__pycache__").mkdir()
    (tmp_path / "moved" / "__pycache__" / "model.pyc").write_text("")
    assert key(entry=moved) == keys[0]
    weights.write_bytes(b"2")
    keys.append(key(weights=weights))
    site = tmp_path / "site"
    for file, text in (
        ("torch-99.0.dist-info/METADATA", "Name: torch\nVersion: 99.0\n"),
        ("lowers/__init__.py", "passes = 1"),
        ("lowers/__init__.py", "passes = 2"),
    ):
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setattr(artifacts, "_LOWERING", ("lowers",))
        artifacts._lowering_sha256.cache_clear()
        keys.append(key())
    artifacts._lowering_sha256.cache_clear()
    assert len(set(keys)) == len(keys)


def test_no_entry_vouches_for_itself(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old export under the key of a new one; any export where a fresh one was asked for."""
    (folder,) = tiny.folders()
    meta = json.loads((folder / "export_meta.json").read_text())
    key = cache_key(tiny.entry, FP32, weights=None, seed=1)
    planted = folder.with_name(folder.name.replace(meta["key"], key))
    shutil.copytree(folder, planted)
    (planted / "export_meta.json").write_text(json.dumps({**meta, "key": key}))
    made = functools.partial(export_model, tiny.entry, FP32, cache=tiny.cache)
    assert made().folder == folder
    monkeypatch.setattr(artifacts._Export, "make", refuse)
    for options in ({"seed": 1}, {"fresh": True}):
        with pytest.raises(LookupError):
            made(**options)


READER = """
import glob, numpy, os, pathlib, sqlite3, subprocess, torch
import safetensors.torch
import reader_helper
from pytest_sme2 import register_model

HERE = pathlib.Path(__file__).parent
NEAR = HERE.parents[1] / "weights"

@register_model("reader")
class Model:
    def get_eager_model(self):
        net = torch.nn.Linear(4, 4)
        state = torch.load(NEAR / "net.pt", weights_only=True, mmap=True)
        state["bias"] = safetensors.torch.load_file(NEAR / "bias.safetensors")["bias"]
        state["bias"] += torch.jit.load(NEAR / "scripted.pt")(torch.zeros(4))
        state["bias"] += torch.from_file(str(NEAR / "raw.bin"), size=4)
        state["bias"] += float((HERE / ".hidden").read_text())
        state["bias"] += float((HERE / "near/a").read_text())
        state["bias"] += len(glob.glob(str(NEAR / "*.part")))
        state["bias"] += sqlite3.connect(NEAR / "found.db").execute("select v from t").fetchone()[0]
        state["bias"] += float(subprocess.check_output(["cat", NEAR / "told"]))
        if (NEAR / "more.pt").exists():
            state = torch.load(NEAR / "more.pt")
        (pathlib.Path.cwd() / "scratch").write_text("is not read")
        net.load_state_dict(state)
        return net

    def get_example_inputs(self):
        return (torch.from_numpy(numpy.load(NEAR / "input.npy")),)
"""


def test_whatever_the_model_reads_is_part_of_its_key(
    tmp_path: Path, outside: Path, differences: Differences
) -> None:
    """By all ways that do not tell Python, too; a link, a hidden file, names in a folder, and a
    module from elsewhere.
    """
    import safetensors.torch
    import torch

    near, elsewhere = tmp_path / "weights", tmp_path / "elsewhere"
    entry = write_model(tmp_path / "models" / "reader", READER)
    near.mkdir()
    elsewhere.mkdir()
    here = tmp_path / "models" / "reader"
    (here / "near").symlink_to(elsewhere)
    weights = near / "net.pt"
    torch.save({"weight": torch.ones(4, 4), "bias": torch.zeros(4)}, weights)
    safetensors.torch.save_file({"bias": torch.ones(4)}, near / "bias.safetensors")
    torch.jit.trace(torch.nn.ReLU(), torch.zeros(4)).save(str(near / "scripted.pt"))
    numpy.ones(4, "float32").tofile(near / "raw.bin")
    numpy.save(near / "input.npy", numpy.ones((1, 4), "float32"))
    with contextlib.closing(sqlite3.connect(near / "found.db")) as database:
        database.executescript("create table t(v); insert into t values(1)")
    others = [here / ".hidden", elsewhere / "a", outside / "reader_helper.py", near / "told"]
    for file in others:
        file.write_text("1")
    cache = tmp_path / "cache"
    made = export_model(entry, FP32, cache=cache)

    dependencies = read_meta(made.folder).dependencies
    current = functools.partial(is_current, dependencies, entry)
    assert made.weights.startswith("5 files, the first is net.pt (sha256 of all ")
    read = dependencies.files
    assert read["../../weights/net.pt"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert read["../../weights/more.pt"] == "missing"
    assert {name.rpartition("/")[2] for name in read} == {
        *("model.py", "net.pt", "bias.safetensors", "scripted.pt", "raw.bin", "input.npy"),
        *(".hidden", "a", "weights", "more.pt", "reader_helper.py", "found.db", "told"),
    }
    assert is_cached(entry, cache)
    for file in {*near.iterdir(), *others}:
        kept = file.read_bytes()
        for changed in (bytes(len(kept)), b"\xff" * len(kept), None):
            file.unlink()
            if changed is not None:
                file.write_bytes(changed)
            assert not current(), file
            file.write_bytes(kept)
            assert current(), file
    for new in (near / "more.pt", near / "new.part"):
        new.write_bytes(b"")
        assert not current(), new
        new.unlink()
    (here / "near").unlink()
    (here / "near").symlink_to(near)
    (near / "a").write_text("2")
    assert not current()
    torch.save({"weight": torch.full((4, 4), torch.nan), "bias": torch.zeros(4)}, weights)
    assert not is_cached(entry, cache)
    weights.unlink()
    with pytest.raises(ModelError, match=r"FileNotFoundError.*weights/net\.pt.*model\.py:14"):
        export_model(entry, FP32, cache=cache)


@pytest.fixture
def saved(tmp_path: Path, differences: Differences) -> Path:
    """Weights of the tiny model, and of another one."""
    import torch

    state = {"linear.weight": torch.ones(3, 4), "linear.bias": torch.zeros(3)}
    torch.save(state, tmp_path / "my weights.pt")
    torch.save({"net.linear.weight": torch.ones(3, 4)}, tmp_path / "foreign.pt")
    return tmp_path


def test_weights_and_a_copy_of_the_artifact(
    tiny: Tiny,
    saved: Path,
    tmp_path: Path,
    differences: Differences,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out put"
    words = ("--weights", str(saved / "my weights.pt"), "--out", str(out))
    monkeypatch.setenv("SME2_CACHE_DIR", str(tiny.cache))
    code = main(tiny.words(*words))
    printed = capsys.readouterr()

    assert code == 0, printed.err
    artifact = load_artifact(out)
    assert printed.out.strip() == str(artifact.pte)
    assert artifact.weights.startswith("my weights.pt (sha256 ")
    assert all(error <= 1e-5 for error, _, _ in differences(artifact))
    first_output = artifact.reference_files[0].read_bytes()
    assert len({first_output[index : index + 4] for index in (0, 4, 8)}) == 1


def test_weights_that_do_not_fit_are_named(tiny: Tiny, saved: Path) -> None:
    (saved / "hostile.pt").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    foreign = r'Missing key.*"linear\.weight".*Unexpected key.*"net\.linear\.weight"'
    for name, kind, words in (
        ("none", UsageError, "cannot be read"),
        ("hostile", ExportError, r"hostile\.pt' do not fit model"),
        ("foreign", ExportError, foreign),
    ):
        with pytest.raises(kind, match=words):
            export_model(tiny.entry, FP32, cache=tiny.cache, weights=saved / f"{name}.pt")


def test_an_artifact_does_not_land_on_another(tmp_path: Path, sme2: Command) -> None:
    out = make_artifact(tmp_path / "out", "another", "fp32").folder
    words = ["export", "toy_cnn", "--models-folder", ROOT / "models", "--out", out]
    assert "holds 'another'" in sme2(*words, code=2).err
    assert load_artifact(out).model == "another"


def test_a_line_that_cannot_be_captured_is_named(tmp_path: Path) -> None:
    net = FORWARD + "        if x.sum() > 0:\n            return x + 1\n        return x\n"
    entry = write_network(tmp_path / "branch", net)
    with pytest.raises(ExportError) as caught:
        export_model(entry, FP32, cache=tmp_path / "cache")
    message, where = str(caught.value).splitlines()
    assert "capturing the graph failed" in message
    assert "branch/model.py:5 `if x.sum() > 0:`." in message
    log = Path(where.removeprefix("The full log: "))
    assert "Traceback" in log.read_text()
    assert not list((tmp_path / "cache" / "exports").glob("*_xnnpack_*"))
    assert not list((tmp_path / "cache" / "exports").glob(".*.part"))


TWIST = (
    "@torch.library.custom_op('mylib::twist', mutates_args=())\n"
    "def twist(x: torch.Tensor) -> torch.Tensor:\n    return x.flip(0)\n"
    "@twist.register_fake\ndef _(x):\n    return torch.empty_like(x)\n"
    f"{FORWARD}        return twist(x) + 1\n"
)
LAYERS = (
    "class Net(torch.nn.Sequential):\n    def __init__(self):\n"
    "        super().__init__({})\n    def forward(self, x):\n        return super().forward(x)\n"
)
CONV1D = LAYERS.format("torch.nn.Conv1d(4, 8, 3), torch.nn.PReLU(8)")
CONV3D = LAYERS.format("torch.nn.Conv3d(3, 8, 3), torch.nn.ReLU()")
PLAIN = f"{FORWARD}        return x + 1\n"


@pytest.mark.parametrize(
    ("variant", "network", "shape", "words"),
    [
        ("fp32", TWIST, "3", r"^Model .*: mylib::twist\. At .*model\.py:11 .*\nThe full.*$"),
        # What XNNPACK does not take is named, and not what it left.
        (
            "fp32",
            CONV1D,
            "1, 4, 32",
            r"The cause: AssertionError: .*non-NHWC.* Operator: aten::prelu\.default\. "
            r"At .*model\.py:7 `return super\(\)\.forward\(x\)`.* .*four dimensions",
        ),
        (
            "int8",
            CONV3D,
            "1, 3, 4, 8, 8",
            r"Operator: aten::convolution\.default\. At .*model\.py:7 .*one or two dimensions",
        ),
        ("int4", PLAIN, "3", "no linear layer with a multiple of 32 inputs"),
        ("int4_channel", PLAIN, "3", "int4_channel would be fp32"),
        ("bf16", CONV3D, "1, 3, 4, 8, 8", "no linear layer, so all of it would run outside"),
    ],
)
def test_what_cannot_be_exported_is_named(
    tmp_path: Path, variant: str, network: str, shape: str, words: str
) -> None:
    entry = write_network(tmp_path / "odd", network, f"(torch.randn({shape}),)")
    with pytest.raises(ExportError, match=words):
        export_model(entry, parse_variant(variant), cache=tmp_path / "cache")


def test_a_model_that_fails_in_eager_mode_is_the_model_s_error(tmp_path: Path) -> None:
    entry = write_network(tmp_path / "eager", FORWARD + "        return x @ torch.ones(7)\n")
    with pytest.raises(ModelError, match=r"fails before any export.*model\.py:5"):
        export_model(entry, FP32, cache=tmp_path / "cache")


@pytest.mark.skipif(not importlib.util.find_spec("torchvision"), reason="needs torchvision")
def test_a_model_may_import_torchvision_and_give_a_tensor_alone(tmp_path: Path) -> None:
    """And its weights as bfloat16, which a reader is told."""
    net = "import torchvision.models\nclass Net(torch.nn.Linear):\n    def __init__(self):\n"
    net += "        super().__init__(3, 3, dtype=torch.bfloat16)\n"
    entry = write_network(tmp_path / "net", net, "torch.ones(3)")
    artifact = export_model(entry, FP32, cache=tmp_path / "cache")
    assert [entry.shape for entry in artifact.inputs] == [(3,)]
    assert artifact.weights == "random (seed 0), given as bfloat16"


def test_a_kill_leaves_no_half_made_artifact_and_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    net = (
        "import os, time, pathlib\nclass Net: pass\n"
        f"pids = pathlib.Path({str(pid_file)!r})\n"
        "pids.write_text(f'{os.getpid()} {os.getppid()}.')\ntime.sleep(3600)\n"
    )
    write_network(tmp_path / "models" / "slow", net)
    cache = tmp_path / "cache"
    mark_cache(cache)
    words = ["export", "slow", "--models-folder", str(tmp_path / "models")]
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        env={**os.environ, "SME2_CACHE_DIR": str(cache)},
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_for(lambda: pid_file.exists() and pid_file.read_text().endswith("."))
        process.send_signal(signal.SIGKILL)
    # Of the export, and of what it was forked from.
    for pid in pid_file.read_text().rstrip(".").split():
        wait_until_gone(int(pid))
    assert not list((cache / "exports").glob("*_xnnpack_*"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="SME2_CACHE_DIR"):
        export_model(MODELS.get("toy_cnn"), FP32, cache=tmp_path / "file")


def test_wrong_words_are_usage_errors(sme2: Command) -> None:
    for words, message in (
        ("toy_cnn --seed -1", "-1 is not a seed"),
        ("toy_cnn --variant fp8", "Choose one of: fp32"),
        ("../toy_cnn", "'../toy_cnn' is not a model"),
    ):
        folder = ("--models-folder", ROOT / "models")
        assert message in sme2("export", *words.split(), *folder, code=2).err


def test_without_torch_the_export_extra_is_named(tmp_path: Path) -> None:
    import filelock
    import msgspec
    import platformdirs

    # A Python without site-packages, given the base dependencies alone.
    for package in (filelock, msgspec, platformdirs):
        source = Path(str(package.__file__)).parent
        (tmp_path / source.name).symlink_to(source)
    done = subprocess.run(
        [sys.executable, "-S", "-c", MAIN, "export", "toy_cnn"],
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert install("export") in done.stderr
    assert "'torch'" in done.stderr


def test_without_torchvision_the_models_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    missing = "raise ModuleNotFoundError('No module of this name', name='torchvision.models')\n"
    write_network(tmp_path / "models" / "seen", missing)
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    told = sme2("export", "seen", "--models-folder", tmp_path / "models", code=3).err
    assert told.splitlines()[-1].endswith(install("models"))
    assert "'torchvision'" in told


@pytest.mark.parametrize("content", [None, b"{", b"{}", b"[]"])
def test_any_damage_is_noticed(tmp_path: Path, content: bytes | None) -> None:
    for file in ("export_meta.json", "reference_0.bin"):
        folder = make_artifact(tmp_path / file, "toy", "fp32").folder
        (folder / file).unlink()
        if content is not None:
            (folder / file).write_bytes(content)
        with pytest.raises(ExportError, match=r"damaged|not valid JSON|cannot be read"):
            load_artifact(folder)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model", None, ""),
        ("weights", 3, ""),
        ("versions", [], ""),
        ("inputs", [{"dtype": "float32"}], ""),
        ("outputs", [{"dtype": "float32", "shape": [-1]}], "is not a shape"),
        ("dependencies", {"files": {}}, ""),
        ("dependencies", {"files": {"/a": 1}, "packages": {}}, ""),
        ("pte", "elsewhere.pte", "it has no program"),
        ("files", {}, "it has no program"),
        ("files", {"../a": {"bytes": 1, "sha256": ""}}, "is not a plain file name"),
    ],
)
def test_wrong_record_is_a_damaged_artifact(
    tmp_path: Path, field: str, value: object, words: str
) -> None:
    folder = make_artifact(tmp_path / "a", "toy", "fp32").folder
    meta = json.loads((folder / "export_meta.json").read_text())
    (folder / "export_meta.json").write_text(json.dumps({**meta, field: value}))
    with pytest.raises(ExportError, match=f"is damaged: .*{words}"):
        load_artifact(folder)


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_folder_name_that_is_not_utf8_is_refused_before_torch_fails(tmp_path: Path) -> None:
    text = HEADER + MODEL.format(name="tiny", inputs="()")
    entry = write_model(tmp_path / os.fsdecode(b"caf\xe9"), text)
    with pytest.raises(ModelError, match=r"is not UTF-8.*Move or rename the folder"):
        export_model(entry, Variant("fp32"), cache=tmp_path / "cache")
