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

from pytest_sme2.plugin import options
from pytest_sme2.report.comment import MARK, comment_text

CI = Path(__file__).parents[2] / "docs" / "ci"
POST = CI / "post_comment.py"
TEXT = comment_text([])


class Forge(BaseHTTPRequestHandler):
    """As much of the two services as a comment needs."""

    def answer(self) -> None:
        server: Any = self.server
        path = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        token = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN")
        server.calls.append((self.command, path.path, token))
        reply: Any = {}
        if self.command == "GET":
            reply = server.comments if "page=1" in path.query.split("&") else []
        elif self.command == "POST":
            server.comments.append({"id": 7, "body": body["body"]})
        else:
            (entry,) = [e for e in server.comments if path.path.endswith(f"/{e['id']}")]
            entry["body"] = body["body"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())

    do_GET = do_POST = do_PATCH = do_PUT = answer  # noqa: N815

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def forge() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Forge)
    server.calls, server.comments = [], [{"id": 3, "body": "Nice."}]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def environment(kind: str, forge: Any) -> dict[str, str]:
    root = f"http://127.0.0.1:{forge.server_port}"
    if kind == "github":
        return {"GH_TOKEN": "secret", "COMMENTS": f"{root}/repos/o/n/issues", "NUMBER": "5"}
    return {
        "SME2_COMMENT_TOKEN": "secret",
        "CI_API_V4_URL": root,
        "CI_PROJECT_ID": "9",
        "CI_MERGE_REQUEST_IID": "5",
    }


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
    comment = tmp_path / "comment.md"
    for text in (TEXT, f"{TEXT}\nAgain.\n"):
        comment.write_text(text, encoding="utf-8")
        subprocess.run(
            [sys.executable, str(POST), str(comment)],
            env={"PATH": os.environ["PATH"], **environment(kind, forge)},
            check=True,
        )
        mine = [entry for entry in forge.comments if entry["body"].startswith(MARK)]
        assert [entry["body"] for entry in mine] == [text]
    assert forge.comments[0] == {"id": 3, "body": "Nice."}
    assert {call[2] for call in forge.calls} == {token}
    assert forge.calls[-1][:2] == change


@pytest.mark.parametrize("name", ["comment-github.yml", "comment-gitlab.yml"])
def test_the_command_that_measures_is_one_that_pytest_takes(name: str) -> None:
    text = (CI / name).read_text()
    (command,) = re.findall(r"pytest --pyargs .*", text)
    words = shlex.split(command)
    assert "pytest_sme2.suite" in words
    flags = {option.flag for option in options.OPTIONS}
    given = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--pyargs"}
    assert given <= flags
    (written,) = (word.partition("=")[2] for word in words if word.startswith("--sme2-comment"))
    assert f"post_comment.py {written}" in text
    # The comment is posted also when a test failed.
    assert "always()" in text or "after_script:" in text


def test_a_fork_gets_no_token_that_may_write() -> None:
    text = (CI / "comment-github.yml").read_text()
    assert "pull_request_target" not in text
    assert "github.event.pull_request.head.repo.full_name == github.repository" in text
