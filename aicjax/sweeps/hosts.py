# SPDX-License-Identifier: Apache-2.0
"""The hosts that share a sweep: how they find each other and exchange what they found."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from aicjax._results import AicjaxError, InputError

JOIN_TIMEOUT_S = 300  # until all hosts must have started
HEARTBEAT_TIMEOUT_S = 30  # after which a host that has gone ends the others
RETRY_S = 1.0
LEAVE_TIMEOUT_S = 60  # until all hosts must have ended
Made = TypeVar("Made")


class HostFailed(AicjaxError):
    """Another host of the same sweep failed; says which and why."""


@dataclass(frozen=True)
class Hosts:
    """This host among all.

    Attributes:
        number: From 0.
        count: Hosts.
    """

    number: int = 0
    count: int = 1

    def together(self, make: Callable[[], Made]) -> Made:
        """What `make` returns on this host; all must call this.

        Raises:
            HostFailed: It failed on another host; its own error where it failed on this one.
        """
        if self.count == 1:
            return make()
        try:
            made = make()
        except Exception as error:
            _exchange(f"{type(error).__name__}: {error}".encode())
            raise
        for host, failure in enumerate(_exchange(b"")):
            if failure:
                raise HostFailed(f"host {host} of {self.count} failed: {failure.decode()}")
        return made

    def gather(self, content: bytes) -> list[bytes]:
        """The content of each host, by number; all must call this."""
        return [content] if self.count == 1 else _exchange(content)


def join(coordinator: str | None, num_hosts: int, host_id: int) -> Hosts:
    """Waits until all hosts have started.

    Nothing may have used jax before in this process. A host that is gone later, or never comes, ends the processes of
    the others, whose logs stay whole.

    Args:
        coordinator: Address and port of host 0; None for one host alone.
        num_hosts: Hosts.
        host_id: Number of this host, from 0.

    Raises:
        InputError: A number out of range, or jax is in use already.
        HostFailed: Host 0 did not start in time, or this is host 0 and cannot listen.
    """
    if num_hosts < 1:
        raise InputError("num_hosts", num_hosts, "at least 1")
    if not 0 <= host_id < num_hosts:
        raise InputError("host_id", host_id, f"a number from 0 to {num_hosts - 1}")
    if num_hosts == 1:
        return Hosts()
    if coordinator is None:
        raise InputError("coordinator", coordinator, "the address of host 0, HOST:PORT, with several hosts")
    address, _, port = coordinator.rpartition(":")
    if not address or not port.isdecimal():
        raise InputError("coordinator", coordinator, "HOST:PORT")
    if not jax.distributed.is_initialized():
        if host_id:
            _wait_for(coordinator, address, int(port))
        _initialize(coordinator, num_hosts, host_id)
    return Hosts(host_id, num_hosts)


def _wait_for(coordinator: str, address: str, port: int) -> None:
    """Waits until host 0 listens."""
    end = time.monotonic() + JOIN_TIMEOUT_S
    while True:
        try:
            socket.create_connection((address, port), timeout=RETRY_S).close()
            return
        except socket.gaierror as error:
            raise InputError("coordinator", coordinator, f"an address that is known ({error.strerror})") from None
        except OSError as error:
            if time.monotonic() > end:
                raise HostFailed(f"host 0 cannot be reached at {coordinator} ({error.strerror or error})") from None
            time.sleep(RETRY_S)


def _initialize(coordinator: str, num_hosts: int, host_id: int) -> None:
    try:
        jax.distributed.initialize(
            coordinator,
            num_hosts,
            host_id,
            initialization_timeout=JOIN_TIMEOUT_S,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
            shutdown_timeout_seconds=LEAVE_TIMEOUT_S,
        )
    except jax.errors.JaxRuntimeError as error:
        message = str(error).splitlines()[0]
        raise HostFailed(f"host {host_id} of {num_hosts} cannot start at {coordinator} ({message})") from None
    except RuntimeError:
        raise InputError("coordinator", coordinator, "given before anything else uses jax in this process") from None


def _exchange(content: bytes) -> list[bytes]:
    """The content of each host, by number."""
    sizes = multihost_utils.process_allgather(np.array([len(content)], np.int32)).ravel()
    padded = np.zeros(max(int(sizes.max()), 1), np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    parts = multihost_utils.process_allgather(padded)
    return [part[:size].tobytes() for part, size in zip(parts, sizes, strict=True)]
