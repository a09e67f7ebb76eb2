"""The workflows that post a comment: their measuring command and their posting step are run."""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_sme2.report.versus_baseline import comment_json
from pytest_sme2.results.case import Check
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.options import OPTIONS
from pytest_sme2.session.run_directory import read_record
from tests.support.records import stored_dumps, write_case

CI = Path(__file__).parents[2] / "docs" / "ci"
POST = CI / "post_comment.py"
post_comment: Any = SimpleNamespace(**runpy.run_path(str(POST)))
MARK = post_comment.MARK
EMPTY: Any = json.loads(comment_json([]))
COUNTS: Any = {"failed": 0, "warned": 0, "passed": 2, "not checked": 0}

ME = {"user": {"login": "github-actions[bot]"}, "author": {"id": "me"}}
THEM = {"user": {"login": "mallory"}, "author": {"id": "them"}}
OTHERS = ({"id": 3, "body": "Nice.", **THEM}, {"id": 4, "body": f"{MARK}\nMine now.", **THEM})


class Forge(BaseHTTPRequestHandler):
    """As much of the two services as a comment needs."""

    def answer(self) -> None:
        server: Any = self.server
        path = urlsplit(self.path)
        first = "page=1" in path.query.split("&")
        length = int(self.headers.get("Content-Length") or 0)
        body: Any = json.loads(self.rfile.read(length)) if length else None
        token = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN")
        server.calls.append((self.command, path.path, token))
        reply: Any = {}
        if path.path.endswith("/artifacts/comment.json"):
            reply = None
        elif path.path == "/user":
            reply = {"id": "me"}
        elif path.path.endswith("/jobs"):
            made = [{"id": 1, "name": "other"}, {"id": 44, "name": "performance measure"}]
            reply = made if first else []
        elif self.command == "GET":
            reply = server.comments if first else []
        elif self.command == "POST":
            server.comments.append({"id": 7, "body": body["body"], **ME})
        else:
            (entry,) = [e for e in server.comments if path.path.endswith(f"/{e['id']}")]
            entry["body"] = body["body"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(server.made if reply is None else json.dumps(reply).encode())

    do_GET = do_POST = do_PATCH = do_PUT = answer  # noqa: N815

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def forge() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Forge)
    server.calls = []
    server.comments = [dict(entry) for entry in OTHERS]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def environment(kind: str, forge: Any) -> dict[str, str]:
    root = f"http://127.0.0.1:{forge.server_port}"
    if kind == "github":
        return {
            "GH_TOKEN": "secret",
            "COMMENTS": f"{root}/repos/o/n/issues",
            "NUMBER": "5",
        }
    return {
        "SME2_COMMENT_TOKEN": "secret",
        "CI_API_V4_URL": root,
        "CI_PROJECT_ID": "9",
        "SME2_MERGE_REQUEST": "5",
        "SME2_PIPELINE": "21",
    }


