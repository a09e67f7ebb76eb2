"""Phones of a lab: taken at a labgrid coordinator, used, and given back.

labgrid keeps a place for a client that was killed. So each client has a name of its own there, and
holds a lock of that name on its machine. Whoever waits for a place on the same machine and finds
that lock free frees the place.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib
import queue
import re
import secrets
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pytest_sme2.errors import BusyError, MissingExtraError, Sme2Warning, TargetError, plain
from pytest_sme2.results.run import FarmDevice
from pytest_sme2.system.locks import (
    machine_lock,
    machine_since_boot,
    shared_lock,
    user_name,
)
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.phone.adb import AdbServer
from pytest_sme2.targets.phone.target import is_leased
from pytest_sme2.targets.settings import parse_adb_server

_PORT = 20408
_POLL_SECONDS = 1.0
_WAIT_SECONDS = 3600.0
# Coordinators and exporters are restarted now and then.
_PATIENCE_SECONDS = 60.0
_CALL_SECONDS = 60.0
_CHANNEL = (
    # A client is known by its connection, so that must not be shared.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 7500),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.ping_timeout_ms", 10000),
    ("grpc.http2.max_pings_without_data", 0),
)
_Value = TypeVar("_Value")


class Lab:
    """Who hands out phones: the farm of a run with ``--sme2-lab``."""

    def __init__(self, address: str, wishes: Mapping[str, str], say: Say) -> None:
        """``wishes`` are the tags that a place must have."""
        self.address = address if re.search(r":\d+$", address) else f"{address}:{_PORT}"
        self._wishes, self._say = wishes, say
        self._held: dict[str, tuple[str, contextlib.ExitStack]] = {}
        """By place: this process's name there, and the lock of that name."""
        self._lost: set[str] = set()

    def size(self) -> int:
        """How many places fit, for one worker each."""
        return self._patiently("counting", lambda lab: len(lab.fitting(self._wishes)))

    def acquire(self) -> FarmDevice:
        """Wait for a place, and take it."""
        name, lock = _name_of_this_process()
        deadline = time.monotonic() + _WAIT_SECONDS

        def take(lab: _Coordinator) -> FarmDevice:
            # It may have come to be ours without our being told.
            for place in [each for each in lab.places.values() if each.acquired == name]:
                lab.give_back(place.name, name)
            return self._take(lab, deadline)

        try:
            device = self._patiently(name, take)
        except BaseException:
            lock.close()
            raise
        self._held[device.name] = name, lock
        return device

    def _take(self, lab: _Coordinator, deadline: float) -> FarmDevice:
        said, with_phones = "", time.monotonic()
        while time.monotonic() < deadline:
            lab.sync()
            fitting = self._fitting(lab)
            for place in fitting:
                phone = lab.phone_of(place.name)
                with_phones = with_phones if phone is None else time.monotonic()
                if phone is not None and not place.acquired and _acquire(lab, place, phone):
                    return phone
                if place.acquired and _is_dead(place.acquired):
                    holder = place.acquired
                    self._say(f"freeing the place {place.name}: its holder {holder} has ended")
                    lab.give_back(place.name, holder)
            if time.monotonic() - with_phones > _PATIENCE_SECONDS:
                raise TargetError(
                    f"None of {len(fitting)} places has a phone: their exporters are not "
                    "connected. Start them."
                )
            held = [f"{place.name} ({place.acquired})" for place in fitting if place.acquired]
            if said != (said := f"{len(fitting)} places of the lab, in use: {', '.join(held)}"):
                self._say(f"waiting for one of {said}")
            time.sleep(_POLL_SECONDS)
        raise TargetError(f"For {_WAIT_SECONDS:g} s none became free of {said}. Run fewer workers.")

    def _fitting(self, lab: _Coordinator) -> list[Any]:
        """Without those whose phones died: this process still has their leases."""
        fitting = [p for p in lab.fitting(self._wishes) if p.name not in self._lost]
        if not fitting:
            wanted = ",".join(f"{name}={value}" for name, value in self._wishes.items())
            known = {f"{tag}={value}" for p in lab.places.values() for tag, value in p.tags.items()}
            raise TargetError(
                f"The lab has no place with {wanted or 'a phone'}. Its {len(lab.places)} "
                f"places have the tags: {', '.join(sorted(known)) or 'none'}."
            )
        return fitting

    def release(self, device: FarmDevice, *, lost: bool) -> None:
        """Give a place back. One whose phone was ``lost`` is not taken again by this process."""
        name, lock = self._held.pop(device.name)
        if lost:
            self._lost.add(device.name)
        try:
            self._patiently(name, lambda lab: lab.give_back(device.name, name))
        except TargetError as error:
            text = f"The place {device.name} could not be given back. {error}"
            warnings.warn(Sme2Warning(plain(text)), stacklevel=2)
        finally:
            # From here on, whoever waits may free the place.
            lock.close()

    def _patiently(self, name: str, work: Callable[[_Coordinator], _Value]) -> _Value:
        """Do it again from the start where the coordinator ends."""
        lost: float | None = None
        while True:
            try:
                with contextlib.closing(_Coordinator(self.address, name)) as lab:
                    lost = None
                    return work(lab)
            except _UnavailableError as error:
                lost = lost or time.monotonic()
                if time.monotonic() - lost > _PATIENCE_SECONDS:
                    raise TargetError(
                        f"The labgrid coordinator {self.address} does not work: {error}. "
                        "Check --sme2-lab, and that the coordinator runs."
                    ) from error
                self._say(f"waiting for the labgrid coordinator {self.address}: {error}")
                time.sleep(_POLL_SECONDS)


