"""JUnit's XML from the tests of one or several runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from pytest_sme2.session.shard import RanTest

# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {"failed": "failure", "error": "error", "skipped": "skipped"}


def junit_text(tests: Mapping[str, RanTest]) -> str:
    """The document; the tests of a run are one suite."""
    outcomes = [test.outcome for test in tests.values()]
    suite = ElementTree.Element(
        "testsuite",
        name="pytest",
        tests=str(len(tests)),
        failures=str(outcomes.count("failed")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
        time=f"{sum(test.seconds for test in tests.values()):.3f}",
    )
    for node, test in tests.items():
        path, _, name = node.partition("::")
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_text(path.removesuffix(".py").replace("/", ".")),
            name=_text(name or path),
            time=f"{test.seconds:.3f}",
        )
        if test.outcome in _ELEMENTS:
            message = _text(test.message)
            first = message.strip().partition("\n")[0]
            ElementTree.SubElement(case, _ELEMENTS[test.outcome], message=first).text = message
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites, " ")
    declaration = '<?xml version="1.0" encoding="utf-8"?>\n'
    return declaration + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