def post(kind: str, forge: Any, data: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    comment = folder / "comment.json"
    comment.write_bytes(data)
    forge.made = data
    return subprocess.run(
        [sys.executable, str(POST), *([str(comment)] if kind == "github" else [])],
        env={"PATH": os.environ["PATH"], **environment(kind, forge)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("kind", "token", "change"),
    [
        ("github", "Bearer secret", ("PATCH", "/repos/o/n/issues/comments/7")),
        ("gitlab", "secret", ("PUT", "/projects/9/merge_requests/5/notes/7")),
    ],
)
def test_a_comment_is_posted_and_replaced_by_the_next(
    kind: str, token: str, change: tuple[str, str], forge: Any, tmp_path: Path
) -> None:
    for found in (EMPTY, {**EMPTY, "counts": COUNTS}):
        done = post(kind, forge, json.dumps(found).encode(), tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert [entry["body"] for entry in forge.comments[2:]] == [post_comment.rendered(found)]
    assert forge.comments[2]["body"].startswith(f"{MARK}\n**SME2: ✅ 2 passed**\n")
    # Also the one that begins with our mark and is somebody else's.
    assert forge.comments[:2] == list(OTHERS)
    assert {call[2] for call in forge.calls} == {token}
    assert forge.calls[-1][:2] == change


def document(words: Sequence[str]) -> Any:
    """What a branch could write: each field holds one of these words."""
    given = itertools.cycle(words)
    row = ("case", *post_comment.COLUMNS, "verdict", "state")
    failure = ("case", "check", "place", "message")
    return {
        **EMPTY,
        "counts": {**COUNTS, "failed": 1},
        "worst": {name: next(given) for name in ("effect", "place", "case")},
        "rows": [{name: next(given) for name in row} for _ in range(2)],
        "failures": [{name: next(given) for name in failure}],
        "devices": [next(given)],
    }


def parts(text: str) -> list[tuple[str, str]]:
    """Kind and text of all that CommonMark makes of it; what a code span holds is left out."""
    return [
        (part.type, "" if part.type == "code_inline" else part.content)
        for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
        for part in (token.children or [token])
    ]


def harmless(word: str) -> str:
    """A word that is shown in the same way, and has nothing in it that could be alive."""
    shown = post_comment.span(word) == "-" or word == "-" or post_comment.FIGURE.fullmatch(word)
    return word if shown else "x y"


ALIVE = [
    "@you", "&commat;you", "&#64;you", "https://evil.example", "www.evil.example", "a@b.example",
    "[here](https://x)", "![x](https://x/y.png)", "[a]: x", "[[wiki]]", "<img src=x>", "</details>",
    "<!--", "-->", "#12", "!7", "~label", "$`x`$", "/merge", "\n/merge\n", "\r/approve",
    "\n\n~~~\n", "```", "\n```\n@you", "`", "``", "`@you`", "\\`", "|", "\\|", "\n\n# Title\n\n",
    "\u202e@you", "\u2028/merge", "\x1b[31m", "\x00", "\ud800", "**", "\\", ":tada:", "x" * 5000,
    "1.5 ms", " ", "",
]  # fmt: skip
WORDS = st.lists(st.sampled_from(ALIVE) | st.text(), max_size=4).map("".join)


@settings(max_examples=100, deadline=None)
@given(words=st.lists(WORDS, min_size=1, max_size=30))
@example(words=ALIVE)
@example(words=[f"x {each} x" for each in ALIVE])
def test_no_word_of_a_branch_is_markdown(words: list[str]) -> None:
    text = post_comment.rendered(document(words))
    assert parts(text) == parts(post_comment.rendered(document([*map(harmless, words)])))
    # GitLab's commands are lines, and need no Markdown around them.
    assert not re.search(r"(?m:^)\s*/", text)
    assert all(each.isprintable() for each in text.replace("\n", ""))
    assert all(len(line) < 10_000 for line in text.splitlines())


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b" " * 60_001, "60000 is the most"),
        (b"", "is not what"),
        (b"\xff", "is not what"),
        (b"[" * 50_000, "is not what"),
        (b"[]", "is not what"),
        (json.dumps({**EMPTY, "schema": 2}).encode(), "is not what"),
        (json.dumps({**EMPTY, "counts": {**COUNTS, "failed": "@you"}}).encode(), "is not what"),
        (json.dumps({**EMPTY, "counts": {**COUNTS, "failed": True}}).encode(), "is not what"),
        (json.dumps({**EMPTY, "devices": [["@you"], 1]}).encode(), "is not what"),
        (json.dumps({**EMPTY, "rows": [{}]}).encode(), "is not what"),
        (json.dumps({**EMPTY, "failures": "@you"}).encode(), "is not what"),
    ],
)
def test_what_is_not_of_ours_is_not_posted(
    kind: str, data: bytes, said: str, forge: Any, tmp_path: Path
) -> None:
    done = post(kind, forge, data, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert forge.comments == list(OTHERS)


def test_a_comment_can_be_looked_at_without_a_service(tmp_path: Path) -> None:
    check = Check("see @you", Outcome.REGRESSED, "https://evil.example")
    case = write_case(tmp_path / "run", "toy", "fp16", stored_dumps("toy_fp16"), checks=(check,))
    (tmp_path / "comment.json").write_text(comment_json([read_record(case)]), "utf-8")
    words = [sys.executable, str(POST), str(tmp_path / "comment.json")]
    printed = subprocess.run(words, env={}, capture_output=True, check=True).stdout.decode()
    assert "| `toy-fp16` | `see @you` | - | - | - | - | - | ❌ `REGRESSED` |" in printed
    assert "- `toy-fp16` `see @you` `https://evil.example`" in printed


def jobs(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text())


def test_no_job_has_both_a_token_and_code_of_the_branch() -> None:
    """Neither the environment nor the default permissions give the one that measures a token."""
    github = jobs("comment-github.yml")
    assert github["permissions"] == {}
    measure, post = (github["jobs"][name] for name in ("measure", "post"))
    assert measure["permissions"] == {"contents": "read"}
    assert "token" not in json.dumps(measure).lower()
    assert all(
        step["with"]["persist-credentials"] is False
        for job in (measure, post)
        for step in job["steps"]
        if "checkout" in step.get("uses", "")
    )
    assert post["steps"][0]["with"]["ref"] == "${{ github.event.repository.default_branch }}"
    assert [step["run"] for step in post["steps"] if "run" in step] == [
        'python3 .github/workflows/post_comment.py "$RUNNER_TEMP/comment/comment.json"'
    ]
    gitlab = jobs("comment-gitlab.yml")
    assert gitlab["performance comment"]["trigger"]["branch"] == "$CI_DEFAULT_BRANCH"
    assert "script" not in gitlab["performance comment"]
    # A fork gets no token that may write.
    text = (CI / "comment-github.yml").read_text()
    assert "pull_request_target" not in text
    assert "github.event.pull_request.head.repo.full_name == github.repository" in text
    (rule,) = gitlab["performance post"]["rules"]
    assert "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH" in rule["if"]


@pytest.mark.parametrize("name", ["comment-github.yml", "comment-gitlab.yml"])
def test_the_command_that_measures_is_one_that_pytest_takes(name: str) -> None:
    text = (CI / name).read_text()
    (command,) = re.findall(r"pytest --pyargs .*", text)
    words = shlex.split(command)
    assert "pytest_sme2.suite" in words
    flags = {option.flag for option in OPTIONS}
    given = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--pyargs"}
    assert given <= flags
    (written,) = (word.partition("=")[2] for word in words if word.startswith("--sme2-report"))
    assert (
        f"{written}\n" in text.partition("sme2-report=")[2].partition("\n")[2]
        or f"[{written}]" in text
    )
    # The comment is posted also when a test failed.
    assert text.count("always") >= 2