class _UnavailableError(Exception):
    """The coordinator does not answer, or was started again meanwhile."""


class _RefusedError(_UnavailableError):
    """The coordinator says no to one request; where no is no answer, it is asked again."""


class _Coordinator:
    """A connection, and the places and resources as they are at the last ``sync``."""

    def __init__(self, address: str, name: str) -> None:
        try:
            self._grpc: Any = importlib.import_module("grpc")
            generated = "labgrid.remote.generated.labgrid_coordinator_pb2"
            self.pb2: Any = importlib.import_module(generated)
            stub = importlib.import_module(f"{generated}_grpc").CoordinatorStub
        except ModuleNotFoundError as error:
            raise MissingExtraError("labgrid", "labgrid", "--sme2-lab") from error
        self.places: dict[str, Any] = {}
        self._resources: dict[tuple[str, ...], Any] = {}
        self._syncs = 0
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._channel = self._grpc.insecure_channel(address, options=_CHANNEL)
        self._stub: Any = stub(self._channel)
        self._answers = self._stub.ClientStream(iter(self._requests.get, None))
        try:
            self._grpc.channel_ready_future(self._channel).result(timeout=10)
            self._send(startup={"name": name, "version": "pytest-sme2"})
            self._send(subscribe={"all_places": True})
            self._send(subscribe={"all_resources": True})
            self.sync()
        except BaseException as error:
            self.close()
            if isinstance(error, self._grpc.FutureTimeoutError):
                raise _UnavailableError("no answer within 10 s") from None
            raise

    def close(self) -> None:
        self._requests.put(None)
        self._answers.cancel()
        self._channel.close()

    def _send(self, **message: Any) -> None:
        self._requests.put(self.pb2.ClientInMessage(**message))

    def sync(self) -> None:
        """See every change up to now."""
        self._syncs += 1
        self._send(sync={"id": self._syncs})
        try:
            for message in self._answers:
                for update in message.updates:
                    self._apply(update)
                if message.HasField("sync") and message.sync.id == self._syncs:
                    return
        except self._grpc.RpcError as error:
            raise _UnavailableError(error.details()) from error
        raise _UnavailableError("it ended the connection")

    def _apply(self, update: Any) -> None:
        kind = update.WhichOneof("kind")
        if kind == "place":
            self.places[update.place.name] = update.place
        elif kind == "del_place":
            self.places.pop(update.del_place, None)
        elif kind == "resource":
            self._resources[_path(update.resource.path)] = update.resource
        elif kind == "del_resource":
            self._resources.pop(_path(update.del_resource), None)

    def call(self, method: str, **fields: Any) -> Any:
        request = getattr(self.pb2, f"{method}Request")(**fields)
        try:
            return getattr(self._stub, method)(request, timeout=_CALL_SECONDS)
        except self._grpc.RpcError as error:
            code = self._grpc.StatusCode
            if error.code() in (code.UNAVAILABLE, code.DEADLINE_EXCEEDED, code.CANCELLED):
                raise _UnavailableError(error.details()) from error
            raise _RefusedError(error.details()) from error

    def fitting(self, wanted: Mapping[str, str]) -> list[Any]:
        """The places that have these tags; their names count as a tag, as for labgrid."""
        return [
            place
            for name, place in sorted(self.places.items())
            if wanted.items() <= {**place.tags, "name": name}.items()
        ]

    def phone_of(self, name: str) -> FarmDevice | None:
        """The phone of a place; None while its exporter is not connected."""
        for path, resource in sorted(self._resources.items()):
            parts = (path[0], path[1], resource.cls, path[2])
            wanted = (
                (m.exporter, m.group, m.cls, m.name or "*") for m in self.places[name].matches
            )
            if not any(all(map(fnmatch.fnmatchcase, parts, each)) for each in wanted):
                continue
            given = {
                key: getattr(value, value.WhichOneof("kind") or "", None)
                for key, value in resource.params.items()
            }
            host, serial = given.get("address"), given.get("username")
            if resource.avail and host and serial:
                server = f"{host}:{given.get('port')}"
                return FarmDevice(serial=str(serial), adb_server=server, name=name)
        return None

    def give_back(self, place: str, owner: str) -> None:
        """Only what this client still has: a coordinator that was started again forgets it."""
        with contextlib.suppress(_RefusedError):
            self.call("ReleasePlace", placename=place, fromuser=owner)


