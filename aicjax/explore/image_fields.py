# SPDX-License-Identifier: Apache-2.0
"""Fields of requests about images: their number and size, and where the vision encoder runs."""

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax.explore.request_errors import Count

Candidates = Annotated[tuple[Count, ...], Field(min_length=1)] | None
Factor = Annotated[float, Field(gt=0)] | None
_EPD_MODES = ("agg", "disagg")
Pixels = Annotated[int, Field(ge=0)]


class ImageFields(BaseModel):
    """Images of each request, and how the encoder is spread.

    Attributes:
        image_height, image_width: Size of an image in pixels; 0 for requests of text.
        num_images_per_request: Images of a request.
        enable_encoder_dp: Whether the ranks of a worker share out the images and each holds the whole encoder, rather
            than slices of it.
        enable_epd: Whether encoders run on workers of their own, before workers of the language model alone.
    """

    image_height: Pixels = 0
    image_width: Pixels = 0
    num_images_per_request: Annotated[int, Field(ge=0)] = Field(
        default=1, validation_alias=AliasChoices("num_images_per_request", "num_images")
    )
    enable_encoder_dp: bool = True
    enable_epd: bool = False

    @model_validator(mode="after")
    def _check_images(self) -> Self:
        for name, other in (("image_height", "image_width"), ("image_width", "image_height")):
            if getattr(self, other) and not getattr(self, name):
                raise InputError(name, 0, f"given together with {other} = {getattr(self, other)}")
        if self.enable_epd and not self.has_images:
            raise InputError("enable_epd", True, "absent for requests of text: image_height and image_width are 0")
        return self

    @property
    def has_images(self) -> bool:
        """Whether requests have images."""
        return self.image_height > 0 and self.num_images_per_request > 0


def _listed(value: Any) -> Any:
    """A list that a command line gives as text."""
    return value.split(",") if isinstance(value, str) else value


class EncodePoolFields(ImageFields):
    """Workers that run the vision encoder alone, in a search with `enable_epd`.

    Attributes:
        encoder_tp_candidates, encoder_batch_candidates: Replace the lists of their sizes and batches.
        max_encoder_workers: Most of them in a replica.
        encoder_system: GPU system of theirs; that of prefill or in-flight workers when None.
        encoder_latency_correction, rate_match_encoder_degradation: Replace constants of disaggregated serving.
    """

    encoder_tp_candidates: Annotated[Candidates, BeforeValidator(_listed)] = Field(
        default=None, validation_alias=AliasChoices("encoder_tp_candidates", "encoder_tp")
    )
    encoder_batch_candidates: Candidates = None
    max_encoder_workers: Count | None = None
    encoder_system: str | None = Field(
        default=None, validation_alias=AliasChoices("encoder_system", "encoder_system_name")
    )
    encoder_latency_correction: Factor = None
    rate_match_encoder_degradation: Factor = None

    @model_validator(mode="after")
    def _check_pool(self) -> Self:
        pool = ("encoder_tp_candidates", "encoder_batch_candidates", "max_encoder_workers", "encoder_system")
        _check_needs_epd(self, pool)
        return self


class EncodePointFields(ImageFields):
    """Workers that run the vision encoder alone, at one point with `enable_epd`.

    Attributes:
        encoder_tp: GPUs of one, each with a slice of the encoder.
        encoder_batch_size: Requests that it encodes together; 1 when None.
        encoder_num_workers: How many there are; 1 when None.
    """

    encoder_tp: Count | None = None
    encoder_batch_size: Count | None = None
    encoder_num_workers: Count | None = None

    @model_validator(mode="after")
    def _check_pool(self) -> Self:
        _check_needs_epd(self, ("encoder_tp", "encoder_batch_size", "encoder_num_workers"))
        mode = getattr(self, "mode", _EPD_MODES[0])
        if self.enable_epd and self.encoder_tp is None:
            raise InputError("encoder_tp", None, "given with enable_epd")
        if self.enable_epd and mode not in _EPD_MODES:
            raise InputError("mode", mode, f"one of {', '.join(_EPD_MODES)} with enable_epd")
        return self


def _check_needs_epd(request: ImageFields, names: Iterable[str]) -> None:
    """Refuses fields about encode workers in a request without them."""
    for name in names:
        value = getattr(request, name)
        if value is not None and not request.enable_epd:
            raise InputError(name, value, "absent without enable_epd")
