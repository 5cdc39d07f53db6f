"""Logs are read as Azure ML has them read: by a URL with a shared access signature."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob import generate_blob_sas

from handlers.platform.azure_ml_jobs import read_log
from tests.local.handlers.cloud import Cloud


def test_a_log_is_read_from_an_offset_on_or_its_end_and_again_after_it_began_again(
    cloud: Cloud,
) -> None:
    container = cloud.clients.blobs.get_container_client("landfall")
    blob = container.get_blob_client("job/std_log.txt")
    signature = generate_blob_sas(
        str(blob.account_name),
        container.container_name,
        blob.blob_name,
        account_key=cloud.clients.blobs.credential.account_key,
        permission="r",
        expiry=datetime.now(UTC) + timedelta(minutes=5),
    )
    url = f"{blob.url}?{signature}"

    def read(offset: int | None, limit: int = 100) -> tuple[bytes, int, int]:
        part = read_log(url, offset=offset, limit_bytes=limit)
        return part.content, part.start, part.size

    with pytest.raises(ResourceNotFoundError):
        read(None)
    blob.create_append_blob()
    assert read(None) == read(0) == (b"", 0, 0)
    blob.append_block(b"one\ntwo\n")
    assert read(None) == (b"one\ntwo\n", 0, 8)
    assert read(None, 4) == read(4) == (b"two\n", 4, 8)
    assert (read(0, 4), read(8)) == ((b"one\n", 0, 8), (b"", 8, 8))
    blob.create_append_blob()
    blob.append_block(b"again\n")
    assert read(8) == (b"again\n", 0, 6), "of another attempt"
    with pytest.raises(AzureError):
        read_log(blob.url, offset=None, limit_bytes=100)
