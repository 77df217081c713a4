"""The README's snippet: a stream into a Paimon table. If you run it again, it continues where it
stopped.
"""

import os
import sys

from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, PaimonTable

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers use this Python, too
spark = SparkSession.builder.master("local[2]").getOrCreate()
ticks = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
)  # any stream

location = "demo-data/warehouse/demo.db/ticks"  # <warehouse>/<database>.db/<table>
PaimonTable.create(location, schema=ticks.schema, if_not_exists=True)
sink = PaimonSink(location)
query = sink.start(ticks, checkpoint="checkpoints/ticks", trigger={"availableNow": True})
query.awaitTermination()

print(sink.last_report)
