"""The README's snippet: a stream into a Paimon table. Run it twice, and it goes on where it was."""

from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, PaimonTable

spark = SparkSession.builder.master("local[2]").getOrCreate()
ticks = spark.readStream.format("rate").option("rowsPerSecond", 100).load()  # any stream

location = "demo-data/warehouse/demo.db/ticks"  # <warehouse>/<database>.db/<table>
PaimonTable.create(location, schema=ticks.schema, if_not_exists=True)
query = PaimonSink(location).start(ticks, checkpoint="checkpoints/ticks")
query.awaitTermination(15)  # seconds; without a number, until it is stopped
query.stop()

print(PaimonTable.load(location).latest_snapshot())
