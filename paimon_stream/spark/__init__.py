"""The integration with Spark. No other folder imports pyspark."""
