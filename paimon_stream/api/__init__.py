"""What users hold in their hands."""
