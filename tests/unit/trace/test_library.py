from __future__ import annotations

import contextlib
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.errors import LibraryError, Sme2Error, UsageError
from pytest_sme2.trace.instructions import is_sme2_only, is_table_lookup
from pytest_sme2.trace.library import (
    Instructions,
    Library,
    read_libraries,
    read_package,
)
from tests.support.library_writer import (
    APPLE_QUESTION,
    ASKING,
    FMOPA,
    KERNEL,
    MULTI_VECTOR,
    SME2_KERNEL,
    SME_KERNEL,
    elf,
    fat,
    macho,
    static_library,
)


def read(data: bytes) -> Library:
    (library,) = read_libraries(data, "a library")
    return library


def test_kernels_have_names_and_instructions(tmp_path: Path) -> None:
    found = Instructions(
        smstart=1,
        sme2_only=2,
        work={"fp32 outer product": 2, "int8 outer product": 1, "look-up": 1, "multiply-add": 1},
    )
    for data in (elf(tmp_path, SME2_KERNEL, [KERNEL]), macho(SME2_KERNEL, [KERNEL])):
        library = read(data)
        assert (library.architecture, library.kleidiai, library.xnnpack) == ("arm64", True, False)
        assert library.sme2_kernels == (KERNEL,)
        assert library.instructions == found
        assert not library.asks_for_sme2


def test_sme2_is_told_from_sme() -> None:
    # As LLVM 16 assembles them: luti2; luti4 to two and to four registers.
    lookups = {0xC0CCC020, 0xC08AC040, 0xC08A9040}
    # ldr zt0; fmla za.s[w8, 0, vgx2]; ld1w {z0.s-z3.s}.
    others = {0xE11F8000, 0xC1A21800, 0xA040C000}
    # zero {za}; addha; mova; ldr za[w12, 0]; fmopa.
    of_sme = {0xC00800FF, 0xC0902000, 0xC0820000, 0xE1000000, 0x80812000}
    every = lookups | others | of_sme
    assert {word for word in every if is_table_lookup(word)} == lookups
    assert {word for word in every if is_sme2_only(word)} == lookups | others


def test_code_of_others_is_not_that_of_kleidiai(tmp_path: Path) -> None:
    assert read(elf(tmp_path, SME2_KERNEL)).sme2
    assert read(elf(tmp_path, SME2_KERNEL, [KERNEL])).sme2
    assert not read(elf(tmp_path, SME2_KERNEL, ["kai_run_matmul_neon_mla"])).sme2
    assert not read(elf(tmp_path, SME_KERNEL, [KERNEL])).sme2


def test_words_outside_of_streaming_mode_are_constants(tmp_path: Path) -> None:
    library = read(elf(tmp_path, (MULTI_VECTOR, FMOPA, *SME_KERNEL, MULTI_VECTOR)))
    assert library.instructions == Instructions(1, 0, {"fp32 outer product": 1})


@pytest.mark.parametrize(
    ("words", "text", "asks"),
    [
        (ASKING, b"getauxval\0", True),
        # As clang has it: tbnz #37, tbnz #38.
        ((0x52800340, 0xB72804C1, 0xB7300501), b"getauxval\0", True),
        # ubfx x8, x8, #37, #1; strb
        ((0x52800340, 0xD3659508, 0x39001A68), b"getauxval\0", True),
        (ASKING, b"", False),
        (ASKING[1:], b"getauxval\0", False),
        # A compiler's own test: and x5, x7, #1 << 37; csel.
        ((0xD2800340, 0x925B00E5, 0x9A8201EF), b"getauxval\0", False),
        # Any other test of bit 37.
        ((0xD2800340, 0xB6280E00, 0xF25C001F, 0x121D7820), b"getauxval\0", False),
    ],
)
def test_who_asks_linux_for_sme2(
    words: tuple[int, ...], text: bytes, asks: bool, tmp_path: Path
) -> None:
    assert read(elf(tmp_path, words, text=text)).asks_for_sme2 is asks


def test_who_asks_an_apple_system_for_sme2() -> None:
    assert read(macho(text=APPLE_QUESTION)).asks_for_sme2
    assert not read(macho(ASKING, text=b"getauxval\0hw.optional.arm.FEAT_SME\0")).asks_for_sme2


def test_a_stripped_library_is_known_by_its_texts(tmp_path: Path) -> None:
    file = b"/kai/ukernels/kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa.c\0"
    texts = b"Convolution (NHWC, F32)\0/sys/devices/system/cpu/kernel_max\0" + file
    library = read(elf(tmp_path, text=texts))
    assert library.xnnpack
    assert library.kleidiai
    assert library.cpuinfo
    assert library.sme2_kernels == (KERNEL,)
    assert read(elf(tmp_path, text=b"ArmKleidiAI\0")).kleidiai


def test_an_answer_of_another_library_is_known() -> None:
    library = read(macho(names=["xnn_initialize"], imported=["cpuinfo_isa"]))
    assert library.xnnpack
    assert library.uses_other_cpuinfo
    assert not library.cpuinfo


def test_every_system_and_slice_is_one_library(tmp_path: Path) -> None:
    data = fat(macho(platform=2), static_library(macho(platform=7), b"no code"))
    assert [library.platform for library in read_libraries(data, "fat")] == ["iOS", "iOS simulator"]
    android = elf(tmp_path, text=b"\x01\0\0\0Android\0")
    assert read(android).platform == "Android"
    assert read(android).alignment == 4096
    old = bytearray(android)
    old[4], old[18] = 1, 40
    assert read(bytes(old)).architecture == "arm (32 bit)"


