from __future__ import annotations

from pathlib import Path

from pytest_sme2.targets.local import local_conditions


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_facts_of_the_system_are_read(tmp_path: Path) -> None:
    write(tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    write(tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2600000\n")
    for number, (kind, value) in enumerate(
        [("soc", "99"), ("cpu-0-0", "51000"), ("cpu-1-0", "54400")]
    ):
        zone = tmp_path / "class" / "thermal" / f"thermal_zone{number}"
        write(zone / "type", kind)
        write(zone / "temp", value)
    found = local_conditions(tmp_path)
    assert found.pop("kernel")
    assert found == {"governor": "powersave", "clock": "2600 MHz", "temperature": "54 C"}


def test_unknown_facts_of_the_system_are_omitted(tmp_path: Path) -> None:
    write(tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "<unknown>\n")
    assert set(local_conditions(tmp_path)) == {"kernel"}
