"""Everything that people look at: tables, figures, the report."""
