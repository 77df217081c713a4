"""One Spark session for all tests here, and a streaming job for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kits.marks import marks_folder
from tests.kits.spark_jobs import Job

pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.spark)


@pytest.fixture
def job(spark_session: SparkSession, tmp_path: Path) -> Job:
    """A job without a table and without files yet."""
    spark_session.sparkContext.setLogLevel("OFF")
    return Job(spark=spark_session, root=tmp_path)
