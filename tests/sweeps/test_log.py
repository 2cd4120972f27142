# SPDX-License-Identifier: Apache-2.0
"""The log of a sweep: what is whole stays, what is torn goes, and what is another sweep's is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import InputError
from aicjax.sweeps.log import ChunkLog, read_logs

FINGERPRINT, OTHER = bytes(range(32)), bytes(32)
RECORDS = st.dictionaries(st.integers(0, 2**40), st.binary(max_size=40), max_size=4)


def write(directory: Path, records: dict[int, bytes], host: int = 0, fingerprint: bytes = FINGERPRINT) -> Path:
    log = ChunkLog(directory, host, fingerprint)
    for number, content in records.items():
        log.append(number, content)
    log.close()
    return log.path


def read(directory: Path, host: int = 0, hosts: int = 1) -> dict[int, bytes]:
    return read_logs(directory, FINGERPRINT, host, hosts)


@settings(max_examples=40)
@given(records=RECORDS, more=RECORDS, cut=st.integers(0, 400))
def test_torn_tail_loses_the_torn_record_alone(tmp_path_factory, records, more, cut):
    directory = tmp_path_factory.mktemp("log")
    path = write(directory, {})
    ends = [path.stat().st_size]
    for number, content in records.items():
        write(directory, {number: content})
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(len(whole) - cut, 0)])
    left = dict(list(records.items())[: sum(end <= len(whole) - cut for end in ends[1:])])
    assert read(directory) == left
    write(directory, more)
    assert read(directory) == left | more


@settings(max_examples=40)
@given(records=RECORDS.filter(bool), at=st.integers(0), bit=st.integers(0, 7))
def test_flipped_bit_never_passes_for_a_record(tmp_path_factory, records, at, bit):
    directory = tmp_path_factory.mktemp("log")
    start = write(directory, {}).stat().st_size
    path = write(directory, records)
    content = bytearray(path.read_bytes())
    content[start + at % (len(content) - start)] ^= 1 << bit
    path.write_bytes(content)
    found = read(directory)
    assert found.items() < records.items()


def test_zeros_at_the_end_are_no_record(tmp_path):
    path = write(tmp_path, {3: b"three"})
    path.write_bytes(path.read_bytes() + bytes(200))
    assert read(tmp_path) == {3: b"three"}


def test_another_sweep_is_refused_and_its_log_left_alone(tmp_path):
    path = write(tmp_path, {1: b"one"}, fingerprint=OTHER)
    before = path.read_bytes()
    with pytest.raises(InputError, match="the same sweep"):
        ChunkLog(tmp_path, 0, FINGERPRINT)
    write(tmp_path, {}, host=1)
    with pytest.raises(InputError, match="of another"):
        read(tmp_path)
    assert path.read_bytes() == before


def test_only_one_process_writes_a_log(tmp_path):
    log = ChunkLog(tmp_path, 0, FINGERPRINT)
    with pytest.raises(InputError, match="no other sweep"):
        ChunkLog(tmp_path, 0, FINGERPRINT)
    log.close()
    write(tmp_path, {1: b"one"})


def test_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can be written"):
        ChunkLog(tmp_path / "file", 0, FINGERPRINT)


@settings(max_examples=40)
@given(writers=st.integers(1, 5), hosts=st.integers(1, 5))
def test_logs_are_shared_out_whole(tmp_path_factory, writers, hosts):
    directory = tmp_path_factory.mktemp("log")
    for writer in range(writers):
        write(directory, {writer: b"%d" % writer}, host=writer)
    shares = [read(directory, host, hosts) for host in range(hosts)]
    assert sorted(number for share in shares for number in share) == list(range(writers))
