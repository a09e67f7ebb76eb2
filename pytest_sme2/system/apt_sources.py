"""The archives that the machine's own apt uses, read from its files in both of apt's formats.

Nothing here names a host: an address, its key and its options are those of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

SYSTEM_SOURCES = Path("/etc/apt")
# The component that Debian and Ubuntu keep their own programs in.
MAIN = "main"

_NO = frozenset(("no", "false", "without", "off", "disable", "0"))
# One-line options whose deb822 field has another name. The names of all others are the same.
_FIELD_NAMES = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
# What an Archive says in fields of its own, and what is not about fetching.
_OWN_FIELDS = frozenset(("types", "uris", "suites", "components", "enabled", "description"))


@dataclass(frozen=True)
class Archive:
    """One entry of apt's sources: where packages come from, and who must have signed them."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()
    """deb822 fields such as Signed-By, as they stand in the file."""

    def stanza(self) -> str:
        fields = [
            ("Types", "deb"),
            ("URIs", self.uri),
            ("Suites", " ".join(self.suites)),
            *([("Components", " ".join(self.components))] if self.components else []),
            *self.options,
        ]
        return "".join(f"{name}: {value}\n" for name, value in fields)


def parse_deb822(text: str) -> Iterator[Archive]:
    """The entries of a ``.sources`` file that are enabled and hold programs."""
    for fields in _paragraphs(text):

        def words(name: str, fields: dict[str, tuple[str, str]] = fields) -> tuple[str, ...]:
            return tuple(fields.get(name, ("", ""))[1].split())

        if "deb" not in words("types") or fields.get("enabled", ("", ""))[1].lower() in _NO:
            continue
        options = tuple(
            fields[name] for name in fields if name not in _OWN_FIELDS and not name.startswith("x-")
        )
        for uri in words("uris"):
            yield Archive(uri, words("suites"), words("components"), options)


def _paragraphs(text: str) -> Iterator[dict[str, tuple[str, str]]]:
    """The fields of each paragraph: name as it is written, and value, by name in small letters."""
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            found = {name.lower(): (name, _value(lines)) for name, lines in fields.items()}
            if found:
                yield found
            fields, last = {}, []
        elif line[0] in " \t":
            last.append(line)
        else:
            name, colon, value = line.partition(":")
            last = []
            if colon and re.fullmatch(r"[\w-]+", name):
                fields[name] = last
                last.append(value)


def _value(lines: Sequence[str]) -> str:
    return "\n ".join(line.strip() for line in lines).strip()


def parse_one_line(text: str) -> Iterator[Archive]:
    """The ``deb`` lines of a ``.list`` file."""
    for line in text.splitlines():
        kind, _, rest = line.partition("#")[0].strip().replace("\t", " ").partition(" ")
        options, rest = "", rest.strip()
        if rest.startswith("["):
            options, _, rest = rest[1:].partition("]")
        words = rest.split()
        if kind != "deb" or len(words) < 2 or words[0].startswith("cdrom:"):
            continue
        named = {}
        for option in options.split():
            name, equals, value = option.partition("=")
            name = name.rstrip("+-").lower()
            if equals and re.fullmatch(r"[\w-]+", name):
                named[name] = (_FIELD_NAMES.get(name, name), value.replace(",", " ").strip())
        yield Archive(words[0], (words[1],), tuple(words[2:]), tuple(named.values()))


def system_archives(folder: Path = SYSTEM_SOURCES) -> tuple[Archive, ...]:
    """Every enabled entry of the machine's sources; empty where this system has no apt."""
    parts = folder / "sources.list.d"
    files = [folder / "sources.list", *sorted([*parts.glob("*.sources"), *parts.glob("*.list")])]
    found: list[Archive] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found += parse_deb822(text) if file.suffix == ".sources" else parse_one_line(text)
    return tuple(found)


def with_suites(
    archives: Iterable[Archive], suites: Sequence[str], components: Sequence[str] = (MAIN,)
) -> tuple[Archive, ...]:
    """The same archives, asked for other suites: apt finds out which of them have these.

    Only archives with a ``main`` component are asked: the distribution's own programs are there.
    """
    asked = (
        replace(archive, uri=archive.uri.rstrip("/"), suites=tuple(suites), components=together)
        for archive in archives
        if MAIN in archive.components
        for together in [tuple(dict.fromkeys((*components, *sorted(archive.components))))]
    )
    # One address often has several entries, for updates and backports.
    unique: dict[tuple[object, ...], Archive] = {}
    for archive in asked:
        unique.setdefault((archive.uri, archive.options), archive)
    return tuple(unique.values())
