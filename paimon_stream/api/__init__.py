"""What users call: tables, batch writes and the doctor."""
