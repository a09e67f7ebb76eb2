"""Post a comment about a pull request, or replace the one of the last run. Needs only Python.

GitHub: GH_TOKEN, COMMENTS (…/repos/OWNER/NAME/issues) and NUMBER, as in comment-github.yml.
GitLab: SME2_COMMENT_TOKEN, and what its CI sets.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path


def main() -> None:
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    mark = text.splitlines()[0]
    if "GH_TOKEN" in os.environ:
        header = {"Authorization": f"Bearer {os.environ['GH_TOKEN']}"}
        issues = os.environ["COMMENTS"]
        comments = f"{issues}/{os.environ['NUMBER']}/comments"
        one, change = f"{issues}/comments", "PATCH"
    else:
        header = {"PRIVATE-TOKEN": os.environ["SME2_COMMENT_TOKEN"]}
        project = f"{os.environ['CI_API_V4_URL']}/projects/{os.environ['CI_PROJECT_ID']}"
        comments = f"{project}/merge_requests/{os.environ['CI_MERGE_REQUEST_IID']}/notes"
        one, change = comments, "PUT"
    known = next(
        (entry["id"] for entry in every(comments, header) if entry["body"].startswith(mark)), None
    )
    if known is None:
        send(comments, header, "POST", {"body": text})
    else:
        send(f"{one}/{known}", header, change, {"body": text})


def every(address: str, header: dict[str, str]) -> list[dict]:
    """All comments, page by page."""
    found, page = [], 1
    while entries := send(f"{address}?per_page=100&page={page}", header):
        found += entries
        page += 1
    return found


def send(address: str, header: dict[str, str], method: str = "GET", body: object = None):
    data = None if body is None else json.dumps(body).encode()
    sent = {**header, "Content-Type": "application/json"}
    request = urllib.request.Request(address, data, sent, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


if __name__ == "__main__":
    main()
