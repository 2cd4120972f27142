# SPDX-License-Identifier: Apache-2.0
"""The registry of tables is consistent with itself and with its page of the documentation."""

from pathlib import Path

import pytest

from aicjax.tables.columns import COLUMNS, Kind
from aicjax.tables.schema import TABLES, Order, TableSchema


@pytest.mark.parametrize("name", sorted(TABLES))
def test_columns_of_a_table_are_known_and_named_once(name: str):
    schema: TableSchema = TABLES[name]
    assert schema.key
    assert set(schema.identity) <= COLUMNS.keys()
    stored = [*schema.identity, *(value.name for value in schema.values)]
    published = [*schema.identity, *(value.source for value in schema.values), *schema.ignored]
    assert len(stored) == len(set(stored))
    assert len(published) == len(set(published))
    assert any(not value.optional for value in schema.values)
    assert {value.unit for value in schema.values} <= {"ms", "W"}
    assert all(value.name in ("latency", "power") or value.name.endswith("_ms") for value in schema.values)
    assert name.endswith("_perf")


def test_every_column_belongs_to_a_table():
    assert {name for schema in TABLES.values() for name in schema.identity} == COLUMNS.keys()


def test_walk_is_over_the_whole_key():
    walked = [name for name, schema in TABLES.items() if schema.order is Order.WALK]
    assert walked == ["gemm_perf"]
    assert TABLES["gemm_perf"].key == ("gemm_dtype", "m", "n", "k")


def test_words_and_defaults_fit_the_kind():
    for name, column in COLUMNS.items():
        assert (column.words is None) or column.kind is Kind.TEXT, name
        if column.absent is not None:
            assert isinstance(column.absent, str) == (column.kind is Kind.TEXT), name


def test_documentation_lists_every_table():
    page = (Path(__file__).parents[2] / "docs" / "database.md").read_text(encoding="utf-8")
    assert [name for name in TABLES if f"`{name}`" not in page] == []
