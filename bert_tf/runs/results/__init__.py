"""Results of an evaluation in detail: reports, and tables of predictions and errors."""
