"""Make a comment about a pull request of what a run found, and post it, or replace the last one.

It runs on the default branch's code, with a token. The JSON was written by code that nobody has
looked at yet, so each of its words goes into a code span, where Markdown knows no link, mention,
reference or command; every other character of the comment is from this file. Needs only Python.

GitHub: GH_TOKEN, COMMENTS (…/repos/OWNER/NAME/issues) and NUMBER, as in comment-github.yml;
the argument is the file. GitLab: as in comment-gitlab.yml; the file is that of the pipeline's job.
Without their variables it prints the comment.
"""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

MARK = "<!-- pytest-sme2 -->"
SCHEMA = 1
LARGEST = 60_000
LONGEST = 300
MOST = 20
SIGNS = {"failed": "❌", "warned": "⚠️", "passed": "✅"}
COUNTED = (*SIGNS, "not checked")
FIGURE = re.compile(
    r"[-+]?[0-9]{1,6}([.,][0-9]{1,6})*( ?(%|x|ns|us|ms|s|B|kB|MB|GB|Minst|dB))?", re.ASCII
)
COLUMNS = ("check", "baseline", "now", "change", "interval", "limit")


def span(value: str, longest: int = LONGEST) -> str:
    """A code span: nothing in it is alive, and nothing in it ends it, or a table's cell."""
    shown = value if len(value) <= longest else value[:longest] + " ..."
    plain = "".join(each if each.isprintable() else "\ufffd" for each in shown)
    plain = plain.replace("`", "'").replace("|", "¦").strip()
    return f"`{plain}`" if plain else "-"


def cell(value: str) -> str:
    return value if FIGURE.fullmatch(value) or value == "-" else span(value)


def number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 10**6:
        raise ValueError(value)
    return value


def rendered(found: dict) -> str:
    """The comment; what is not as ``--sme2-report FILE.json`` writes it raises an error."""
    if found["schema"] != SCHEMA:
        raise ValueError(found["schema"])
    counts = {word: number(found["counts"][word]) for word in COUNTED}
    rows, failures = found["rows"][:MOST], found["failures"][:MOST]
    lines = [MARK, f"**SME2: {verdict(found, counts)}**", ""]
    if rows:
        lines += ["| case | check | baseline | now | change | interval | limit | verdict |"]
        lines += ["| --- | --- | ---: | ---: | ---: | --- | ---: | --- |"]
    for row in rows:
        cells = [span(row["case"]), *(cell(row[name]) for name in COLUMNS)]
        lines.append(f"| {' | '.join(cells)} | {sign(row['state'])} {cell(row['verdict'])} |")
    left = sum(counts.values()) - len(rows)
    if left > 0:
        lines += ["", f"{left} more in report.md."]
    if failures:
        lines += ["", "<details><summary>What failed</summary>", ""]
        for each in failures:
            parts = [span(each[name]) for name in ("case", "check", "place", "message")]
            lines.append(f"- {' '.join(part for part in parts if part != '-')}")
        more = number(found["more_failures"])
        lines += [f"- {more} more in report.md", "", "</details>"] if more else ["", "</details>"]
    devices = [span(name) for name in found["devices"][:MOST]]
    if devices:
        lines += ["", f"Device: {', '.join(devices)}."]
    if found["emulated"]:
        lines += ["Emulated: cost is executed instructions (Minst: a million), no time."]
    return "\n".join([*lines, ""])


def verdict(found: dict, counts: dict[str, int]) -> str:
    """``❌ 28x more instructions: `x.flip(-1) at net.py:8`, `toy-fp16` (1 failed, 2 passed)``."""
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    state = next((word for word in SIGNS if counts[word]), "")
    if not told:
        return "nothing was measured"
    if not found["worst"]:
        return f"{sign(state)} {told}"
    parts = [span(found["worst"][name]) for name in ("effect", "place", "case")]
    return f"{sign(state)} {', '.join(part for part in parts if part != '-')} ({told})"


def sign(state: str) -> str:
    return SIGNS.get(state, "❔")


def comment(data: bytes) -> str:
    if len(data) > LARGEST:
        sys.exit(f"The file has {len(data)} bytes, and {LARGEST} is the most.")
    try:
        return rendered(json.loads(data))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        sys.exit(f"The file is not what --sme2-report FILE.json of this version writes: {error!r}")


def main() -> None:
    if "GH_TOKEN" in os.environ:
        header = {"Authorization": f"Bearer {os.environ['GH_TOKEN']}"}
        issues = os.environ["COMMENTS"]
        comments = f"{issues}/{int(os.environ['NUMBER'])}/comments"
        one, change = f"{issues}/comments", "PATCH"
        me, author = os.environ.get("AUTHOR", "github-actions[bot]"), ("user", "login")
        data = Path(sys.argv[1]).read_bytes()
    elif "SME2_COMMENT_TOKEN" in os.environ:
        header = {"PRIVATE-TOKEN": os.environ["SME2_COMMENT_TOKEN"]}
        project = f"{os.environ['CI_API_V4_URL']}/projects/{os.environ['CI_PROJECT_ID']}"
        comments = f"{project}/merge_requests/{int(os.environ['SME2_MERGE_REQUEST'])}/notes"
        one, change = comments, "PUT"
        me, author = send(f"{os.environ['CI_API_V4_URL']}/user", header)["id"], ("author", "id")
        jobs = every(f"{project}/pipelines/{int(os.environ['SME2_PIPELINE'])}/jobs", header)
        made = [job["id"] for job in jobs if job["name"] == "performance measure"]
        data = fetch(f"{project}/jobs/{int(made[0])}/artifacts/comment.json", header)
    else:
        sys.stdout.write(comment(Path(sys.argv[1]).read_bytes()))
        return
    text = comment(data)
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
