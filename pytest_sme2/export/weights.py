"""Trained weights: what a model's folder says about the published file, and fetching that file.

Useful random weights, for models without trained weights. Models call these functions.

In a deep network with random weights and default batch statistics, the signal vanishes layer by
layer. In fp16 and int8 only zeros are left, and comparing outputs means nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from pytest_sme2.errors import EvidenceError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import file_sha256, make_folders, read_toml, replacing, safe_name
from pytest_sme2.system.terminal import Say

FILE_NAME = "weights.toml"
TIMEOUT_SECONDS = 60.0
_WHOLE_HASH = re.compile(r"[0-9a-f]{64}")


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
    """The published one, or its first digits; may be empty."""
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


def fetch_weights(entry: ModelEntry, say: Say) -> Path:
    """A copy in the cache of the published file, which has the hash that the model's folder names.

    A part of a hash is not enough: a file with the same first digits can be made.
    """
    # Only now: they take a tenth of the time that a session takes to import.
    import http.client
    import urllib.error
    import urllib.parse

    lost = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
    upstream = upstream_of(entry)
    if upstream is None or not upstream.url or not _WHOLE_HASH.fullmatch(upstream.sha256):
        known = f" Download {upstream.file} from {upstream.source}." if upstream else ""
        raise UsageError(
            f"No {FILE_NAME} of {entry.name!r} names a url and a whole sha256.{known} "
            "Name your file with --weights FILE (see docs/models.md)."
        )
    address, parts = upstream.url, urllib.parse.urlsplit(upstream.url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise UsageError(f"{address!r} is not an https address.")
    # Named after the model, not the address, because it becomes a path.
    folder = cache_folder() / "weights" / safe_name(entry.name)
    kept = folder / f"{upstream.sha256[:12]}{Path(upstream.file).suffix}"
    try:
        if not kept.is_file() or file_sha256(kept) != upstream.sha256:
            say(f"fetching {address}")
            make_folders(folder)
            with replacing(kept) as file:
                _download(upstream, file)
    except lost as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise Sme2Error(
            f"{address} cannot be downloaded: {reason}. Download the file by other means and name "
            "it with --weights FILE."
        ) from error
    except OSError as error:
        raise Sme2Error(f"The weights cannot be kept in {folder}: {error}.") from error
    return kept


def _download(upstream: Upstream, file: IO[bytes]) -> None:
    import urllib.request

    digest = hashlib.sha256()
    with urllib.request.build_opener().open(upstream.url, timeout=TIMEOUT_SECONDS) as answer:
        while block := answer.read(1 << 20):
            file.write(block)
            digest.update(block)
    if digest.hexdigest() != upstream.sha256:
        raise EvidenceError(
            f"{upstream.url} is not {upstream.file}: its sha256 is {digest.hexdigest()}, the "
            f"published one {upstream.sha256}. Download it again from {upstream.source}."
        )


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
