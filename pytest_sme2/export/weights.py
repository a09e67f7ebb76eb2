"""Trained weights: what a model's folder says about the published file, and checking such a file.

Nothing is downloaded unless the user names an address. The exporter loads the weights.

Useful random weights, for models without trained weights. Models call these functions.

In a deep network with random weights and default batch statistics, the signal vanishes layer by
layer. In fp16 and int8 only zeros are left, and comparing outputs means nothing.
"""

from __future__ import annotations

import http.client
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pytest_sme2.errors import EvidenceError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.system.cache import cache_folder, working_folder
from pytest_sme2.system.files import file_sha256, safe_name
from pytest_sme2.system.locks import locked
from pytest_sme2.system.reading import read_toml
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count

FILE_NAME = "weights.toml"
TIMEOUT_SECONDS = 60.0
# Far above the largest model that runs on a phone.
LARGEST_BYTES = 16 << 30
_BLOCK = 1 << 20
_WHOLE_HASH = re.compile(r"[0-9a-f]{64}")
_LONGEST_NAME = 100
_LOST = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Upstream:
    """What a model's ``weights.toml`` says."""

    file: str
    """The published name of the file."""
    source: str
    """Where it is published, for people."""
    licence: str
    url: str = ""
    """The address of the file, if it has one."""
    sha256: str = ""
    """The published first digits; may be empty."""
    state: str = ""
    """The entry of the file with the state dict, if it is not the file itself."""
    prefix: str = ""
    """Only the weights with this prefix; the others belong to parts that are not exported."""
    new_prefix: str = ""
    """The prefix that replaces it."""
    note: str = ""


def upstream_of(entry: ModelEntry) -> Upstream | None:
    """What the model's folder says about its trained weights; None if nothing."""
    path = None if entry.folder is None else entry.folder / FILE_NAME
    if path is None or not path.is_file():
        return None
    document = read_toml(path, remedy="Correct it, or remove it.", error=ModelError)
    known = {field.name for field in fields(Upstream)}
    wrong = [
        name for name, value in document.items() if name not in known or type(value) is not str
    ]
    if wrong:
        raise ModelError(
            f"{path}: {', '.join(map(repr, wrong))} cannot be used. Every value must be a string; "
            f"the names are: {', '.join(sorted(known))}."
        )
    try:
        return Upstream(**document)
    except TypeError as error:
        raise ModelError(f"{path} is incomplete: give file, source and licence.") from error


def select_state(state: Any, upstream: Upstream | None) -> Any:
    """The weights of the exported part of the published file; any other state dict unchanged."""
    if upstream is None or not isinstance(state, Mapping):
        return state
    if upstream.state and isinstance(state.get(upstream.state), Mapping):
        state = state[upstream.state]
    if upstream.prefix and any(str(name).startswith(upstream.prefix) for name in state):
        return {
            upstream.new_prefix + name[len(upstream.prefix) :]: value
            for name, value in state.items()
            if name.startswith(upstream.prefix)
        }
    return state


def misfit(wanted: Mapping[str, Any], given: Any) -> str:
    """What is wrong with the names and shapes of a state dict; empty if they fit."""
    if not isinstance(given, Mapping):
        return f"the file contains a {type(given).__name__}, not a state dict"
    missing = [name for name in wanted if name not in given]
    foreign = [str(name) for name in given if name not in wanted]
    other = [
        f"{name} is {_shape(given[name])} instead of {_shape(value)}"
        for name, value in wanted.items()
        if name in given and _shape(given[name]) != _shape(value)
    ]
    kinds = (
        (missing, f"of {count(len(wanted), 'weight')} missing"),
        (foreign, "do not belong to the model"),
        (other, "have another shape"),
    )
    return ", ".join(f"{len(names)} {what} ({_few(names)})" for names, what in kinds if names)


def _shape(value: Any) -> str:
    return "x".join(map(str, getattr(value, "shape", ()))) or "a scalar"


def _few(names: list[str], most: int = 2) -> str:
    shown = ", ".join(name[:_LONGEST_NAME] for name in names[:most])
    return f"{shown}, …" if len(names) > most else shown


def fetch_weights(entry: ModelEntry, place: str, *, sha256: str = "", say: Say) -> tuple[Path, str]:
    """A checked copy of the file at ``place`` (a path or an address) in the cache, and its hash.

    ``sha256`` is the whole hash, for a model whose folder does not name it.
    """
    upstream = upstream_of(entry)
    if upstream is None:
        raise UsageError(
            f"The folder of {entry.name!r} describes no trained weights, so a file cannot be "
            "checked. Use --sme2-weights FILE without a check, or describe the file in a "
            f"{FILE_NAME} in the model's folder (see docs/models.md)."
        )
    if sha256 and not _WHOLE_HASH.fullmatch(sha256.lower()):
        raise UsageError(f"{sha256!r} is not a SHA-256: it has 64 hexadecimal digits.")
    folder = cache_folder() / "weights" / safe_name(entry.name)
    lock = folder.with_name(f"{folder.name}.lock")
    try:
        with locked(lock, f"fetching the weights of {entry.name}", say=say):
            with working_folder(folder / "fetched") as work:
                partial = work / "file"
                if urllib.parse.urlsplit(place).scheme in ("http", "https", "file"):
                    _download(place, partial, say)
                elif Path(place).expanduser().is_file():
                    shutil.copyfile(Path(place).expanduser(), partial)
                else:
                    remedy = "Name the file that you downloaded."
                    raise UsageError(f"The file {place!r} does not exist. {remedy}")
                digest = file_sha256(partial)
                _check(place, digest, upstream, sha256.lower())
                # Named after the model, not the address, because it becomes a path.
                kept = folder / f"{digest[:12]}{Path(upstream.file).suffix}"
                partial.replace(kept)
            # What is used later is the file at its last place, so that is what is checked.
            if file_sha256(kept) != digest:
                kept.unlink()
                raise EvidenceError(f"{kept} was changed after the check. Download it again.")
    except OSError as error:
        raise Sme2Error(f"The weights cannot be kept in {folder}: {error}.") from error
    return kept, digest


