"""Make a comment about a pull request of what a run found, and post it, or replace the last one.

It runs on the default branch's code, with a token. The JSON was written by code that nobody has
looked at yet, so each of its words goes into a code span, where Markdown knows no link, mention,
reference or command; every other character of the comment is from this file. Needs only Python.

GitHub: GH_TOKEN, COMMENTS (…/repos/OWNER/NAME/issues), NUMBER and HEAD, as in comment-github.yml;
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
WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,99}", re.ASCII)
# It would end the block, or be a command to a service that does not see the block.
NOT_IN_A_BLOCK = re.compile(r"```|~~~|^[ +-]?\s*/\w", re.ASCII)


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
    return "\n".join([*lines, *(fix(found["fix"]) if found.get("fix") else ())]) + "\n"


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


def fix(found: dict) -> list[str]:
    names = [name for name in found["rewrites"] if WORD.fullmatch(name)]
    lines = ["", "<details open><summary>A tested fix</summary>", ""]
    lines += [f"{span(found['case'])}: {span(found['effect'])}", ""]
    lines += [f"- {span(each)}" for each in found["why"][:MOST]]
    diff = block(found["diff"])
    if diff:
        lines += ["", "```diff", *diff, "```", "", "To apply it: `git apply`."]
    else:
        lines += ["", "Its lines are not shown here, or not in the model's own file."]
    if names and WORD.fullmatch(found["model"]):
        lines += [f"To see it: `sme2 advise {found['model']} --try {','.join(names)}`"]
    return [*lines, "", "</details>"]


def block(diff: str) -> list[str]:
    """The lines of a change that can stand in a block of code; all of them or none."""
    lines = diff[:LARGEST].splitlines()
    fine = len(lines) <= 10 * MOST and all(
        len(line) <= LONGEST
        and line[:1] in (" ", "+", "-", "@", "")
        and line.replace("\t", " ").isprintable()
        and not NOT_IN_A_BLOCK.search(line)
        for line in lines
    )
    return lines if fine else []


def comment(data: bytes) -> tuple[str, list[str]]:
    """The comment, and the lines of a change that it offers."""
    if len(data) > LARGEST:
        sys.exit(f"The file has {len(data)} bytes, and {LARGEST} is the most.")
    try:
        found = json.loads(data)
        return rendered(found), block(found["fix"]["diff"]) if found.get("fix") else []
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        sys.exit(f"The file is not what --sme2-report FILE.json of this version writes: {error!r}")


def replaced(diff: list[str]) -> list[tuple[str, int, str]]:
    """File, number and new text of each changed line; empty where lines are added or removed."""
    path, row, found, gone = "", 0, [], []
    for line in diff:
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


def suggest(diff: list[str], pull: str, header: dict[str, str]) -> None:
    """Offer each line of a tested fix where the pull request has it, once."""
    lines = replaced(diff)
    if not lines:
        return
    patches = {
        entry["filename"]: entry.get("patch", "") for entry in every(f"{pull}/files", header)
    }
    said = {(one["path"], one["body"]) for one in every(f"{pull}/comments", header)}
    for path, row, line in lines:
        body = f"{MARK}\n```suggestion\n{line}\n```"
        place = {"path": path, "line": row, "side": "RIGHT", "commit_id": os.environ["HEAD"]}
        if row in changed(patches.get(path, "")) and (path, body) not in said:
            send(f"{pull}/comments", header, "POST", {"body": body, **place})


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
        sys.stdout.write(comment(Path(sys.argv[1]).read_bytes())[0])
        return
    text, diff = comment(data)
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
        suggest(diff, pull, header)


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
