"""Check a comment about a pull request and post it, or replace the one of the last run.

It runs on the default branch's code, with a token. The comment was written by code that nobody has
looked at yet, so it is only text here: no link, no mention, no command. Needs only Python.

GitHub: GH_TOKEN, COMMENTS (…/repos/OWNER/NAME/issues), NUMBER and HEAD, as in comment-github.yml;
the argument is the file. GitLab: as in comment-gitlab.yml; the file is that of the pipeline's job.
"""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

MARK = "<!-- pytest-sme2 -->"
LARGEST = 60_000
# Each would be more than text without the character of no width that goes after it.
ALIVE = (
    r"@(?=\w)", r":(?=//)", r"(?i:www|mailto|javascript)(?=[.:])", r"\](?=[(\[:])", r"[#!&](?=\d)",
    # A line that begins so is a command to GitLab.
    r"(?m:^)[^\S\n]*(?=/\w)",
)  # fmt: skip
TAG = re.compile(r"<(?!!-- pytest-sme2 -->|/?details>|details open>|/?summary>)")
# Nothing in a block of code is alive. No line of it may end it earlier in Markdown.
DIFF = re.compile(r"(?<=\n\n)```diff\n((?:(?! {0,3}```)[^\n]*\n)*)```\n")


def checked(data: bytes) -> str:
    """The comment as text that does nothing; what is none of ours is refused."""
    if len(data) > LARGEST:
        sys.exit(f"The comment has {len(data)} bytes, and {LARGEST} is the most.")
    text = data.decode(errors="replace")
    if not re.match(rf"{MARK}\n\*\*SME2: [^\n]+\*\*\n", text):
        sys.exit("The file is not a comment that --sme2-report wrote.")
    text = re.sub(r"[^\n\t -\ud7ff\ue000-\U0010ffff]", "\ufffd", text)
    blocks = [found.group() for found in DIFF.finditer(text)]
    parts = DIFF.split(text)[::2]
    for pattern in ALIVE:
        parts = [re.sub(pattern, "\\g<0>\u200b", part) for part in parts]
    parts = [TAG.sub("&lt;", part) for part in parts]
    return "".join(part for pair in zip(parts, [*blocks, ""], strict=True) for part in pair)


def replaced(diff: str) -> list[tuple[str, int, str]]:
    """File, number and new text of each changed line; empty where lines are added or removed."""
    path, row, found, gone = "", 0, [], []
    for line in diff.splitlines():
        if line.startswith(("--- ", "+++ ")):
            path = line[6:]
        elif line.startswith("@@"):
            row = int(re.sub(r"@@ -(\d+).*", r"\1", line))
        elif line.startswith("+"):
            if not gone:
                return []
            found.append((path, gone.pop(0), line[1:]))
        else:
            if line.startswith("-"):
                gone.append(row)
            elif gone:
                return []
            row += 1
    return [] if gone else found


def changed(patch: str) -> set[int]:
    """The lines of a file that a pull request adds or changes."""
    rows, row = set(), 0
    for line in patch.splitlines():
        if line.startswith("@@"):
            row = int(re.sub(r"@@ [^+]*\+(\d+).*", r"\1", line))
        elif not line.startswith("-"):
            rows |= {row} if line.startswith("+") else set()
            row += 1
    return rows


def suggest(text: str, pull: str, header: dict[str, str]) -> None:
    """Offer each line of a tested fix where the pull request has it, once."""
    lines = [entry for diff in DIFF.findall(text) for entry in replaced(diff)]
    if not lines:
        return
    patches = {
        entry["filename"]: entry.get("patch", "") for entry in every(f"{pull}/files", header)
    }
    said = {(one["path"], one["body"]) for one in every(f"{pull}/comments", header)}
    for path, row, line in lines:
        body = f"{MARK}\n```suggestion\n{line}\n```"
        place = {"path": path, "line": row, "side": "RIGHT", "commit_id": os.environ["HEAD"]}
        if "```" not in line and row in changed(patches.get(path, "")) and (path, body) not in said:
            send(f"{pull}/comments", header, "POST", {"body": body, **place})


def main() -> None:
    if "GH_TOKEN" in os.environ:
        header = {"Authorization": f"Bearer {os.environ['GH_TOKEN']}"}
        issues = os.environ["COMMENTS"]
        comments = f"{issues}/{int(os.environ['NUMBER'])}/comments"
        one, change = f"{issues}/comments", "PATCH"
        me, author = os.environ.get("AUTHOR", "github-actions[bot]"), ("user", "login")
        data = Path(sys.argv[1]).read_bytes()
    else:
        header = {"PRIVATE-TOKEN": os.environ["SME2_COMMENT_TOKEN"]}
        project = f"{os.environ['CI_API_V4_URL']}/projects/{os.environ['CI_PROJECT_ID']}"
        comments = f"{project}/merge_requests/{int(os.environ['SME2_MERGE_REQUEST'])}/notes"
        one, change = comments, "PUT"
        me, author = send(f"{os.environ['CI_API_V4_URL']}/user", header)["id"], ("author", "id")
        jobs = every(f"{project}/pipelines/{int(os.environ['SME2_PIPELINE'])}/jobs", header)
        made = [job["id"] for job in jobs if job["name"] == "performance measure"]
        data = fetch(f"{project}/jobs/{int(made[0])}/artifacts/comment.md", header)
    text = checked(data)
    # Somebody else may begin a comment with our mark.
    mine = [
        entry["id"]
        for entry in every(comments, header)
        if entry["body"].startswith(MARK) and entry[author[0]][author[1]] == me
    ]
    if mine:
        send(f"{one}/{mine[0]}", header, change, {"body": text})
    else:
        send(comments, header, "POST", {"body": text})
    if "GH_TOKEN" in os.environ:
        pull = f"{issues.removesuffix('issues')}pulls/{int(os.environ['NUMBER'])}"
        suggest(text, pull, header)


def every(address: str, header: dict[str, str]) -> list[dict]:
    """All entries, page by page."""
    found, page = [], 1
    while entries := send(f"{address}?per_page=100&page={page}", header):
        found += entries
        page += 1
    return found


def send(address: str, header: dict[str, str], method: str = "GET", body: object = None):
    return json.loads(fetch(address, header, method, body, most=10**8))


def fetch(
    address: str, header: dict[str, str], method: str = "GET", body: object = None, most=LARGEST + 1
) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    sent = {**header, "Content-Type": "application/json"}
    request = urllib.request.Request(address, data, sent, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return answer.read(most)


if __name__ == "__main__":
    main()