def _path(path: Any) -> tuple[str, ...]:
    return path.exporter_name, path.group_name, path.resource_name


def _acquire(lab: _Coordinator, place: Any, phone: FarmDevice) -> bool:
    # A coordinator that was started again does not know who uses what.
    if is_leased(AdbServer(*parse_adb_server(phone.adb_server)), phone.serial):
        return False
    try:
        lab.call("AcquirePlace", placename=place.name)
    except _RefusedError:  # somebody else has it, or reserved it
        return False
    return True


def _name_of_this_process() -> tuple[str, contextlib.ExitStack]:
    """``HOST/USER.MACHINE.TOKEN``, and the lock that is held as long as this name counts."""
    token, lock = secrets.token_hex(8), contextlib.ExitStack()
    lock.enter_context(shared_lock(_lock_file(token), "using a place of the lab"))
    lock.callback(_lock_file(token).unlink, missing_ok=True)
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    return f"{host}/{user_name()}.{_machine()}.{token}", lock


def _is_dead(owner: str) -> bool:
    """Whether a process of ours that has a place is gone for certain."""
    known = re.fullmatch(r"[^/]+/.+\.([0-9a-f]{12})\.([0-9a-f]{16})", owner)
    if known is None or known[1] != _machine():
        return False
    try:
        lock = shared_lock(_lock_file(known[2]), "using a place of the lab")
        # The file of another user stays.
        with lock, contextlib.suppress(OSError):
            _lock_file(known[2]).unlink()
    except BusyError:
        return False
    return True


def _lock_file(token: str) -> Path:
    return machine_lock(f"lab-{token}")


def _machine() -> str:
    """This machine since its start, with its locks: a container of the same name has others."""
    text = machine_since_boot(_lock_file("").parent)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