def _check(place: str, digest: str, upstream: Upstream, given: str) -> None:
    """Accept a file only by a whole hash: one with the same first digits can be made."""
    for known, whose in ((upstream.sha256, "published"), (given, "given")):
        if not digest.startswith(known):
            raise EvidenceError(
                f"{place} is not {upstream.file}: its sha256 begins with {digest[: len(known)]}, "
                f"the {whose} one with {known}. Download it again from {upstream.source}."
            )
    if digest not in (upstream.sha256, given):
        raise EvidenceError(
            f"{place} cannot be checked: {len(upstream.sha256)} of the 64 digits of its sha256 are "
            f"known, and files with equal first digits can be made. Its sha256 is {digest}. "
            f"Compare it with {upstream.source}, then give it: --sha256 {digest}"
        )


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https alone: what comes over http can be changed on its way.

    An address of this machine may name another one of this machine.
    """

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        here = _is_here(req.full_url) and _is_here(newurl)
        if urllib.parse.urlsplit(newurl).scheme != "https" and not here:
            fp.close()
            raise urllib.error.URLError(f"it redirects to {newurl!r}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_here(address: str) -> bool:
    """Whether a file comes from this machine, over no network that could change it."""
    parts = urllib.parse.urlsplit(address)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


def _download(address: str, target: Path, say: Say) -> None:
    if urllib.parse.urlsplit(address).scheme != "https" and not _is_here(address):
        raise UsageError(f"{address!r} is not an https address. Name one, or a file.")
    say(f"fetching {address}")
    opener = urllib.request.build_opener(_OnlyHttps)
    try:
        answer = opener.open(address, timeout=TIMEOUT_SECONDS)
        with answer, target.open("wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                if file.tell() > LARGEST_BYTES:
                    raise ConnectionError(f"it has more than {LARGEST_BYTES >> 30} GiB")
            told, received = answer.headers.get("Content-Length"), file.tell()
        # A connection that ends early looks like the end of the file.
        if told is not None and told.isdigit() and int(told) != received:
            raise ConnectionError(f"only {received} of {told} bytes arrived")
    except _LOST as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise Sme2Error(
            f"{address} cannot be downloaded: {reason}. Download the file by other means and name "
            "it with --fetch-weights FILE."
        ) from error


# So few values per channel (8 by 8 pixels) do not give its mean and variance.
FEW_VALUES = 64
# As a share of the channels' mean.
LEAST_VARIANCE = 0.1
# The least normal number of fp16: what is smaller has lost its digits there.
LEAST_PEAK = 2.0**-14
# Of the largest value. Any constant comes closer than that to an output that varies less.
LEAST_SPREAD = 0.01


def lifeless(least: float, greatest: float, values: int) -> str:
    """Why an output between these two says nothing about its model; empty where it does."""
    peak = max(abs(least), abs(greatest))
    if peak < LEAST_PEAK:
        return f"nearly zero (its largest value is {peak:.2g})"
    if values > 1 and greatest - least < LEAST_SPREAD * peak:
        return f"nearly constant (all values lie between {least:.4g} and {greatest:.4g})"
    return ""


def fill_zero_weights(network: Any) -> Any:
    """Give layers that start at zero, as heads often do, random weights; returns network.

    Otherwise every output would be zero, and hide any error before them.
    """
    import torch

    for layer in network.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d) and not layer.weight.any():
            torch.nn.init.trunc_normal_(layer.weight, std=0.02)
    return network


def settle_batch_norms(network: Any, *inputs: Any, **keyword_inputs: Any) -> Any:
    """Give every batch norm the statistics of one forward pass over ``inputs``; returns network.

    Only for random weights: trained ones have their own statistics.
    """
    import torch

    def measure(layer: Any, arguments: tuple[Any, ...]) -> None:
        values = arguments[0].transpose(0, 1).flatten(1)
        # One value per channel has no variance.
        if not layer.track_running_stats or values.shape[1] < 2:
            return
        if values.shape[1] <= FEW_VALUES:
            # Centred on so few values, each layer would amplify small differences. After some
            # layers the last digit of the input would decide the output.
            layer.running_mean.zero_()
            layer.running_var.fill_(float(values.square().mean()))
            return
        variance = values.var(1)
        layer.running_mean.copy_(values.mean(1))
        # A channel with little variance here would be amplified for other inputs.
        layer.running_var.copy_(variance.clamp(min=LEAST_VARIANCE * float(variance.mean())))

    kind = torch.nn.modules.batchnorm._BatchNorm
    hooks = [
        layer.register_forward_pre_hook(measure)
        for layer in network.modules()
        if isinstance(layer, kind)
    ]
    was_training = network.training
    try:
        with torch.no_grad():
            network.eval()(*inputs, **keyword_inputs)
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    return network
