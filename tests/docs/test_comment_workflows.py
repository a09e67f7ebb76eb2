"""The workflows that post a comment: their measuring command and their posting step are run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from pytest_sme2.report.comment import MARK, comment_text
from pytest_sme2.results import Check, Outcome
from pytest_sme2.session.options import OPTIONS
from pytest_sme2.session.run_directory import read_record
from tests.support.records import stored_dumps, write_case

CI = Path(__file__).parents[2] / "docs" / "ci"
POST = CI / "post_comment.py"
TEXT = comment_text([])


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
        if path.path.endswith("/artifacts/comment.md"):
            reply = None
        elif path.path == "/user":
            reply = {"id": "me"}
        elif path.path.endswith("/jobs"):
            made = [{"id": 1, "name": "other"}, {"id": 44, "name": "performance measure"}]
            reply = made if first else []
        elif path.path.endswith("/files"):
            reply = [{"filename": "models/net/model.py", "patch": PATCH}] if first else []
        elif path.path.endswith("/pulls/5/comments"):
            if body:
                server.suggested.append(body)
            reply = server.suggested if self.command == "GET" and first else []
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
    server.calls, server.suggested = [], []
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
            "HEAD": "abc",
        }
    return {
        "SME2_COMMENT_TOKEN": "secret",
        "CI_API_V4_URL": root,
        "CI_PROJECT_ID": "9",
        "SME2_MERGE_REQUEST": "5",
        "SME2_PIPELINE": "21",
    }


def post(kind: str, forge: Any, data: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    comment = folder / "comment.md"
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
    for text in (TEXT, f"{TEXT}\nAgain.\n"):
        done = post(kind, forge, text.encode(), tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert [entry["body"] for entry in forge.comments[2:]] == [text]
    # Also the one that begins with our mark and is somebody else's.
    assert forge.comments[:2] == list(OTHERS)
    assert {call[2] for call in forge.calls} == {token}
    assert forge.calls[-1][:2] == change


HOSTILE = (
    "Ask @everyone, see https://evil.example or www.evil.example, [here](x), [a]: x, [b][c], fixes "
    "#12, !7, <img src=x>, <b>\n/merge\n  /assign @you\njavascript:x \x1b[31m\n"
)


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_hostile_comment_is_only_text(kind: str, forge: Any, tmp_path: Path) -> None:
    assert post(kind, forge, f"{TEXT}{HOSTILE}".encode() + b"\xff", tmp_path).returncode == 0
    text = forge.comments[2]["body"]
    alive = (
        r"@\w|://|www\.|javascript:|\][(\[:]|[#!]\d|<(?!!--|/?details|/?summary)|(?m:^\s*/)|\x1b"
    )
    assert not re.search(alive, text)
    assert text.replace("\u200b", "").startswith(f"{TEXT}Ask @everyone, see https://evil.example")
    # Once more changes nothing: what is plain already stays.
    assert post(kind, forge, text.encode(), tmp_path).returncode == 0
    assert forge.comments[2]["body"] == text


PATCH = """\
@@ -7,3 +7,4 @@ class Net:
     def f(self, x):
-        x = x + 1
+        x = F.silu(x)
+        x = x + 2
         return x"""
DIFF = """\
--- a/models/net/model.py
+++ b/models/net/model.py
@@ -{row},3 +{row},3 @@
     @torch.compile  # https://x.example [a](b) <b>
-        x = F.silu(x)
+        x = x * torch.sigmoid(x)
         return x
"""


LONGER = DIFF.replace("         return x", "+        y = x\n         return x")


@pytest.mark.parametrize(
    ("diff", "offered"),
    [(DIFF.format(row=7), True), (DIFF.format(row=6), False), (LONGER.format(row=7), False)],
    ids=["its line", "another line", "lines that it adds"],
)
def test_a_fix_is_offered_where_the_pull_request_has_the_line(
    diff: str, offered: bool, forge: Any, tmp_path: Path
) -> None:
    block = f"```diff\n{diff}```\n"
    for _ in range(2):
        assert post("github", forge, f"{TEXT}\n{block}".encode(), tmp_path).returncode == 0
    # Code is as it was: it can be copied.
    assert block in forge.comments[2]["body"]
    body = f"{MARK}\n```suggestion\n        x = x * torch.sigmoid(x)\n```"
    place = {"path": "models/net/model.py", "line": 8, "side": "RIGHT", "commit_id": "abc"}
    assert forge.suggested == ([{"body": body, **place}] if offered else [])


@pytest.mark.parametrize(
    "block",
    ["```diff\n  ```\n@you\n```\n", "```diff\n````\n@you\n```\n", "<b>\n```diff\n@you\n```\n"],
)
def test_a_block_that_ends_early_hides_nothing(block: str, forge: Any, tmp_path: Path) -> None:
    assert post("github", forge, f"{TEXT}\n{block}".encode(), tmp_path).returncode == 0
    assert "@you" not in forge.comments[2]["body"]


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TEXT.encode() + b"x" * 60_000, "60000 is the most"),
        (b"", "not a comment"),
        (b"Hello\n" + TEXT.encode(), "not a comment"),
        (f"{MARK}\nHello\n".encode(), "not a comment"),
    ],
)
def test_what_is_not_a_comment_of_ours_is_not_posted(
    kind: str, data: bytes, said: str, forge: Any, tmp_path: Path
) -> None:
    done = post(kind, forge, data, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert forge.comments == list(OTHERS)


def test_names_mention_nobody(tmp_path: Path) -> None:
    sentence = "https://evil.example by @you, www.x, #1."
    checks = (Check(f"see {sentence}", Outcome.REGRESSED, sentence),)
    folder = write_case(tmp_path, "toy", "fp16", stored_dumps("toy_fp16"), checks=checks)
    text = comment_text([read_record(folder)])
    assert "by @\u200byou" in text
    assert not re.search(r"@\w|://|www\.|#\d", text)


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
        'python3 .github/workflows/post_comment.py "$RUNNER_TEMP/comment/comment.md"'
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
