"""The objects that users call: tables, batch writes, catalogs and the doctor."""
