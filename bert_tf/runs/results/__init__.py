"""A second look at results: reports, tables of predictions and errors, comparisons of runs."""
