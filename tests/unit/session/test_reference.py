from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.results.case import Baseline
from pytest_sme2.results.run import Artifact
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session import reference as against
from pytest_sme2.session.bundle import write_bundle
from pytest_sme2.session.reference import (
    kept_reference,
    open_reference,
    parse_against,
)
from pytest_sme2.session.settings import Reference
from tests.support.artifacts import make_artifact
from tests.support.gate_examples import baseline


@pytest.fixture
def here(tmp_path: Path) -> Sme2Runner:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "sme2_runner").write_bytes(b"here")
    return Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "artifact", "toy_cnn", "fp16")


@pytest.mark.parametrize(
    "text", ["executorch==1.5.0", " executorch==1.5.0 ", "executorch==1.6.0rc1"]
)
def test_a_version_of_executorch(text: str) -> None:
    found = parse_against(text)
    version = text.strip().removeprefix("executorch==")
    assert found == Reference("executorch", f"executorch {version}", version=version)


def test_a_bundle_a_folder_and_a_file_that_is_neither(tmp_path: Path) -> None:
    bundle, program = tmp_path / "last release.tar.gz", tmp_path / "model.pte"
    bundle.touch()
    program.touch()
    assert parse_against(str(bundle)) == Reference("bundle", bundle.name, path=bundle)
    assert parse_against(str(tmp_path)) == Reference("programs", tmp_path.name, path=tmp_path)
    with pytest.raises(UsageError, match="is neither of these"):
        parse_against(str(program))
    # Else it would be compared with itself.
    (tmp_path / "this version").mkdir()
    with pytest.raises(UsageError, match="a name that reports use themselves"):
        parse_against(str(tmp_path / "this version"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("executorch==", "is not a version"),
        ("executorch>=1.5", "is not a version"),
        ("executorch==1.5.0; rm -rf ~", "is not a version"),
        ("executorch==--index-url=x", "is not a version"),
        ("nowhere.tar.gz", "does not exist"),
        ("", "does not exist"),
        ("torch==2.0", "does not exist"),
    ],
)
def test_what_is_neither_lists_the_choices(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_against(text)
    assert "executorch==1.5.0" in str(caught.value)
    assert ".pte" in str(caught.value)


def test_a_version_runs_the_same_programs(
    here: Sme2Runner, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Sme2Runner("wheel", "linux-aarch64", "1.5.0", here.folder)
    asked = []

    def provision(platform: str, **options: object) -> Sme2Runner:
        asked.append((platform, options["executorch"]))
        return other

    monkeypatch.setattr(against, "wheel_runner", provision)
    opened = open_reference(parse_against("executorch==1.5.0"), "linux-aarch64")
    assert asked == [("linux-aarch64", "1.5.0")]
    assert opened.side(artifact, here) == (artifact, other)


def test_a_bundle_runs_its_own_programs_on_its_own_runner(
    tmp_path: Path, here: Sme2Runner, artifact: Artifact
) -> None:
    theirs = make_artifact(tmp_path / "theirs", "toy_cnn", "fp16", b"an older program")
    path = write_bundle(tmp_path / "b.tar.gz", here, [theirs])
    opened = open_reference(parse_against(str(path)), "linux-aarch64", cache=tmp_path / "cache")
    program, runner = opened.side(artifact, here)
    assert program.pte.read_bytes() == b"an older program"
    assert runner.folder != here.folder
    assert (runner.folder / "sme2_runner").read_bytes() == b"here"


def test_a_bundle_for_another_platform_or_model(
    tmp_path: Path, here: Sme2Runner, artifact: Artifact
) -> None:
    path = write_bundle(tmp_path / "b.tar.gz", here, [artifact])
    opened = open_reference(parse_against(str(path)), "macos-arm64", cache=tmp_path / "cache")
    mac = Sme2Runner("wheel", "macos-arm64", "1.5.1", here.folder)
    with pytest.raises(UsageError, match="is for linux-aarch64, but this target is macos-arm64"):
        opened.side(artifact, mac)
    other = make_artifact(tmp_path / "other", "resnet", "fp32")
    with pytest.raises(UsageError, match=r"no program for resnet-fp32\. It has: toy_cnn-fp16\."):
        opened.side(other, here)


@pytest.mark.parametrize("place", ["toy_cnn_xnnpack_fp16.pte", "toy/toy_cnn_xnnpack_fp16.pte"])
def test_a_folder_of_programs_runs_on_our_runner_with_our_inputs(
    tmp_path: Path, here: Sme2Runner, artifact: Artifact, place: str
) -> None:
    path = tmp_path / "programs" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(b"an older program")
    opened = open_reference(parse_against(str(tmp_path / "programs")), "linux-aarch64")
    program, runner = opened.side(artifact, here)
    assert runner is here
    assert program.pte == path
    assert program.sha256 == hashlib.sha256(b"an older program").hexdigest()
    assert program.input_files == artifact.input_files
    other = make_artifact(tmp_path / "other", "toy_cnn", "fp32")
    with pytest.raises(UsageError, match=r"It has: toy_cnn_xnnpack_fp16\.pte\."):
        opened.side(other, here)


def test_a_folder_without_programs_or_with_two_of_a_name(tmp_path: Path) -> None:
    reference = parse_against(str(tmp_path))
    with pytest.raises(UsageError, match=r"holds no \.pte file"):
        open_reference(reference, "linux-aarch64")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.pte").write_bytes(b"")
    with pytest.raises(UsageError, match=r"two programs are called x\.pte"):
        open_reference(reference, "linux-aarch64")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Two programs of a name, a damaged one, and a runner."""
    cache = tmp_path / "cache"
    for name, content in (("old", b"old"), ("new", b"new"), ("gone", b"gone")):
        folder = cache / "exports" / f"toy_cnn_xnnpack_fp16-{name}"
        make_artifact(folder, "toy_cnn", "fp16", content)
    (cache / "exports" / "toy_cnn_xnnpack_fp16-gone" / "toy_cnn_xnnpack_fp16.pte").unlink()
    runner = cache / "runners" / "linux-aarch64-1.5.0-abc"
    runner.mkdir(parents=True)
    (runner / "sme2_runner").write_bytes(b"before")
    (runner / "runner.json").write_text('{"executorch": "1.5.0"}')
    damaged = cache / "runners" / "linux-aarch64-1.4.0-abc"
    damaged.mkdir()
    (damaged / "runner.json").write_text("{")
    return cache


def then(program: bytes, runtime: str) -> Baseline:
    """A baseline whose last session ran this."""
    old = baseline()
    last = replace(old.sessions[-1], program=hashlib.sha256(program).hexdigest(), runtime=runtime)
    return replace(old, sessions=(*old.sessions[:-1], last))


def test_the_program_and_the_runner_of_a_baseline_are_found(cache: Path, here: Sme2Runner) -> None:
    before = Sme2Runner(
        "wheel", "linux-aarch64", "1.5.0", cache / "runners/linux-aarch64-1.5.0-abc"
    )
    assert before.sha256 != here.sha256
    for runner in (here, before):
        found = kept_reference(then(b"old", runner.sha256), 1, here, cache=cache)
        assert found.runner == runner
        artifact = found.artifacts and found.artifacts["toy_cnn", "fp16"]
        assert artifact
        assert artifact.pte.read_bytes() == b"old"


def test_what_is_gone_or_not_said_decides_nothing(cache: Path, here: Sme2Runner) -> None:
    for program, runtime, threads in (
        (b"gone", here.sha256, 1),
        (b"never", here.sha256, 1),
        (b"old", "0" * 64, 1),
        (b"old", "", 1),
        (b"old", here.sha256, 4),
    ):
        assert kept_reference(then(program, runtime), threads, here, cache=cache) is None
    assert kept_reference(baseline(), 1, here, cache=cache) is None
