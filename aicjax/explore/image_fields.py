# SPDX-License-Identifier: Apache-2.0
"""Fields of requests about images: their number and size, and where the vision encoder runs."""

from typing import Annotated, Self

from pydantic import AliasChoices, BaseModel, Field, model_validator

from aicjax._results import InputError

Count = Annotated[int, Field(ge=1)]
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