@pytest.mark.parametrize("long_name", [b"", b"a_long_name.o\0\0\0"])
def test_the_objects_of_a_static_library_are_one_library(tmp_path: Path, long_name: bytes) -> None:
    objects = [
        elf(tmp_path, SME2_KERNEL, [KERNEL]),
        elf(tmp_path, ASKING[:1], text=b"getauxval\0"),
        elf(tmp_path, ASKING[1:], ["cpuinfo_isa"], text=b"odd"),
    ]
    library = read(static_library(*objects, long_name=long_name))
    assert library.instructions.work["fp32 outer product"] == 2
    assert library.asks_for_sme2
    assert library.cpuinfo


@pytest.mark.parametrize("kind", ["elf", "macho", "fat", "static"])
def test_whatever_is_cut_off_is_one_error(kind: str, tmp_path: Path) -> None:
    whole = {
        "elf": lambda: elf(tmp_path, SME2_KERNEL, [KERNEL]),
        "macho": lambda: macho(SME2_KERNEL, [KERNEL]),
        "fat": lambda: fat(macho(SME2_KERNEL), macho(SME2_KERNEL)),
        "static": lambda: static_library(macho(), macho(SME2_KERNEL)),
    }[kind]()
    for size in {*range(8, min(len(whole), 1200)), *range(1200, len(whole), 101)}:
        # A static library may end between two members, and ELF behind its last table.
        with contextlib.suppress(Sme2Error):
            read_libraries(whole[:size], "cut")
    with pytest.raises(Sme2Error, match=r"truncated or damaged .* Build or fetch it again"):
        read_libraries(whole[: len(whole) * 2 // 3], "cut")


def put(layout: str, place: int, value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(layout, data, place, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("<I", 16, 4_000_000_000), "4000000000 load commands"),
        (put("<I", 32 + 64, 4_000_000_000), "4000000000 sections in 152 bytes"),
        (put("<Q", 32 + 72 + 40, 1 << 60), "code beyond its end"),
        (put("<I", 184 + 12, 4_000_000_000), "too many symbols"),
        (put("<I", 184 + 16, 4_000_000_000), "a name beyond its end"),
    ],
)
def test_huge_counts_are_one_error(change: Callable[[bytearray], None], message: str) -> None:
    data = bytearray(macho(SME2_KERNEL, [KERNEL]))
    change(data)
    with pytest.raises(Sme2Error, match=message):
        read_libraries(bytes(data), "hostile")


def test_a_file_has_no_more_code_than_bytes() -> None:
    part = macho(SME2_KERNEL)
    data = bytearray(fat(part, part))
    struct.pack_into(">2I", data, 8 + 8, 0, len(data))
    with pytest.raises(Sme2Error, match="more code than bytes"):
        read_libraries(bytes(data), "hostile")


LIBRARY = macho(SME2_KERNEL, [KERNEL])
METADATA = b"Metadata-Version: 2.4\nName: executorch\nVersion: 1.5.1\n"


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def write(folder: Path, files: dict[str, bytes], name: str = "app.apk") -> Path:
    path = folder / name
    path.write_bytes(zipped(files))
    return path


def names(path: Path) -> list[str]:
    return [library.name for library in read_package(path).libraries]


def test_damage_names_the_archive_and_the_library_in_it(tmp_path: Path) -> None:
    path = write(tmp_path, {"lib/libexecutorch.so": LIBRARY[:100]})
    with pytest.raises(LibraryError, match=r"^app\.apk: lib/libexecutorch\.so is a truncated"):
        read_package(path)


def test_libraries_in_a_zip_and_in_a_zip_in_it(tmp_path: Path) -> None:
    inner = zipped({"jni/arm64-v8a/libexecutorch.so": LIBRARY})
    path = write(
        tmp_path, {"a.so": LIBRARY, "b.aar": inner, "c.bin": inner, "text": b"PK", "d": b""}
    )
    assert names(path) == ["a.so", "b.aar!/jni/arm64-v8a/libexecutorch.so"]


def test_a_folder_is_read_without_its_links(tmp_path: Path) -> None:
    folder = tmp_path / "App.framework"
    (folder / "Versions" / "A").mkdir(parents=True)
    (folder / "Versions" / "A" / "App").write_bytes(LIBRARY)
    (folder / "App").symlink_to("Versions/A/App")
    (folder / "Versions" / "Current").symlink_to("A")
    os.mkfifo(folder / "pipe")
    (folder / "nested.aar").write_bytes(zipped({"x.so": LIBRARY}))
    assert names(folder) == ["nested.aar!/x.so", "Versions/A/App"]


def test_the_version_of_executorch_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"executorch-1.5.1.dist-info/METADATA": METADATA, "a.so": LIBRARY})
    assert read_package(path).executorch == "1.5.1"
    assert (
        read_package(write(tmp_path, {"torch-2.dist-info/METADATA": METADATA})).executorch is None
    )


def test_a_damaged_zip_is_one_error(tmp_path: Path) -> None:
    whole = zipped({"a.so": LIBRARY}, zipfile.ZIP_STORED)
    path = tmp_path / "app.apk"
    changed = bytearray(whole)
    changed[40] ^= 1
    locked = bytearray(whole)
    start = whole.index(b"PK\x01\x02")
    locked[6], locked[start + 8] = 1, 1
    for data in (
        whole[:-30],
        whole[: len(whole) // 2],
        bytes(changed),
        bytes(locked),
        b"PK\x03\x04",
    ):
        path.write_bytes(data)
        with pytest.raises(LibraryError, match=r"damaged or locked zip.*Fetch it again"):
            read_package(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_package(tmp_path / "missing.so")
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(UsageError, match="not a plain file"):
        read_package(tmp_path / "pipe.so")
