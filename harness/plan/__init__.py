"""From a spec to what will run: cells, the step-time law, what a repetition costs. Pure."""
