"""Damaging documents: bytes, lines, and the values inside JSON. Knows nothing of their meaning."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

DEEP = 100_000
_DEEP_MARK = "a very deep value"

_EXTREMES: Sequence[Any] = (
    None, True, 0, -1, 10**30, 10**400, 1e308, 5e-324, float("nan"), float("inf"), -0.5, "", "\0",
    "\ud800", "../../../../etc/passwd", "/dev/zero", "/dev/full", ".", "x" * 100_000, "12", [], {},
    [[]], {"": None}, [0] * 50_000, _DEEP_MARK,
)  # fmt: skip


def _extreme(chance: Random) -> Any:
    return chance.choice((*_EXTREMES, chance.getrandbits(64), chance.uniform(-1e6, 1e6)))


def damaged_json(chance: Random, text: str) -> bytes:
    """JSON text whose values were changed, or whose bytes were."""
    if chance.random() < 0.25:
        return damaged_bytes(chance, text.encode())
    document = json.loads(text)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        document = _changed(chance, document)
    deep = chance.choice(("[", '{"a":')) * DEEP
    return json.dumps(document).replace(json.dumps(_DEEP_MARK), deep, 1).encode()


def _changed(chance: Random, document: Any) -> Any:
    places = list(_places(document))
    if not places or chance.random() < 0.02:
        return _extreme(chance)
    document = copy.deepcopy(document)
    path = chance.choice(places)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    last = path[-1]
    action = chance.random()
    if action < 0.15:
        del parent[last]
    elif action < 0.25:
        # What stands somewhere else in the same document: right in form, wrong in place.
        other: Any = document
        for step in chance.choice(places):
            other = other[step]
        parent[last] = copy.deepcopy(other)
    elif action < 0.35 and isinstance(parent, dict):
        parent[chance.choice((f"{last}x", "", "\0", "on", "schema"))] = parent.pop(last)
    else:
        parent[last] = _extreme(chance)
    return document


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """The path of every value inside ``value``."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = value.keys()
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield (*path, key)
        yield from _places(value[key], (*path, key))


def damaged_bytes(chance: Random, data: bytes) -> bytes:
    """Bytes flipped, cut, dropped, repeated, put in from nowhere."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(changed) + 1)
        length = chance.choice((1, 2, 16, 256))
        action = chance.randrange(6)
        if action == 0:
            del changed[at:]
        elif action == 1:
            del changed[at : at + length]
        elif action == 2:
            changed[at:at] = changed[at : at + length] * chance.choice((1, 3))
        elif action == 3:
            changed[at:at] = chance.randbytes(length)
        elif at < len(changed):
            changed[at] = chance.choice((0, 0x0A, 0x22, 0xFF, changed[at] ^ 1, 0xC3))
    return bytes(changed)


_TOKEN = re.compile(rb"0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?|[A-Za-z_]{2,}|[\[\]{}()\"',=:.]")
_TOKENS = (
    b"0", b"-1", b"1e308", b"1e999", b"9" * 400, b"9" * 5000, b"0xffffffffffffffff", b"0x0",
    b"nan", b"inf", b"true", b'""', b'"\\u0000"', b"[]", b"{}", b"1979-05-27", b"'",
    b'"' + b"x" * 100_000 + b'"', b"[" * 50_000, b"\xff\xfe", b"", b"3%", b"300 MB", b"\n", b"\0",
    b"a." * 20_000 + b"a", b"{a=" * 20_000, b"(" * 10_000, b" " * 100_000,
)  # fmt: skip


def damaged_text(chance: Random, data: bytes) -> bytes:
    """Text whose words became others, or whose bytes did."""
    if chance.random() < 0.25:
        return damaged_bytes(chance, data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        word = chance.choice([*_TOKEN.finditer(data)])
        data = data[: word.start()] + chance.choice(_TOKENS) + data[word.end() :]
    return data
