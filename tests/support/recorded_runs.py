"""Recorded runs of real models on the emulator, so that tests can judge them without exporting.

``python -m tests.support.recorded_runs MODEL-VARIANT …`` records runs anew, and without a name all
of them. A recorded run is the case of a run directory, packed: ETDump, shapes, origins of
operators, kernels, counted cost, and how close the outputs came to the eager model's.
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.variant import parse_variants
from pytest_sme2.profile.beside import ORIGINS, beside
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.evidence import Pair
from pytest_sme2.results.run import Arm
from pytest_sme2.session.case_result import assemble
from pytest_sme2.session.cases import Case
from pytest_sme2.session.run_directory import METRICS, SCHEMA, CaseRecord, read_record, write_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "runs"
MODELS = ROOT / "models"
ARCHITECTURES = ROOT / "benchmarks" / "zoo"
# The same bytes whenever a run is recorded.
_DATE = (1980, 1, 1, 0, 0, 0)
_PACKAGES = re.compile(r'"file":"[^"]*/site-packages/')

IMAGES = ("efficientnet", "convnext", "detector")
STEPS = ("lstm", "gru")
ENCODERS = ("vit", "whisper_encoder")
WORDS = ("bert", "gpt2", "qwen2")
# What is really wrong with these was found by hand.
TEN = (*IMAGES, *STEPS, *ENCODERS, *WORDS)
TWELVE = (*TEN, "mobilenet_v4", "lraspp")
ARCHITECTURE_RUNS = (
    *(f"{model}-{variant}" for model in TWELVE for variant in ("fp16", "int8")),
    *(f"{model}-int8_dynamic" for model in (*ENCODERS, *WORDS)),
    *(f"{model}-int4" for model in WORDS),
)


def recorded() -> list[str]:
    """The names of all recorded runs."""
    return sorted(path.stem for path in FOLDER.glob("*.zip"))


def unpack(name: str, folder: Path) -> Path:
    """The run as a case of a run directory."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    return folder / name


def measured(name: str) -> CaseResult:
    """What was measured, with its profile."""
    with tempfile.TemporaryDirectory() as folder:
        return read_record(unpack(name, Path(folder))).measured


def main(names: list[str]) -> int:
    failed = 0
    for case, session in cases(names):
        try:
            _record(session, case)
        except Sme2Error as error:
            failed += 1
            sys.stderr.write(f"{case.id}: {error}\n")
    return 1 if failed else 0


def cases(names: list[str]) -> Iterator[tuple[Case, Session]]:
    """The cases of these names; of all shipped models and all architectures without one."""
    for folder in (MODELS, ARCHITECTURES):
        wanted = [name for name in names or ARCHITECTURE_RUNS if "-" in name]
        with tempfile.TemporaryDirectory() as out:
            session = Session(
                Settings(
                    device="emulated",
                    model_folders=(folder,),
                    variants=parse_variants(
                        ",".join(dict.fromkeys(name.partition("-")[2] for name in wanted))
                    )
                    if names or folder == ARCHITECTURES
                    else (),
                    out=Path(out),
                ),
                print,
            )
            for case in session.cases():
                if case.id in names or (not names and (folder == MODELS or case.id in wanted)):
                    yield case, session
            session.close()


def assembled(session: Session, case: Case, *, counted: bool) -> CaseResult:
    """One run with SME2 on: its profile, its outputs, and its cost where it is asked for."""
    pair = Pair(
        artifact=session.artifact(case),
        target=session.bench.target.name,
        on=(),
        off=(),
        traced={Arm.ON: session.traced(case, Arm.ON)},
        evidence=None,
        censuses={Arm.ON: session.trace(case, Arm.ON).census} if counted else {},
    )
    return assemble(
        pair,
        session.bench.target.fingerprint(),
        session="recorded",
        recorded="",
        runtime=session.bench.runner.executorch,
        profiles={Arm.ON: session.profile(case, Arm.ON)},
        costs={Arm.ON: session.cost(case, Arm.ON)} if counted else {},
    )


def _record(session: Session, case: Case) -> None:
    found = assembled(session, case, counted=True)
    run = session.traced(case, Arm.ON)
    assert run.etdump is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [run.etdump, *run.etdump.parent.glob("run.*.json")]
        for file in files:
            (folder / file.name).write_bytes(file.read_bytes())
        origins = beside(folder / run.etdump.name, ORIGINS)
        if origins.is_file():
            # Paths of this machine say nothing to others.
            text = _PACKAGES.sub('"file":"/site-packages/', origins.read_text("utf-8"))
            origins.write_text(text.replace(f"{ROOT}/", ""), "utf-8")
        kept = replace(found, program="")
        record = CaseRecord(SCHEMA, case.id, kept, None, (), {Arm.ON: run.etdump.name})
        write_record(folder, record)
        assert (folder / METRICS).is_file()
        FOLDER.mkdir(exist_ok=True)
        with zipfile.ZipFile(
            FOLDER / f"{case.id}.zip", "w", zipfile.ZIP_DEFLATED, True, 9
        ) as archive:
            for file in sorted(folder.iterdir()):
                archive.writestr(
                    zipfile.ZipInfo(file.name, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED, 9
                )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
