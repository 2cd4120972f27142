# SPDX-License-Identifier: Apache-2.0
"""Measured tables: versions, sources, rows and attention lanes of the database."""

from aicjax.tables.lanes import lane_order as lane_order
from aicjax.tables.rows import Rows as Rows
from aicjax.tables.rows import first_rows as first_rows
from aicjax.tables.sources import Source as Source
from aicjax.tables.sources import sources as sources
from aicjax.tables.store import read_rows as read_rows
from aicjax.tables.versions import available as available
from aicjax.tables.versions import newest_versions as newest_versions
from aicjax.tables.versions import resolve_version as resolve_version
from aicjax.tables.versions import version_slots as version_slots
