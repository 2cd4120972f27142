# SPDX-License-Identifier: Apache-2.0
"""DynamoGraphDeploymentRequest files on the command line."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from aicjax.explore import SearchRequest


class Asked(NamedTuple):
    """What a file asks for.

    Attributes:
        search: The search.
        name: Of the deployment; None where it has none.
        site: What the user's cluster is called and has.
    """

    search: "SearchRequest"
    name: str | None
    site: Mapping[str, str]


def read(path: Path, given: Mapping[str, Any]) -> Asked:
    """The search of a file; fields that change nothing are named on stderr, each in a line.

    Raises:
        InputError: The file or one of its fields is bad.
    """
    from aicjax.explore.dynamo_request import read_dynamo_request
    from aicjax.explore.request import SearchRequest

    asked = read_dynamo_request(path, **given)
    for note in asked.notes:
        print(f"aicjax: {note}", file=sys.stderr)
    return Asked(SearchRequest(**asked.fields), asked.name, asked.site)
