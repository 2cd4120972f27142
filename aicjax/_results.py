# SPDX-License-Identifier: Apache-2.0
"""How a number was obtained, and the errors a caller can meet."""

import enum


class Provenance(enum.IntEnum):
    """How a latency was obtained, best first: the worst of a sum is its maximum."""

    NONE = 0  # nothing runs, zero time: one rank, no layer
    EXACT = 1  # a measured point
    INTERPOLATED = 2  # between measured points of the same shape
    ANALYTIC = 3  # a formula with measured constants: memory-bound and point-to-point operators
    ESTIMATED = 4  # a difference of measured tables: static activation scales
    ONE_SIDED = 5  # one measured neighbour inside the range, scaled by the roofline
    HELD = 6  # beyond the measured range, at the utilisation of the boundary
    REPAIRED = 7  # from a measured table that timed its host, by the tables of other backends
    TRANSFERRED = 8  # from measured neighbouring shapes, in utilisation space
    EMPIRICAL = 9  # utilisation of the nearest measured points, same slice
    XSHAPE = 10  # ... of another shape
    XBACKEND = 11  # ... of other backends on the same system
    XQUANT = 12  # ... of another format with the same profile
    XPROFILE = 13  # ... of another format profile
    XOP = 14  # ... of another operator
    SOL = 15  # the roofline alone
    MISSING = 16  # no answer: the latency is NaN


class AicjaxError(Exception):
    """Base of every error a user can meet: one line, no traceback on the command line.

    Attributes:
        exit_code: What the command line exits with.
    """

    exit_code = 1


class InputError(AicjaxError, ValueError):
    """A bad input: names the argument, the value and what is allowed."""

    exit_code = 2

    def __init__(self, argument: str, value: object, allowed: str):
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"Argument `{argument}` must be {allowed}, but got {value!r}.")


class DataError(AicjaxError):
    """A file of the database, a system or a configuration breaks its schema: names file, place and rule."""

    exit_code = 2


class UnsupportedModel(DataError):
    """A model the engine cannot price: names its architecture and what is supported."""


class MissingData(AicjaxError):
    """Nothing measured answers a query, in the mode asked for: names what is missing and why."""

    exit_code = 4


class MissingPeak(AicjaxError):
    """The system states no peak for the data type of an operator."""

    exit_code = 4


class NoFeasible(AicjaxError):
    """No configuration meets the limits: names the binding one and the nearest configuration."""

    exit_code = 3
