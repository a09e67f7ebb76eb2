"""SME2 as a phone shows it: vector length, and why it is missing."""

from __future__ import annotations

import pytest

from pytest_sme2.errors import Sme2Warning
from pytest_sme2.fake_phone.lab import EMULATOR_ON_PHONE, FakeLab
from pytest_sme2.targets.phone.target import LAUNCHER_PROPERTY
from tests.support.phones import MakeTarget

CPUINFO = "data/system/fake/cpuinfo"


def test_the_vector_length_is_in_the_fingerprint(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    target = make_target(sme2_lab.add())
    assert dict(target.fingerprint().facts)["sme_vector_bits"] == "512"
    assert target.state()["sme_vector_bits"] == "512"
    assert target.events == []


def test_a_default_below_what_the_chip_can_do_is_told(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    # This CPU has every length, and Linux's default is 256 bits.
    properties = {LAUNCHER_PROPERTY: f"{EMULATOR_ON_PHONE} -cpu max"}
    phone = sme2_lab.add(properties=properties)
    said = "runs with streaming vectors of 256 bits, and its chip can do 2048"
    with pytest.warns(Sme2Warning, match=said):
        target = make_target(phone)
    assert dict(target.fingerprint().facts)["sme_vector_bits"] == "256"
    assert target.state()["sme_vector_bits"] == "256 of 2048"
    assert said in target.state()["events"]


def test_a_phone_without_sme_has_no_vector_length(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    target = make_target(sme2_lab.add(sme2=False))
    assert "sme_vector_bits" not in dict(target.fingerprint().facts)
    assert target.vector is None


def test_a_program_that_cannot_run_leaves_it_unknown(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    properties = {LAUNCHER_PROPERTY: "/no/such/emulator"}
    target = make_target(sme2_lab.add(properties=properties))
    assert dict(target.fingerprint().facts)["sme_vector_bits"] == "unknown"


def test_sme_without_sme2_is_named(sme2_lab: FakeLab, make_target: MakeTarget) -> None:
    phone = sme2_lab.add(sme2=False)
    phone.write(CPUINFO, phone.read(CPUINFO).replace(" bf16", " bf16 sme"))
    able = make_target(phone).capabilities()
    assert (able.sme2, able.sme1, able.switches) == (False, True, True)
    assert "its SoC (Fake FakeSoC) has SME, but not SME2. Kernel " in able.reason


def test_cores_with_sme2_under_a_kernel_without_it_are_told_apart(
    sme2_lab: FakeLab, make_target: MakeTarget
) -> None:
    phone = sme2_lab.add(sme2=False)
    phone.write(CPUINFO, phone.read(CPUINFO).replace("0xd8e", "0xd8c"))
    reason = make_target(phone).capabilities().reason
    assert "has cores with SME2 (C1-Ultra), but its kernel does not show SME2" in reason
    assert "x C1-Ultra; flags fp asimd " in reason
