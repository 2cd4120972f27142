# SPDX-License-Identifier: Apache-2.0
"""Base of what users state, its counts, and what is wrong with it in their words."""

import difflib
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aicjax._results import InputError

MOST = 10**9  # of a count; what is larger is a slip, and products of larger ones leave 64 bits
Count = Annotated[int, Field(ge=1, le=MOST)]


class Strict(BaseModel):
    """Base of requests and their parts: closed set of names, finite numbers, refusals as `InputError` of one line."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as refusal:
            raise input_error(type(self), refusal) from None

    @model_validator(mode="before")
    @classmethod
    def _no_truth_as_a_number(cls, values: Any) -> Any:
        """Refuses `true` for a count or a number, which pydantic would read as 1."""
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            kinds = _kinds(field.annotation) if field is not None and isinstance(value, bool) else set()
            if kinds & {int, float} and bool not in kinds:
                raise InputError(name, value, "a number")
        return values


def _kinds(annotation: Any) -> set[Any]:
    """The plain types in an annotation."""
    parts = get_args(annotation)
    return set().union(*map(_kinds, parts)) if parts else {annotation} if isinstance(annotation, type) else set()


def input_error(kind: type[BaseModel], refusal: ValidationError) -> InputError:
    """The first refusal of a request as one line: argument, value and what is allowed."""
    first = refusal.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause
    argument = str(first["loc"][0]) if first["loc"] else kind.__name__
    if first["type"] == "missing":
        return InputError(argument, None, "given")
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(argument, list(kind.model_fields), n=1)
        hint = f"a known name; the nearest is `{near[0]}`" if near else "a known name"
        return InputError(argument, first["input"], hint)
    return InputError(argument, first["input"], _rule(first))


def _rule(error: Any) -> str:
    """The rule a value broke, as the end of "Argument x must be ..."."""
    limits = error.get("ctx", {})
    match error["type"]:
        case "literal_error":
            return f"one of {limits['expected']}"
        case "greater_than_equal":
            return f"at least {limits['ge']}"
        case "greater_than":
            return f"above {limits['gt']:g}"
        case "less_than_equal":
            return f"at most {limits['le']:.10g}"
        case "finite_number":
            return "a finite number"
        case "int_type" | "int_parsing" | "int_from_float":
            return "a whole number"
        case "float_type" | "float_parsing":
            return "a number"
        case "too_short":
            return "a list that is not empty"
        case _:
            return str(error["msg"]).removeprefix("Input should be ").lower()
