"""The Avro container: every codec, and every way a file can be broken."""

from __future__ import annotations

import io

import fastavro
import pytest

from paimon_stream.errors import CorruptMetadata, InvalidOption, UnsupportedFeature
from paimon_stream.format.avro_file import AvroBlock, compressor, encode_file, zigzag
from tests.kits.avro_files import read_file

SCHEMA = b'{"type":"long"}'
PLAIN = b"".join(zigzag(number) for number in range(500))
WRONG_CHECKSUM = compressor("snappy", 1).compress(b"a")[:-1] + b"?"
CODECS = ["zstd", "zstandard", "snappy", "deflate", "bzip2", "xz", "null", " ZSTD "]


def made(compression: str, level: int = 1) -> bytes:
    codec = compressor(compression, level)
    return encode_file(SCHEMA, codec.codec, [AvroBlock(500, codec.compress(PLAIN))])


@pytest.mark.parametrize("compression", CODECS)
def test_what_is_written_is_read_back(compression: str) -> None:
    file = read_file(made(compression), "x")
    assert file.schema == SCHEMA.decode()
    assert file.blocks == (AvroBlock(500, PLAIN),)


@pytest.mark.parametrize("compression", ["deflate", "bzip2", "xz", "null"])
def test_an_independent_reader_reads_it(compression: str) -> None:
    assert list(fastavro.reader(io.BytesIO(made(compression)))) == list(range(500))


@pytest.mark.parametrize("compression", ["deflate", "bzip2", "xz", "null"])
def test_a_file_of_an_independent_writer_is_read(compression: str) -> None:
    out = io.BytesIO()
    fastavro.writer(out, {"type": "long"}, range(500), codec=compression, sync_interval=100)
    blocks = read_file(out.getvalue(), "x").blocks
    assert len(blocks) > 1
    assert b"".join(block.data for block in blocks) == PLAIN


def test_the_level_of_zstd_is_used() -> None:
    codec = {level: compressor("zstd", level) for level in (1, 19)}
    text = b"".join(b"data-%d-%d.parquet" % (i * 7919 % 1000, i) for i in range(20_000))
    assert len(codec[19].compress(text)) < len(codec[1].compress(text))


def test_equal_content_gives_equal_bytes() -> None:
    assert made("zstd") == made("zstd")


def test_a_file_without_blocks_is_valid() -> None:
    data = encode_file(SCHEMA, "zstandard", [AvroBlock(0, b"")])
    assert read_file(data, "x").blocks == ()
    assert list(fastavro.reader(io.BytesIO(encode_file(SCHEMA, "null", [])))) == []


@pytest.mark.parametrize("compression", ["none", "lz4", "lzo", ""])
def test_a_compression_that_java_cannot_read_is_refused(compression: str) -> None:
    with pytest.raises(InvalidOption, match=r"manifest\.compression.*zstd, snappy"):
        compressor(compression, 1)


@pytest.mark.parametrize("compression", CODECS)
def test_a_file_cut_at_any_byte_is_corrupt_and_names_its_path(compression: str) -> None:
    data = made(compression)
    whole_header = encode_file(SCHEMA, compressor(compression, 1).codec, [])
    for size in range(len(data)):
        if size == len(whole_header):
            continue  # a file without blocks; the sizes in manifest lists reveal it
        with pytest.raises(CorruptMetadata) as caught:
            read_file(data[:size], "/t/manifest/m-0")
        assert caught.value.context["path"] == "/t/manifest/m-0"
        assert "/t/manifest/m-0" in str(caught.value) and "backup" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off"),
        (b"PAR1" + bytes(40), "not an Avro file"),
        (made("zstd") + zigzag(2) + zigzag(40), "cut off"),
        (made("zstd")[:-1] + b"?", "damaged"),
        (b"Obj\x01" + zigzag(0) + bytes(16), "no schema"),
        (b"Obj\x01" + b"\xff" * 30, "is too long"),
        (encode_file(SCHEMA, "zstandard", [AvroBlock(5, b"not zstd")]), "does not decompress"),
        (
            encode_file(SCHEMA, "snappy", [AvroBlock(5, b"\xff\xff\xff\xff\x0f1234")]),
            "holds more than 16",
        ),
        (encode_file(SCHEMA, "snappy", [AvroBlock(5, WRONG_CHECKSUM)]), "checksum"),
        (encode_file(SCHEMA, "null", [AvroBlock(-5, b"12345")]), "claims -5 records"),
    ],
)
def test_each_kind_of_damage_is_named(data: bytes, why: str) -> None:
    with pytest.raises(CorruptMetadata, match=why):
        read_file(data, "x")


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedFeature, match="'lz4'"):
        read_file(encode_file(SCHEMA, "lz4", [AvroBlock(5, b"12345")]), "x")
